const [free, taken] = [0, 1];
/** After so many milliseconds nobody waits any longer. */
const waitLimit = 100;

/**
 * Whose turn it is to write, among threads that fill one file. A file system lets one of them write at a time, and has the
 * others spin until then, which was a tenth of the CPU of `create` on ext4: with this they do something else first, and sleep
 * if need be. It saves work and protects nothing: who has waited for long goes on as well.
 */
export class WriteTurn {
  /** What the threads share, to be given to each of them. */
  readonly memory: SharedArrayBuffer;
  readonly #state: Int32Array;

  constructor(memory = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#state = new Int32Array(memory);
  }

  /** Does both, in whichever order lets fewer threads wait. What either throws is thrown, and ends the turn. */
  writeAnd(write: () => void, other: () => void): void {
    const isFirst = this.#tryTake();
    if (!isFirst) {
      other();
      while (!this.#tryTake()) if (Atomics.wait(this.#state, 0, taken, waitLimit) === 'timed-out') break;
    }
    try {
      write();
    } finally {
      Atomics.store(this.#state, 0, free);
      Atomics.notify(this.#state, 0, 1);
    }
    if (isFirst) other();
  }

  #tryTake(): boolean {
    return Atomics.compareExchange(this.#state, 0, free, taken) === free;
  }
}

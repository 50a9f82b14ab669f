/** What a slot is for: `upload` sends a body that is read from somewhere else, `plain` is everything else. */
export type RequestKind = 'plain' | 'upload';

interface Waiter {
  readonly kind: RequestKind;
  readonly admit: () => void;
}

/**
 * A bound on concurrent exchanges with one server, first come, first served. Uploads never take the last slot: their bodies
 * may come from the same server, and would wait for ever for a slot of their own. So with a bound of 1, one
 * upload and one other exchange may run.
 */
export class RequestLimiter {
  readonly #limit: number;
  readonly #taken = { plain: 0, upload: 0 };
  readonly #waiting = new Set<Waiter>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Waits for a slot. Resolves to what gives it back (once, however often called); rejects with the signal's reason. */
  async take(kind: RequestKind, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const stop = (): void => {
        this.#waiting.delete(waiter);
        reject(signal.reason as Error);
      };
      const waiter = {
        kind,
        admit: () => {
          signal.removeEventListener('abort', stop);
          resolve();
        },
      };
      signal.addEventListener('abort', stop, { once: true });
      this.#waiting.add(waiter);
      this.#admit();
    });
    let held = true;
    return () => {
      if (held) this.#taken[kind] -= 1;
      held = false;
      this.#admit();
    };
  }

  #admit(): void {
    for (const waiter of this.#waiting) {
      if (!this.#isFree(waiter.kind)) continue;
      this.#waiting.delete(waiter);
      this.#taken[waiter.kind] += 1;
      waiter.admit();
    }
  }

  #isFree(kind: RequestKind): boolean {
    const { plain, upload } = this.#taken;
    if (kind === 'plain') return plain < Math.max(1, this.#limit - upload);
    return upload < Math.max(1, this.#limit - 1) && plain + upload < Math.max(2, this.#limit);
  }
}

/** The kind of request. `upload` sends a body that is read from another server or file; `plain` is any other. */
export type RequestKind = 'plain' | 'upload';

const kinds: readonly RequestKind[] = ['plain', 'upload'];

interface Waiter {
  readonly kind: RequestKind;
  /** The place in the order of all waiting requests. */
  readonly order: number;
  readonly signal: AbortSignal;
  readonly admit: () => void;
  readonly refuse: (reason: Error) => void;
}

/** The requests that wait with the same signal. */
interface WaitingGroup {
  readonly waiters: Set<Waiter>;
  readonly stop: () => void;
}

/**
 * Limits concurrent requests to one server, first come, first served. Uploads always leave one request free, because
 * their bodies may come from the same server. So a limit of 1 allows one upload and one other request. The cost of a
 * request does not depend on how many wait.
 */
export class RequestLimiter {
  readonly #limit: number;
  readonly #taken = { plain: 0, upload: 0 };
  readonly #waiting = { plain: new Set<Waiter>(), upload: new Set<Waiter>() };
  // A signal compares each new listener with all of its others.
  readonly #groups = new Map<AbortSignal, WaitingGroup>();
  #count = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Waits until the limit allows another request. Returns a function that ends the request (a second call has no
   * effect). Rejects with the reason of the signal.
   */
  async take(kind: RequestKind, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    await new Promise<void>((admit, refuse) => {
      this.#add({ kind, order: (this.#count += 1), signal, admit, refuse });
      this.#admit();
    });
    let held = true;
    return () => {
      if (held) this.#taken[kind] -= 1;
      held = false;
      this.#admit();
    };
  }

  #add(waiter: Waiter): void {
    const { kind, signal } = waiter;
    this.#waiting[kind].add(waiter);
    const group = this.#groups.get(signal) ?? this.#watch(signal);
    group.waiters.add(waiter);
  }

  #watch(signal: AbortSignal): WaitingGroup {
    const waiters = new Set<Waiter>();
    const stop = (): void => {
      for (const waiter of waiters) {
        this.#remove(waiter);
        waiter.refuse(signal.reason as Error);
      }
    };
    const group = { waiters, stop };
    signal.addEventListener('abort', stop, { once: true });
    this.#groups.set(signal, group);
    return group;
  }

  #remove(waiter: Waiter): void {
    const { kind, signal } = waiter;
    this.#waiting[kind].delete(waiter);
    const group = this.#groups.get(signal);
    group?.waiters.delete(waiter);
    if (!group || group.waiters.size > 0) return;
    signal.removeEventListener('abort', group.stop);
    this.#groups.delete(signal);
  }

  #admit(): void {
    for (let next = this.#next(); next; next = this.#next()) {
      this.#remove(next);
      this.#taken[next.kind] += 1;
      next.admit();
    }
  }

  /** Returns the first request that the limit allows now. */
  #next(): Waiter | undefined {
    const first = kinds.flatMap((kind) => (this.#isFree(kind) ? [...this.#waiting[kind].values().take(1)] : []));
    return first.toSorted((a, b) => a.order - b.order)[0];
  }

  #isFree(kind: RequestKind): boolean {
    const { plain, upload } = this.#taken;
    if (kind === 'plain') return plain < Math.max(1, this.#limit - upload);
    return upload < Math.max(1, this.#limit - 1) && plain + upload < Math.max(2, this.#limit);
  }
}

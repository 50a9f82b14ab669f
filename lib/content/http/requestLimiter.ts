/** The kind of request. `upload` sends a body that is read from another server or file; `plain` is any other. */
export type RequestKind = 'plain' | 'upload';

interface Waiter {
  readonly kind: RequestKind;
  readonly admit: () => void;
}

/**
 * Limits concurrent requests to one server, first come, first served. Uploads always leave one request free, because
 * their bodies may come from the same server. So a limit of 1 allows one upload and one other request.
 */
export class RequestLimiter {
  readonly #limit: number;
  readonly #taken = { plain: 0, upload: 0 };
  readonly #waiting = new Set<Waiter>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Waits until the limit allows another request. Returns a function that ends the request (a second call has no
   * effect). Rejects with the reason of the signal.
   */
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
      // Many may wait, and this is called for each request.
      if (!this.#isFree('plain') && !this.#isFree('upload')) return;
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

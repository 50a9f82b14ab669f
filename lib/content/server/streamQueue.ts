import type { ServerResponse } from 'node:http';

/** Limits for content that is sent at a time. */
export interface StreamLimits {
  /** The largest number of responses that are sent at a time. */
  readonly active: number;
  /** The largest number of responses that wait for their turn. */
  readonly waiting: number;
  /** The longest wait in milliseconds. */
  readonly patience: number;
}

/** Lets a few responses be sent at a time. Others wait in the order of their requests, up to a limit. */
export class StreamQueue {
  readonly #limits: StreamLimits;
  readonly #waiting = new Set<() => void>();
  #active = 0;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  /**
   * Waits for a turn, which ends when the result is disposed of. Undefined if too many wait already, after too long a
   * wait, or if the client has disconnected.
   */
  async enter(response: ServerResponse): Promise<Disposable | undefined> {
    const { active, waiting, patience } = this.#limits;
    if (this.#active < active) this.#active += 1;
    else if (this.#waiting.size >= waiting || !(await this.#wait(response, patience))) return undefined;
    return {
      [Symbol.dispose]: () => {
        const [next] = this.#waiting;
        if (next) next();
        else this.#active -= 1;
      },
    };
  }

  /** Returns whether another response gave its turn to this one in time. */
  #wait(response: ServerResponse, patience: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isTurn: boolean): void => {
        this.#waiting.delete(take);
        clearTimeout(timer);
        response.off('close', leave);
        resolve(isTurn);
      };
      const take = (): void => end(true);
      const leave = (): void => end(false);
      const timer = setTimeout(leave, patience);
      this.#waiting.add(take);
      response.once('close', leave);
      if (response.destroyed) leave();
    });
  }
}

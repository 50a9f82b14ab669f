import type { ServerResponse } from 'node:http';

/** Limits for content that is sent at a time. */
export interface StreamLimits {
  /** The largest number of responses that are sent at a time. */
  readonly active: number;
  /** The largest number of responses that are sent to one address at a time; by default half of `active`. */
  readonly activePerAddress?: number;
  /** The largest number of responses that wait for their turn. */
  readonly waiting: number;
  /** The longest wait in milliseconds. */
  readonly patience: number;
}

/** Lets a few responses be sent at a time. Others wait in the order of their requests, up to a limit. */
export class StreamQueue {
  readonly #limits: StreamLimits;
  /** The addresses of the responses that are sent. */
  readonly #active: string[] = [];
  readonly #waiting = new Map<() => void, string>();

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  /**
   * Waits for a turn, which ends when the result is disposed of. Undefined if too many wait already, after too long a
   * wait, or if the client has disconnected.
   */
  async enter(response: ServerResponse): Promise<Disposable | undefined> {
    const { waiting, patience } = this.#limits;
    const address = response.req.socket.remoteAddress ?? '';
    if (this.#mayBegin(address)) this.#active.push(address);
    else if (this.#waiting.size >= waiting || !(await this.#wait(address, response, patience))) return undefined;
    return {
      [Symbol.dispose]: () => {
        this.#active.splice(this.#active.indexOf(address), 1);
        for (const [take, next] of this.#waiting) if (this.#mayBegin(next)) take();
      },
    };
  }

  #mayBegin(address: string): boolean {
    const { active, activePerAddress = Math.ceil(active / 2) } = this.#limits;
    const own = this.#active.filter((each) => each === address);
    return this.#active.length < active && own.length < activePerAddress;
  }

  /** Returns whether the turn of this response came in time. */
  #wait(address: string, response: ServerResponse, patience: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isTurn: boolean): void => {
        this.#waiting.delete(take);
        clearTimeout(timer);
        response.off('close', leave);
        resolve(isTurn);
      };
      const take = (): void => {
        this.#active.push(address);
        end(true);
      };
      const leave = (): void => end(false);
      const timer = setTimeout(leave, patience);
      this.#waiting.set(take, address);
      response.once('close', leave);
      if (response.destroyed) leave();
    });
  }
}

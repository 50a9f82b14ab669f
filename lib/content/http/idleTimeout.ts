import { IncomingMessage, type ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { Clock } from './retry.ts';

/** Time limits without data from a server, in milliseconds. */
export interface IdleTimeoutOptions {
  /** The time limit for a connection, including TLS; default 30 s. */
  readonly connectTimeout?: number;
  /**
   * The time in which the server may neither send nor accept data; default 60 s. Over the same time, a response must
   * average 1 KiB/s.
   */
  readonly idleTimeout?: number;
}

/** Stricter limits for a small response, such as a manifest. Times are in milliseconds. */
export interface SmallResponseLimits {
  /** The time over which it must average 1 KiB/s, if it is shorter than the idle timeout. */
  readonly window: number;
  /** The time after which `warn` is called if it is incomplete. */
  readonly warnAfter: number;
  readonly warn: () => void;
}

/**
 * Watches a request. `report` gets words for a message, and whether a connection was made. It is called if the
 * connection takes too long, if the server neither sends nor accepts data, or if a response is below the minimum
 * throughput. `stream` returns the body in transfer: of the response, else of the request. Returns a function that ends
 * the watch.
 */
export function watchIdleTime(
  outgoing: ClientRequest,
  stream: () => Readable | undefined,
  {
    connectTimeout = 30_000,
    idleTimeout = 60_000,
    small,
  }: IdleTimeoutOptions & { readonly small?: SmallResponseLimits },
  report: (problem: string, isConnected: boolean) => void,
): () => void {
  let connected: Socket | undefined;
  let seen = 0;
  let since = performance.now();
  const throughput = new MinimumThroughput(Math.min(idleTimeout, small?.window ?? idleTimeout));
  const warning = small && setTimeout(small.warn, small.warnAfter).unref();
  let before = 0;
  outgoing.once('socket', (socket) => {
    const connect = (): void => {
      connected = socket;
      since = performance.now();
      before = socket.bytesRead;
    };
    const greeting = socket instanceof TLSSocket && [null, 'unknown'].includes(socket.getProtocol());
    if (!socket.connecting && !greeting) connect();
    else socket.once(socket instanceof TLSSocket ? 'secureConnect' : 'connect', connect);
  });
  const isOurTurn = (): boolean => {
    const moving = stream();
    if (moving instanceof IncomingMessage) return moving.readableLength > 0;
    return moving !== undefined && !outgoing.writableEnded && !outgoing.writableNeedDrain;
  };
  const timer = setInterval(
    () => {
      const moved = connected ? connected.bytesRead + connected.bytesWritten : 0;
      const ours = connected && isOurTurn();
      if (moved !== seen || ours) {
        seen = moved;
        since = performance.now();
      }
      // The throughput excludes the time before a response, and bytes that are not read yet.
      const read = connected?.bytesRead ?? before;
      if (read === before || ours) throughput.restart(read);
      else if (throughput.isTooSlow(read)) report(throughput.description, true);
      const limit = connected ? idleTimeout : connectTimeout;
      if (performance.now() - since < limit) return;
      const seconds = String(Math.ceil(limit / 1000));
      if (connected) report(`was idle for ${seconds} s`, true);
      else report(`did not accept a connection for ${seconds} s`, false);
    },
    Math.min(connectTimeout / 4, throughput.interval),
  );
  // The connection keeps the process running, not this timer.
  timer.unref();
  return () => {
    clearInterval(timer);
    clearTimeout(warning);
  };
}

/** The minimum throughput of a response, in bytes per second. */
const minimumRate = 1024;

/** Detects a response that is too slow, even if each chunk arrives within the idle timeout. */
export class MinimumThroughput {
  /** The interval in which `isTooSlow` must be called, in milliseconds. */
  readonly interval: number;
  readonly #window: number;
  readonly #clock: Pick<Clock, 'now'>;
  #bytes = 0;
  #since: number;
  #checked: number;

  /** `window` is the time of the average, in milliseconds. */
  constructor(window: number, clock: Pick<Clock, 'now'> = performance) {
    this.#window = window;
    this.#clock = clock;
    this.#since = this.#checked = clock.now();
    this.interval = window / 4;
  }

  /** Restarts the measurement at a number of bytes. */
  restart(bytes: number): void {
    this.#bytes = bytes;
    this.#since = this.#checked = this.#clock.now();
  }

  /**
   * Returns whether a response with this number of bytes is too slow. The idle timeout covers a time without any byte.
   * A time in which this method was not called does not count, because this process was blocked.
   */
  isTooSlow(bytes: number): boolean {
    const now = this.#clock.now();
    const isLate = now - this.#checked > 2 * this.interval;
    this.#checked = now;
    if (isLate) this.restart(bytes);
    if (now - this.#since < this.#window) return false;
    const come = bytes - this.#bytes;
    this.restart(bytes);
    return come > 0 && come < (minimumRate * this.#window) / 1000;
  }

  /** Describes the problem, for a message that begins with the host. */
  get description(): string {
    return `sent less than 1 KiB/s for ${Math.ceil(this.#window / 1000)} s`;
  }
}

import { IncomingMessage, type ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { MinimumThroughput } from './minimumThroughput.ts';

/** How long a server may be silent, in milliseconds. */
export interface IdleTimeoutOptions {
  /** While a connection is made, TLS included; default 30 s. */
  readonly connectTimeout?: number;
  /** When it is its turn to send or to take bytes; default 60 s. Over as long its answers have to bring 1 KiB each second. */
  readonly idleTimeout?: number;
}

/**
 * Watches the silence of an exchange and reports it, in words, when it has lasted too long: while the connection is being made,
 * and then whenever it is the server's turn to send or to take bytes; so too an answer that comes in drops. `stream` is the body that
 * moves now, if any: the answer's, else the request's. Returns what ends the watch.
 */
export function watchIdleTime(
  outgoing: ClientRequest,
  stream: () => Readable | undefined,
  { connectTimeout = 30_000, idleTimeout = 60_000 }: IdleTimeoutOptions,
  report: (problem: string) => void,
): () => void {
  let connected: Socket | undefined;
  let seen = 0;
  let since = performance.now();
  const throughput = new MinimumThroughput(idleTimeout);
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
      // How long it thinks before it answers is not a matter of pace, nor is what nobody has taken yet.
      const read = connected?.bytesRead ?? before;
      if (read === before || ours) throughput.restart(read);
      else if (throughput.isTooSlow(read)) report(throughput.description);
      const limit = connected ? idleTimeout : connectTimeout;
      if (performance.now() - since < limit) return;
      const seconds = String(Math.ceil(limit / 1000));
      report(connected ? `was idle for ${seconds} s` : `did not accept a connection for ${seconds} s`);
    },
    Math.min(connectTimeout / 4, throughput.interval),
  );
  // The connection keeps the process alive, not the watch over it.
  timer.unref();
  return () => {
    clearInterval(timer);
  };
}

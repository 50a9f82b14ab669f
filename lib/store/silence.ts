import { IncomingMessage, type ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';

/** How long a server may be silent, in milliseconds. */
export interface SilenceOptions {
  /** While a connection is made, TLS included; default 30 s. */
  readonly connectTimeout?: number;
  /** When it is its turn to send or to take bytes; default 60 s. */
  readonly idleTimeout?: number;
}

/**
 * Watches the silence of an exchange and reports it, in words, when it has lasted too long: while the connection is being made,
 * and then whenever it is the server's turn to send or to take bytes. `stream` is the body that moves now, if any: the answer's, else
 * the request's. Returns what ends the watch.
 */
export function watchSilence(
  outgoing: ClientRequest,
  stream: () => Readable | undefined,
  { connectTimeout = 30_000, idleTimeout = 60_000 }: SilenceOptions,
  report: (silence: string) => void,
): () => void {
  let connected: Socket | undefined;
  let seen = 0;
  let since = performance.now();
  outgoing.once('socket', (socket) => {
    const connect = (): void => {
      connected = socket;
      since = performance.now();
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
      if (moved !== seen || (connected && isOurTurn())) {
        seen = moved;
        since = performance.now();
      }
      const limit = connected ? idleTimeout : connectTimeout;
      if (performance.now() - since < limit) return;
      const seconds = String(Math.ceil(limit / 1000));
      report(connected ? `was silent for ${seconds} s` : `did not accept a connection for ${seconds} s`);
    },
    Math.min(connectTimeout, idleTimeout) / 4,
  );
  // The connection keeps the process alive, not the watch over it.
  timer.unref();
  return () => {
    clearInterval(timer);
  };
}

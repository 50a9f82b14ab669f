import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { serverTlsOf, type PreSharedKey } from './certificates.ts';

/** The address to listen at, and the limits for clients. */
export interface ListenerOptions {
  readonly host: string;
  readonly port: number;
  /** Listen by TLS, and only for clients with this key. */
  readonly preSharedKey?: PreSharedKey;
  /** Listen by TLS with this certificate, for any client. */
  readonly certificate?: ServerCertificate;
  readonly limits?: ConnectionLimits;
}

/** The certificate of a server with its chain, and its private key, in PEM. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
}

/** Limits of connections, and of the time for a request in milliseconds. */
export interface ConnectionLimits {
  /** All connections; default 512. */
  readonly connections?: number;
  /** Connections from one address; default 128. */
  readonly connectionsPerAddress?: number;
  /** Connections of the total that only some addresses may take; default none. */
  readonly reserved?: { readonly connections: number; isFor(address: string): boolean };
  /** The time for the head of a request, default 15 s. The whole request may take twice that. */
  readonly headTime?: number;
}

/** A server that listens. `url` has its host and port. */
export interface Listener {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /**
   * Uses another certificate for new connections, if the server has one. Throws the error of TLS for an invalid one.
   */
  setCertificate(certificate: ServerCertificate): void;
  /** Closes all connections, also those with a response in transfer. */
  close(): Promise<void>;
}

/** The largest number of requests that a client may send before the first response. */
const pipelineLimit = 16;
/** The time for the handshake of TLS, in milliseconds. Node.js would allow two minutes. */
const handshakeTimeout = 10_000;
/** The interval of log messages about refused connections, in milliseconds. */
const logInterval = 60_000;

type Handle = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/**
 * Listens for HTTP requests and handles them, one at a time for each connection. Closes connections above the limits,
 * and connections with slow requests. If all are taken, an idle one of the address with the most makes room for another
 * address. Throws `busy`, `not-writable` or `unreachable` if it cannot listen.
 */
export async function openListener(options: ListenerOptions, handle: Handle, context: Context): Promise<Listener> {
  const { host, port, preSharedKey, certificate, limits = {} } = options;
  const { headTime = 15_000 } = limits;
  const settings: ServerOptions = {
    headersTimeout: headTime,
    requestTimeout: 2 * headTime,
    connectionsCheckingInterval: headTime / 4,
    // Detects clients that have disconnected.
    keepAlive: true,
    keepAliveInitialDelay: 30_000,
  };
  const busy = new Set<string>();
  const inTurn = takeTurns(handle, busy);
  const tls = preSharedKey ? serverTlsOf(preSharedKey) : certificate;
  const secure = tls && createTlsServer({ ...settings, handshakeTimeout, ...tls }, inTurn);
  const server = secure ?? createServer(settings, inTurn);
  limitConnections(server, limits, busy, context);
  await listen(server, host, port);
  const address = server.address() as AddressInfo;
  const url = `${tls ? 'https' : 'http'}://${authorityOf(address.address, address.port)}`;
  const close = (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    return closed;
  };
  const setCertificate = (next: ServerCertificate): void => {
    if (certificate) secure?.setSecureContext(next);
  };
  return { url, host: address.address, port: address.port, setCertificate, close };
}

/**
 * Delays each request of a connection until the previous response has ended. Otherwise all its responses would be in
 * memory. `busy`: the clients with a request.
 */
function takeTurns(handle: Handle, busy: Set<string>): (request: IncomingMessage, response: ServerResponse) => void {
  const queues = new WeakMap<Socket, { readonly client: string; last: Promise<void>; length: number }>();
  return (request, response) => {
    const { socket } = request;
    const queue = queues.get(socket) ?? { client: clientOf(socket), last: Promise.resolve(), length: 0 };
    if (!queues.has(socket)) socket.once('close', () => busy.delete(queue.client));
    queues.set(socket, queue);
    if (queue.length >= pipelineLimit) return void socket.destroy();
    queue.length += 1;
    busy.add(queue.client);
    queue.last = queue.last
      .then(() => (socket.destroyed ? undefined : handle(request, response)))
      .catch(() => void socket.destroy())
      .then(() => {
        queue.length -= 1;
        if (queue.length === 0) busy.delete(queue.client);
      });
  };
}

/** Names the client of a connection. That of TLS has the same name as the one below it. */
function clientOf({ remoteAddress = '', remotePort = 0 }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function limitConnections(
  server: Server,
  { connections = 512, connectionsPerAddress = 128, reserved }: ConnectionLimits,
  busy: ReadonlySet<string>,
  context: Context,
): void {
  const open = new Map<string, Set<Socket>>();
  let all = 0;
  let logged = -Infinity;
  /**
   * Closes an idle connection of the address with the most, if a connection from another address is to take its place.
   */
  const makeRoom = (own: number, isReserved: boolean): boolean => {
    for (const [address, sockets] of [...open].toSorted(([, a], [, b]) => b.size - a.size)) {
      const isOther = isReserved && reserved?.isFor(address) === false;
      if (sockets.size <= own + 1 && !isOther) continue;
      if (!isReserved && reserved?.isFor(address)) continue;
      const idle = [...sockets].find((socket) => !socket.destroyed && !busy.has(clientOf(socket)));
      if (idle) return Boolean(idle.destroy());
    }
    return false;
  };
  server.prependListener('connection', (socket: Socket) => {
    const address = plainAddress(socket);
    const own = open.get(address) ?? new Set();
    const isReserved = reserved?.isFor(address) ?? false;
    const isFull = all >= connections - (isReserved ? 0 : (reserved?.connections ?? 0));
    if (own.size >= connectionsPerAddress || (isFull && !makeRoom(own.size, isReserved))) {
      socket.destroy();
      if (performance.now() - logged < logInterval) return;
      logged = performance.now();
      const which = isFull ? `${all} are open` : `${own.size} of that address are open`;
      context.log('warn', `serve: a connection from ${address} was refused: ${which}`);
      return;
    }
    all += 1;
    open.set(address, own.add(socket));
    socket.once('close', () => {
      all -= 1;
      own.delete(socket);
      if (own.size === 0) open.delete(address);
    });
  });
}

/** Returns the address of a client. Sockets for both families give IPv4 addresses a prefix. */
export function plainAddress({ remoteAddress = '' }: Pick<Socket, 'remoteAddress'>): string {
  return remoteAddress.replace(/^::ffff:(?=\d+\.)/, '');
}

/** Joins an address and a port. An IPv6 address is in brackets. */
function authorityOf(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const code = cause.code === 'EADDRINUSE' ? 'busy' : cause.code === 'EACCES' ? 'not-writable' : 'unreachable';
      const hint = code === 'busy' ? 'Choose another port, or port 0 for any free port.' : undefined;
      const message = `cannot listen at ${authorityOf(host, port)}: ${cause.message}`;
      reject(new PluginError(code, message, { hint, cause }));
    });
    server.listen(port, host, resolve);
  });
}

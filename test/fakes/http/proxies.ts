import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';

/** A proxy in this process, and the requested targets (`host:port`). */
export interface TestProxy {
  readonly host: string;
  readonly targets: readonly string[];
  /** The Proxy-Authorization header of each connection. */
  readonly logins: readonly (string | undefined)[];
  stop(): Promise<void>;
}

/** Starts an HTTP proxy that tunnels (CONNECT) to the host that `resolve` returns for a target. */
export async function startTunnelProxy(resolve: (target: string) => string = (target) => target): Promise<TestProxy> {
  const targets: string[] = [];
  const logins: (string | undefined)[] = [];
  const server = http.createServer();
  server.on('connect', (request, socket: Socket, head) => {
    targets.push(request.url ?? '');
    logins.push(request.headers['proxy-authorization']);
    join(socket, resolve(request.url ?? ''), () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      return head;
    });
  });
  return await started(server, targets, logins);
}

/**
 * Starts a SOCKS 5 proxy without authentication (RFC 1928) that connects to the host that `resolve` returns for a
 * target.
 */
export async function startSocksProxy(resolve: (target: string) => string = (target) => target): Promise<TestProxy> {
  const targets: string[] = [];
  const server = net.createServer((socket) => {
    socket.once('data', () => {
      socket.write(Buffer.from([5, 0]));
      socket.once('data', (request: Buffer) => {
        const named = request[3] === 3;
        const length = request[4] ?? 0;
        const host = named ? request.subarray(5, 5 + length).toString() : [...request.subarray(4, 8)].join('.');
        const target = `${host}:${request.readUInt16BE(named ? 5 + length : 8)}`;
        targets.push(target);
        join(socket, resolve(target), () => {
          socket.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
          return Buffer.alloc(0);
        });
      });
    });
  });
  return await started(server, targets, []);
}

function join(client: Socket, target: string, greet: () => Buffer): void {
  const { hostname, port } = new URL(`tcp://${target}`);
  const upstream = net.connect(Number(port), hostname, () => {
    upstream.write(greet());
    upstream.pipe(client).pipe(upstream);
  });
  for (const socket of [client, upstream]) {
    socket
      .on('error', () => undefined)
      .once('close', () => {
        client.destroy();
        upstream.destroy();
      });
  }
}

async function started(
  server: net.Server,
  targets: readonly string[],
  logins: readonly (string | undefined)[],
): Promise<TestProxy> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    targets,
    logins,
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

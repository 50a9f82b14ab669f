import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * Starts a proxy in front of a registry, which calls a function before each PUT and DELETE, and waits for it. The proxy
 * answers with the returned status itself, and forwards the request if there is none. Calls `afterChange` when the
 * registry answered.
 */
export async function startChangeProxy(
  host: string,
  beforeChange: (method: string, path: string) => number | void | Promise<void>,
  afterChange: (method: string, path: string) => void = () => undefined,
): Promise<AsyncDisposable & { host: string; stop: () => Promise<void> }> {
  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const { method = '', url = '', headers } = incoming;
    const status = method === 'DELETE' || method === 'PUT' ? await beforeChange(method, url) : undefined;
    if (typeof status === 'number') {
      incoming.resume();
      outgoing.writeHead(status).end();
      return;
    }
    const forwarded = request(`http://${host}${url}`, { method, headers }, (reply) => {
      if (method === 'DELETE' || method === 'PUT') afterChange(method, url);
      outgoing.writeHead(reply.statusCode ?? 500, reply.headers);
      reply.pipe(outgoing);
    });
    forwarded.on('error', () => outgoing.destroy());
    incoming.pipe(forwarded);
  };
  const server = createServer((incoming, outgoing) => {
    answer(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  };
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, stop, [Symbol.asyncDispose]: stop };
}

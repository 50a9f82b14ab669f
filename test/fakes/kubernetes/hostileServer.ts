import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Starts a server in place of an API server, whose owner chose the names of its nodes and pods. */
export async function startHostileServer(names: readonly string[]): Promise<AsyncDisposable & { url: string }> {
  const resources = ['Node', 'Pod'].map((kind) => {
    return { name: `${kind.toLowerCase()}s`, kind, namespaced: kind === 'Pod', verbs: ['get', 'list'] };
  });
  const answer = (path: string): object | undefined => {
    const items = names.map((name) => ({
      metadata: { name, namespace: '.ns' },
      spec: { containers: [{ name: '..' }] },
      status: { images: [{ names: ['a'], sizeBytes: 1 }] },
    }));
    if (path === '/api/v1') return { kind: 'APIResourceList', groupVersion: 'v1', resources };
    if (/\/(nodes|pods)$/.test(path)) return { kind: 'List', apiVersion: 'v1', metadata: {}, items };
    return path.endsWith('/log') ? {} : undefined;
  };
  const server = createServer(({ url = '' }, response) => {
    const body = answer(url.replace(/\?.*/s, ''));
    response.writeHead(body ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body ?? { kind: 'Status', status: 'Failure', code: 404, reason: 'NotFound' }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

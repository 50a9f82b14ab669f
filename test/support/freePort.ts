import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

/**
 * Returns a free port of the loopback interface, 20000 to 29999, which no other test gets until this process ends. The
 * kernel gives no port of this range to a connection. So a server finds its port free each time it starts.
 */
export async function findFreePort(): Promise<number> {
  for (;;) {
    const port = randomInt(20_000, 30_000);
    if (!(await reserve(port))) continue;
    const server = await listen({ port, host: '127.0.0.1' });
    if (!server) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** Returns whether no other process has the port. An abstract socket of Linux exists as long as its process. */
async function reserve(port: number): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  return (await listen({ path: `\0oc-disconnected-test-port-${port}` }))?.unref() !== undefined;
}

async function listen(place: Parameters<Server['listen']>[0]): Promise<Server | undefined> {
  const server = createServer();
  try {
    await once(server.listen(place), 'listening');
    return server;
  } catch {
    return undefined;
  }
}

import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { serveBundle } from '../../../lib/bundle/serve.ts';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { makeContext } from '../context.ts';

/** The token of the servers of `serve`. */
export const serverToken = '0123456789abcdef0123';

/** Servers of bundles and of other files on this machine, and the connections to them. */
export class BundleServers implements AsyncDisposable {
  readonly connections = new Connections({ certificates: new Certificates({ insecure: false, folders: [] }) });
  readonly #cleanups: (() => unknown)[] = [];

  /** Does something when these are disposed, before everything that was added earlier. */
  defer(clean: () => unknown): void {
    this.#cleanups.unshift(clean);
  }

  /** Starts the server of the `serve` command, which requires the token, and returns its URL. */
  async serve(path: string): Promise<URL> {
    const context = makeContext();
    const bundle = await openBundle(path, context);
    this.defer(() => bundle[Symbol.asyncDispose]());
    const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0, token: serverToken }, context);
    this.defer(() => server.close());
    return new URL(server.url);
  }

  /** Starts another server, and returns the URL of its file. */
  async listen(listener: RequestListener): Promise<URL> {
    const server = createServer(listener).listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.defer(async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/bundle.tar`);
  }

  /**
   * Starts a server of bytes. It supports ranges, and ends each response after `most` bytes, or in the middle until
   * `gate` opens. `starts` are the positions from which it was asked for bytes.
   */
  async serveBadly(bytes: Buffer, most: number, gate?: Promise<unknown>): Promise<{ url: URL; starts: number[] }> {
    const starts: number[] = [];
    const url = await this.listen((request, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
      response.writeHead(start > 0 ? 206 : 200, {
        'Content-Length': bytes.length - start,
        ...(start > 0 && { 'Content-Range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` }),
      });
      if (request.method === 'HEAD') return response.end();
      starts.push(start);
      const end = Math.min(start + most, bytes.length);
      response.write(bytes.subarray(start, end), () => {
        if (gate) void gate.then(() => response.end(bytes.subarray(end)));
        else response.destroy();
      });
      return undefined;
    });
    return { url, starts };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const clean of this.#cleanups) await clean();
    this.connections.close();
  }
}

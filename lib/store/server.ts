import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Context } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { childrenOf, parseManifest } from '../oci/descriptor.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { isRepository, isTag } from '../oci/reference.ts';
import { serverTlsOf, type PreSharedKey } from './preSharedKey.ts';
import { beginContent, Refusal, sendChunks, sendJson } from './serverAnswer.ts';
import { hasToken, readPage, type Page } from './serverRequest.ts';
import { readContent, Verifier, type ContentSource, type LocalContent } from './store.ts';

/** A source that knows the size in bytes of content of which only the digest is known. */
export interface SizedContent {
  sizeOf(digest: Digest): Promise<number | undefined>;
}

/** Where to serve, and what to list. */
export interface ServeOptions {
  /** The address to listen at; 127.0.0.1 where it is not given, so that nobody else gets in. */
  readonly host?: string;
  /** 0 or nothing for any free port. */
  readonly port?: number;
  /** The names for `/v2/_catalog`; without it the catalog is empty. */
  readonly repositories?: () => readonly string[] | Promise<readonly string[]>;
  /** The bearer token that every request must have; without one nobody needs any. */
  readonly token?: string | undefined;
  /** Serves by TLS, and only to clients that have this key; plain HTTP without it. */
  readonly preSharedKey?: PreSharedKey;
  /** Files to serve besides, by their paths: `/bundle.tar`. */
  readonly files?: ReadonlyMap<string, ServedFile>;
  /** Leaves it to the clients to compare the digests of blobs, for those that do so anyway. */
  readonly unverified?: boolean;
  /** Is told of the bytes of blobs as they are sent, and how many they are. */
  readonly onSent?: (digest: Digest, bytes: number) => void;
  /** Is told of every request when its answer has ended. */
  readonly onAnswer?: (answer: ServedAnswer) => void;
}

/** A file that is served as it is, in one piece or in ranges. */
export interface ServedFile {
  /** In bytes. */
  readonly size: number;
  /** Its bytes from `start` on, unverified, as LocalContent gives them. */
  chunks(start: number, size: number): AsyncIterable<Buffer>;
  /** Whether one more may have it now; whoever may not is asked to come back (503). */
  readonly isFree?: () => boolean;
}

/** A request and what became of it. */
export interface ServedAnswer {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly status: number;
  /** What the client calls itself. */
  readonly client: string;
}

/** A server at work. */
export interface ContentServer {
  /** `http://127.0.0.1:41234`; https with a pre-shared key. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** Stops at once, in the middle of answers too. */
  close(): Promise<void>;
}

type Served = ContentSource & Partial<LocalContent & SizedContent>;
type Find = (repository: string) => Served | undefined | Promise<Served | undefined>;

/**
 * Serves content for reading as a registry does (OCI distribution-spec, version 2): manifests, blobs with ranges, tags and
 * catalog. `find` says which repositories there are. Blobs of a source without `sizeOf` are served once a manifest that
 * names them was asked for, as every client does. Ends with the context’s signal. Throws `busy` when the port is
 * taken, `not-writable` when it may not be used.
 */
export async function serveContent(find: Find, options: ServeOptions, context: Context): Promise<ContentServer> {
  const { host = '127.0.0.1', port = 0 } = options;
  const handler = new Handler(find, options, context);
  const { preSharedKey } = options;
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    void handler.handle(request, response);
  };
  const server = preSharedKey ? createTlsServer(serverTlsOf(preSharedKey), onRequest) : createServer(onRequest);
  await listen(server, host, port);
  const close = (): Promise<void> => {
    context.signal.removeEventListener('abort', onAbort);
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    return closed;
  };
  const onAbort = (): void => void close();
  context.signal.addEventListener('abort', onAbort, { once: true });
  const address = server.address() as AddressInfo;
  const authority = `${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${String(address.port)}`;
  return { url: `${preSharedKey ? 'https' : 'http'}://${authority}`, host: address.address, port: address.port, close };
}

class Handler {
  readonly #find: Find;
  readonly #options: ServeOptions;
  readonly #context: Context;
  /** What manifests said of blobs, for sources that cannot tell sizes themselves. */
  readonly #sizes = new Map<Digest, number>();

  constructor(find: Find, options: ServeOptions, context: Context) {
    this.#find = find;
    this.#options = options;
    this.#context = context;
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const line = `${String(request.method)} ${String(request.url)}`;
    response.once('close', () => {
      const end = response.writableFinished ? '' : ', broken off';
      this.#context.log('debug', `serve: ${line} → ${String(response.statusCode)}${end}`);
      const { method = '', url: path = '', headers } = request;
      this.#options.onAnswer?.({ method, path, status: response.statusCode, client: headers['user-agent'] ?? '' });
    });
    response.setHeader('Docker-Distribution-Api-Version', 'registry/2.0');
    response.setHeader('X-Content-Type-Options', 'nosniff');
    try {
      await this.#route(request, response);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(500, 'UNKNOWN', messageOf(error));
      if (refusal !== error) this.#context.log('warn', `serve: ${line}: ${messageOf(error)}`);
      // Once the headers are out, breaking off is the only way to say that the bytes are not right.
      if (response.headersSent) response.destroy();
      else sendJson(response, { errors: [{ code: refusal.code, message: refusal.message }] }, refusal.status);
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      throw new Refusal(405, 'UNSUPPORTED', 'this registry is for reading only');
    }
    const { token, files, repositories = () => [] } = this.#options;
    if (token !== undefined && !hasToken(request.headers.authorization, token)) {
      response.setHeader('WWW-Authenticate', 'Bearer');
      throw new Refusal(401, 'UNAUTHORIZED', 'the token of this server is needed');
    }
    const [location = '', query = ''] = (request.url ?? '').split('?');
    const path = decode(location);
    const file = files?.get(path);
    const [, name = '', kind, rest = ''] = /^\/v2\/(.+)\/(manifests|blobs|tags)\/([^/]+)$/.exec(path) ?? [];
    if (file) {
      if (request.method === 'GET' && file.isFree?.() === false) {
        response.setHeader('Retry-After', '5');
        throw new Refusal(503, 'TOOMANYREQUESTS', 'it is being sent to as many as it may be');
      }
      const { start, end } = beginContent(request, response, { size: file.size, type: 'application/x-tar' });
      if (request.method === 'HEAD') response.end();
      else await sendChunks(file.chunks(start, end - start), end - start, response);
    } else if (path === '/v2/' || path === '/v2') {
      sendJson(response, {});
    } else if (path === '/v2/_catalog') {
      sendPage(response, path, readPage(await repositories(), query), (repositories) => ({ repositories }));
    } else {
      const source = isRepository(name) ? await this.#find(name) : undefined;
      if (!source) throw new Refusal(404, 'NAME_UNKNOWN', 'there is no such repository here');
      if (kind === 'manifests') return this.#sendManifest(source, rest, request, response);
      if (kind === 'blobs') return this.#sendBlob(source, rest, request, response);
      if (rest !== 'list') throw new Refusal(404, 'UNSUPPORTED', 'there is nothing of that kind here');
      sendPage(response, path, readPage(await source.tags(), query), (tags) => ({ name, tags }));
    }
  }

  async #sendManifest(
    source: ContentSource,
    reference: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const descriptor =
      isTag(reference) || isDigest(reference) ? await notFoundAsNothing(source.resolve(reference)) : undefined;
    if (!descriptor) throw new Refusal(404, 'MANIFEST_UNKNOWN', 'there is no such manifest here');
    const bytes = await readContent(source, descriptor);
    for (const { digest, size } of childrenOf(parseManifest(bytes, descriptor.digest))) this.#sizes.set(digest, size);
    response.writeHead(200, {
      'Content-Type': descriptor.mediaType,
      'Content-Length': bytes.length,
      'Docker-Content-Digest': descriptor.digest,
      ETag: `"${descriptor.digest}"`,
    });
    response.end(request.method === 'HEAD' ? undefined : bytes);
  }

  async #sendBlob(source: Served, digest: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const size = isDigest(digest) ? await (source.sizeOf?.(digest) ?? this.#sizes.get(digest)) : undefined;
    if (!isDigest(digest) || size === undefined) {
      throw new Refusal(404, 'BLOB_UNKNOWN', 'there is no such blob here');
    }
    const blob = { mediaType: 'application/octet-stream', digest, size };
    if (!(await source.exists(blob))) throw new Refusal(404, 'BLOB_UNKNOWN', 'there is no such blob here');
    const { start, end } = beginContent(request, response, { size, type: blob.mediaType, digest });
    if (request.method === 'HEAD') return void response.end();
    const chunks = source.chunks?.(blob, start, end) ?? (await source.fetch(blob, start));
    const { unverified = false, onSent } = this.#options;
    const verifier = unverified || end - start < size ? undefined : new Verifier(blob, source.name);
    await sendChunks(chunks, end - start, response, (part, left) => {
      verifier?.update(part);
      if (left === 0) verifier?.finish();
      onSent?.(digest, part.length);
    });
  }
}

async function notFoundAsNothing<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  }
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return '';
  }
}

function sendPage(
  response: ServerResponse,
  path: string,
  { items, next }: Page,
  wrap: (items: readonly string[]) => object,
): void {
  if (next !== undefined) response.setHeader('Link', `<${path}?${next}>; rel="next"`);
  sendJson(response, wrap(items));
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const code = cause.code === 'EADDRINUSE' ? 'busy' : cause.code === 'EACCES' ? 'not-writable' : 'unreachable';
      const hint = code === 'busy' ? 'Choose another port, or port 0 for any that is free.' : undefined;
      const message = `cannot listen at ${host}:${String(port)}: ${cause.message}`;
      reject(new PluginError(code, message, { hint, cause }));
    });
    server.listen(port, host, resolve);
  });
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from '../context.ts';
import { isPluginError, messageOf } from '../errors.ts';
import { childrenOf, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { isRepository, isTag } from '../oci/reference.ts';
import { ContentSender, type SendLimits } from './contentSender.ts';
import { openListener, type ConnectionLimits, type Listener } from '../http/listener.ts';
import type { PreSharedKey } from '../http/preSharedKey.ts';
import { beginContent, RequestRefusal, sendJson } from './serverResponse.ts';
import { hasToken, isOwnHost, readPage, type Page } from './serverRequest.ts';
import { readContent, Verifier, type ContentSource, type LocalContent } from '../store/store.ts';

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
  /** Names that clients may know this server by, besides addresses and `localhost`; requests with another Host are refused (421). */
  readonly names?: readonly string[];
  readonly limits?: ConnectionLimits & SendLimits;
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
  readonly onResponse?: (response: ServedResponse) => void;
}

/** A file that is served as it is, in one piece or in ranges. */
export interface ServedFile {
  /** In bytes. */
  readonly size: number;
  /** Its bytes from `start` on, unverified, as LocalContent gives them. */
  chunks(start: number, size: number): AsyncIterable<Buffer>;
  /** To how many clients it is sent at a time; others are asked to come back (503). */
  readonly maxClients?: number;
}

/** A request and what became of it. */
export interface ServedResponse {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly status: number;
  /** What the client calls itself. */
  readonly client: string;
}

/** A server at work. Its URL is `http://127.0.0.1:41234`, with https if it has a pre-shared key. */
export type ContentServer = Listener;

type Served = ContentSource & Partial<LocalContent & SizedContent>;
type Find = (repository: string) => Served | undefined | Promise<Served | undefined>;

/**
 * Serves content for reading as a registry does (OCI distribution-spec, version 2): manifests, blobs with ranges, tags and
 * catalog. `find` says which repositories there are. Blobs of a source without `sizeOf` are served once a manifest that
 * names them was asked for, as every client does. Ends with the context’s signal. Throws `busy` when the port is
 * taken, `not-writable` when it may not be used.
 */
export async function serveContent(find: Find, options: ServeOptions, context: Context): Promise<ContentServer> {
  const { host = '127.0.0.1', port = 0, preSharedKey, limits } = options;
  const handler = new Handler(find, { ...options, host }, context);
  const listener = await openListener(
    { host, port, preSharedKey, limits },
    (...exchange) => handler.handle(...exchange),
    context,
  );
  const close = (): Promise<void> => {
    context.signal.removeEventListener('abort', onAbort);
    return listener.close();
  };
  const onAbort = (): void => void close();
  context.signal.addEventListener('abort', onAbort, { once: true });
  return { ...listener, close };
}

class Handler {
  readonly #find: Find;
  readonly #options: ServeOptions;
  readonly #context: Context;
  /** What manifests said of blobs, for sources that cannot tell sizes themselves. */
  readonly #sizes = new Map<Digest, number>();
  readonly #sender: ContentSender;
  /** To how many clients each file is being sent. */
  readonly #clients = new Map<ServedFile, number>();

  constructor(find: Find, options: ServeOptions, context: Context) {
    this.#find = find;
    this.#options = options;
    this.#context = context;
    this.#sender = new ContentSender(options.limits);
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const line = `${String(request.method)} ${String(request.url)}`;
    response.once('close', () => {
      const end = response.writableFinished ? '' : ', broken off';
      this.#context.log('debug', `serve: ${line} → ${response.statusCode}${end}`);
      const { method = '', url: path = '', headers } = request;
      this.#options.onResponse?.({ method, path, status: response.statusCode, client: headers['user-agent'] ?? '' });
    });
    response.setHeader('Docker-Distribution-Api-Version', 'registry/2.0');
    response.setHeader('X-Content-Type-Options', 'nosniff');
    // A body is nothing that this server reads: what follows on the connection might be a part of it.
    if (hasBody(request)) response.shouldKeepAlive = false;
    try {
      await this.#route(request, response);
      await this.#sender.finish(response);
    } catch (error) {
      const refusal =
        error instanceof RequestRefusal ? error : new RequestRefusal(500, 'UNKNOWN', 'the content cannot be read');
      if (refusal !== error) this.#context.log('warn', `serve: ${line}: ${messageOf(error)}`);
      // Once the headers are out, breaking off is the only way to say that the bytes are not right.
      if (response.headersSent) response.destroy();
      else sendJson(response, { errors: [{ code: refusal.code, message: refusal.message }] }, refusal.status);
      await this.#sender.finish(response).catch(() => undefined);
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      throw new RequestRefusal(405, 'UNSUPPORTED', 'this registry is for reading only');
    }
    const { token, files, repositories = () => [], names = [], host = '', preSharedKey } = this.#options;
    // Nobody who has the key is a browser.
    if (!preSharedKey && !isOwnHost(request.headers.host, [host, ...names])) {
      throw new RequestRefusal(
        421,
        'DENIED',
        `this server does not answer for the host ${String(request.headers.host)}`,
      );
    }
    if (token !== undefined && !hasToken(request.headers.authorization, token)) {
      response.setHeader('WWW-Authenticate', 'Bearer');
      throw new RequestRefusal(401, 'UNAUTHORIZED', 'the token of this server is needed');
    }
    const [location = '', query = ''] = (request.url ?? '').split('?');
    const path = decode(location);
    const file = files?.get(path);
    const [, name = '', kind, rest = ''] = /^\/v2\/(.+)\/(manifests|blobs|tags)\/([^/]+)$/.exec(path) ?? [];
    if (file) {
      await this.#sendFile(file, request, response);
    } else if (path === '/v2/' || path === '/v2') {
      sendJson(response, {});
    } else if (path === '/v2/_catalog') {
      sendPage(response, path, readPage(await repositories(), query), (repositories) => ({ repositories }));
    } else {
      const source = isRepository(name) ? await this.#find(name) : undefined;
      if (!source) throw new RequestRefusal(404, 'NAME_UNKNOWN', 'there is no such repository here');
      if (kind === 'manifests') return this.#sendManifest(source, rest, request, response);
      if (kind === 'blobs') return this.#sendBlob(source, rest, request, response);
      if (rest !== 'list') throw new RequestRefusal(404, 'UNSUPPORTED', 'there is nothing of that kind here');
      sendPage(response, path, readPage(await source.tags(), query), (tags) => ({ name, tags }));
    }
  }

  async #sendFile(file: ServedFile, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { size, maxClients = Infinity } = file;
    const clients = this.#clients.get(file) ?? 0;
    if (request.method === 'GET' && clients >= maxClients) {
      response.setHeader('Retry-After', '5');
      throw new RequestRefusal(503, 'TOOMANYREQUESTS', 'it is being sent to as many as it may be');
    }
    const { start, end } = beginContent(request, response, { size, type: 'application/x-tar' });
    if (request.method === 'HEAD') return;
    this.#clients.set(file, clients + 1);
    try {
      await this.#sender.send((at, length) => file.chunks(start + at, length), end - start, response);
    } finally {
      const left = (this.#clients.get(file) ?? 1) - 1;
      if (left > 0) this.#clients.set(file, left);
      else this.#clients.delete(file);
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
    if (!descriptor) throw new RequestRefusal(404, 'MANIFEST_UNKNOWN', 'there is no such manifest here');
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
      throw new RequestRefusal(404, 'BLOB_UNKNOWN', 'there is no such blob here');
    }
    const blob = { mediaType: 'application/octet-stream', digest, size };
    if (!(await source.exists(blob))) throw new RequestRefusal(404, 'BLOB_UNKNOWN', 'there is no such blob here');
    const { start, end } = beginContent(request, response, { size, type: blob.mediaType, digest });
    if (request.method === 'HEAD') return;
    const read = (at: number, length: number): AsyncIterable<Buffer> =>
      source.chunks?.(blob, start + at, start + at + length) ?? fetchPart(source, blob, start + at, length);
    const { unverified = false, onSent } = this.#options;
    const verifier = unverified || end - start < size ? undefined : new Verifier(blob, source.name);
    await this.#sender.send(read, end - start, response, (part, left) => {
      verifier?.update(part);
      if (left === 0) verifier?.finish();
      onSent?.(digest, part.length);
    });
  }
}

/** Reads a part of a blob of which a source can only tell where it begins. */
async function* fetchPart(source: ContentSource, blob: Descriptor, start: number, size: number) {
  let left = size;
  for await (const chunk of (await source.fetch(blob, start)) as AsyncIterable<Buffer>) {
    yield chunk.subarray(0, left);
    if ((left -= chunk.length) <= 0) return;
  }
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0;
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

/** Servers of content for registry clients, and of one page for a browser. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from '#context';
import { ignoring, messageOf, type PluginError } from '#errors';
import type { PreSharedKey } from './http/certificates.ts';
import {
  openListener,
  plainAddress,
  type ConnectionLimits,
  type Listener,
  type ServerCertificate,
} from './http/listener.ts';
import { childrenOf, parseManifest, type Descriptor } from './oci/descriptor.ts';
import { isDigest, type Digest, isRepository, isTag } from './oci/reference.ts';
import { ContentSender, type SendLimits } from './server/contentSender.ts';
import { hasToken, isOwnHost, readPage, type Page, parseRange } from './server/serverRequest.ts';
import { isDamage, readContent, Verifier, type ContentSource, type LocalContent } from './store/store.ts';

export { servePage } from './server/pageServer.ts';

/** A source that returns the size of content by its digest, in bytes. */
export interface SizedContent {
  sizeOf(digest: Digest): Promise<number | undefined>;
}

/** A source that learns which of its content is corrupt or cannot be read. Clients never get all of it. */
export interface WithdrawableContent {
  withdraw(digest: Digest, cause: PluginError): void;
}

/** Options of a server. */
export interface ServeOptions {
  /** The address to listen at; default 127.0.0.1, only for clients on this machine. */
  readonly host?: string;
  /** The port; 0 or undefined for any free port. */
  readonly port?: number;
  /**
   * Host names of this server, in addition to addresses and `localhost`. Requests for another Host are refused (421).
   */
  readonly names?: readonly string[];
  readonly limits?: ConnectionLimits & SendLimits;
  /** Repositories in `/v2/_catalog`; none by default. */
  readonly repositories?: () => readonly string[] | Promise<readonly string[]>;
  /** The bearer token that each request needs; no token by default. */
  readonly token?: string;
  /** Serve by TLS, only for clients with this key; undefined for plain HTTP. */
  readonly preSharedKey?: PreSharedKey;
  /** Serve by TLS with this certificate, to any client and under any host name. */
  readonly certificate?: ServerCertificate;
  /** The number of blobs to send at a time; by default no limit. */
  readonly streams?: StreamLimits;
  /** What a client learns whose repository `find` does not give. */
  readonly absence?: string;
  /** Other files to serve, by their paths: `/bundle.tar`. Looked up for each request. */
  readonly files?: Pick<ReadonlyMap<string, ServedFile>, 'get'>;
  /** Skip verification of blobs, for clients that verify digests themselves. */
  readonly unverified?: boolean;
  /** Receives the digest and the number of bytes of blobs as they are sent. */
  readonly onSent?: (digest: Digest, bytes: number) => void;
  /** Receives each request when its response has ended. */
  readonly onResponse?: (response: ServedResponse) => void;
}

/** A file that is served completely or in ranges. */
export interface ServedFile {
  /** The size in bytes. */
  readonly size: number;
  /** The media type; by default that of a tar. */
  readonly type?: string;
  /** Reads bytes from `start`, unverified, as LocalContent does. */
  chunks(start: number, size: number): AsyncIterable<Buffer>;
  /** The largest number of concurrent clients. Others are asked to retry (503). */
  readonly maxClients?: number;
}

/** A request to a server, with the status of its response. */
export interface ServedResponse {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  /** The User-Agent of the client. */
  readonly client: string;
  /** The address of the client. */
  readonly address: string;
}

/** A running server. Its URL is `http://127.0.0.1:41234`, with https if it has a pre-shared key. */
export type ContentServer = Listener;

type Served = ContentSource & Partial<LocalContent & SizedContent & WithdrawableContent>;
type Find = (repository: string, client: string) => Served | undefined | Promise<Served | undefined>;

/**
 * Serves content as a read-only registry (OCI distribution-spec, version 2): manifests, blobs with ranges, tags and
 * catalog. `find` returns the content of a repository for a client, by its User-Agent. Blobs of a source without
 * `sizeOf` are served only after a client has requested a manifest that names them, which all clients do. Stops if the
 * signal of the context is aborted. Throws `busy` if the port is in use, and `not-writable` if it is not allowed.
 */
export async function serveContent(find: Find, options: ServeOptions, context: Context): Promise<ContentServer> {
  const { host = '127.0.0.1', port = 0, preSharedKey, certificate, limits } = options;
  const handler = new Handler(find, { ...options, host }, context);
  const listener = await openListener(
    { host, port, preSharedKey, certificate, limits },
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
  /** Sizes of blobs from manifests, for sources without `sizeOf`. */
  readonly #sizes = new Map<Digest, number>();
  readonly #sender: ContentSender;
  readonly #clients = new Map<ServedFile, number>();
  readonly #streams: StreamQueue | undefined;

  constructor(find: Find, options: ServeOptions, context: Context) {
    this.#find = find;
    this.#options = options;
    this.#context = context;
    this.#sender = new ContentSender(options.limits);
    this.#streams = options.streams && new StreamQueue(options.streams);
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const line = `${String(request.method)} ${String(request.url)}`;
    const address = plainAddress(request.socket);
    response.once('close', () => {
      const end = response.writableFinished ? '' : ', broken off';
      this.#context.log('debug', `serve: ${line} → ${response.statusCode}${end}`);
      const { method = '', url: path = '', headers } = request;
      this.#options.onResponse?.({
        method,
        path,
        status: response.statusCode,
        client: headers['user-agent'] ?? '',
        address,
      });
    });
    response.setHeader('Docker-Distribution-Api-Version', 'registry/2.0');
    response.setHeader('X-Content-Type-Options', 'nosniff');
    // This server reads no request bodies, so the next bytes of the connection may be part of one.
    if (hasBody(request)) response.shouldKeepAlive = false;
    try {
      await this.#route(request, response);
      await this.#sender.finish(response);
    } catch (error) {
      const refusal =
        error instanceof RequestRefusal ? error : new RequestRefusal(500, 'UNKNOWN', 'the content cannot be read');
      if (refusal !== error) this.#context.log('warn', `serve: ${line}: ${messageOf(error)}`);
      // After the headers, only closing the connection shows that the content is corrupt.
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
    const { token, files, repositories = () => [], names = [], host = '', ...tls } = this.#options;
    // A client with the key is not a browser, and a browser compares the name in a certificate itself.
    if (!tls.preSharedKey && !tls.certificate && !isOwnHost(request.headers.host, [host, ...names])) {
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
    const [, name = '', kind, rest = ''] = /^\/v2\/(.+)\/(manifests|blobs|tags|referrers)\/([^/]+)$/.exec(path) ?? [];
    if (file) {
      await this.#sendFile(file, request, response);
    } else if (path === '/v2/' || path === '/v2') {
      sendJson(response, {});
    } else if (path === '/v2/_catalog') {
      sendPage(response, path, readPage(await repositories(), query), (repositories) => ({ repositories }));
    } else {
      const source = isRepository(name) ? await this.#find(name, request.headers['user-agent'] ?? '') : undefined;
      if (!source)
        throw new RequestRefusal(404, 'NAME_UNKNOWN', this.#options.absence ?? 'there is no such repository here');
      if (kind === 'manifests') return this.#sendManifest(source, rest, request, response);
      if (kind === 'blobs') return this.#sendBlob(source, rest, request, response);
      // After any code except NAME_UNKNOWN, clients look for referrers by their tag.
      if (kind === 'referrers' || rest !== 'list')
        throw new RequestRefusal(404, 'UNSUPPORTED', 'there is nothing of that kind here');
      sendPage(response, path, readPage(await source.tags(), query), (tags) => ({ name, tags }));
    }
  }

  async #sendFile(file: ServedFile, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { size, type = 'application/x-tar', maxClients = Infinity } = file;
    const clients = this.#clients.get(file) ?? 0;
    if (request.method === 'GET' && clients >= maxClients) {
      response.setHeader('Retry-After', '5');
      throw new RequestRefusal(503, 'TOOMANYREQUESTS', 'it is being sent to as many as it may be');
    }
    const { start, end } = beginContent(request, response, { size, type });
    if (request.method === 'HEAD') return;
    this.#clients.set(file, clients + 1);
    try {
      await this.#sender.send((at, length) => file.chunks(start + at, length), end - start, response);
    } finally {
      const remainingClients = (this.#clients.get(file) ?? 1) - 1;
      if (remainingClients > 0) this.#clients.set(file, remainingClients);
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
      isTag(reference) || isDigest(reference)
        ? await source.resolve(reference).catch(ignoring('not-found'))
        : undefined;
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
    using _turn = request.method === 'HEAD' ? undefined : await this.#awaitTurn(response);
    const { start, end } = beginContent(request, response, { size, type: blob.mediaType, digest });
    if (request.method === 'HEAD') return;
    const read = (at: number, length: number): AsyncIterable<Buffer> =>
      source.chunks?.(blob, start + at, start + at + length) ?? fetchPart(source, blob, start + at, length);
    const { unverified = false, onSent } = this.#options;
    const verifier = unverified || end - start < size ? undefined : new Verifier(blob, source.name);
    const sending = this.#sender.send(read, end - start, response, (part, remaining) => {
      verifier?.update(part);
      if (remaining === 0) verifier?.finish();
      onSent?.(digest, part.length);
    });
    await sending.catch((error: unknown) => {
      if (isDamage(error)) source.withdraw?.(digest, error);
      throw error;
    });
  }

  /** Waits until another blob may be sent. Throws a RequestRefusal (429) if that takes too long. */
  async #awaitTurn(response: ServerResponse): Promise<Disposable | undefined> {
    const turn = await this.#streams?.enter(response);
    if (turn || !this.#streams) return turn;
    response.setHeader('Retry-After', '5');
    throw new RequestRefusal(429, 'TOOMANYREQUESTS', 'too many blobs are being sent');
  }
}

/** Reads a part of a blob from a source that supports only a start offset. */
async function* fetchPart(source: ContentSource, blob: Descriptor, start: number, size: number) {
  let remaining = size;
  for await (const chunk of (await source.fetch(blob, start)) as AsyncIterable<Buffer>) {
    yield chunk.subarray(0, remaining);
    if ((remaining -= chunk.length) <= 0) return;
  }
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0;
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

/** An error response of a registry: status, code of the distribution-spec, and message. */
class RequestRefusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The content of a response: its size in bytes, its media type, and its digest if it has one. */
interface SentContent {
  readonly size: number;
  readonly type: string;
  readonly digest?: string;
}

/**
 * Writes the head of a response with content, or with the requested range of it, and returns the range. Throws a
 * RequestRefusal for a range outside of the content.
 */
function beginContent(
  request: IncomingMessage,
  response: ServerResponse,
  { size, type, digest }: SentContent,
): { start: number; end: number } {
  const range = parseRange(request.headers.range, size);
  if (range === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${size}`);
    throw new RequestRefusal(416, 'RANGE_INVALID', `it has ${size} bytes`);
  }
  const { start, end } = range ?? { start: 0, end: size };
  response.writeHead(range ? 206 : 200, {
    'Content-Type': type,
    'Content-Length': end - start,
    'Accept-Ranges': 'bytes',
    ...(digest !== undefined && { 'Docker-Content-Digest': digest, ETag: `"${digest}"` }),
    ...(range && { 'Content-Range': `bytes ${start}-${end - 1}/${size}` }),
  });
  return { start, end };
}

/** Sends a value as JSON. */
function sendJson(response: ServerResponse, value: object, status = 200): void {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length });
  response.end(response.req.method === 'HEAD' ? undefined : body);
}

/** Limits for content that is sent at a time. */
interface StreamLimits {
  /** The largest number of responses that are sent at a time. */
  readonly active: number;
  /** The largest number of responses that are sent to one address at a time; by default half of `active`. */
  readonly activePerAddress?: number;
  /** The largest number of responses that wait for their turn. */
  readonly waiting: number;
  /** The longest wait in milliseconds. */
  readonly patience: number;
}

/** Lets a few responses be sent at a time. Others wait in the order of their requests, up to a limit. */
class StreamQueue {
  readonly #limits: StreamLimits;
  /** The addresses of the responses that are sent. */
  readonly #active: string[] = [];
  readonly #waiting = new Map<() => void, string>();

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  /**
   * Waits for a turn, which ends when the result is disposed of. Undefined if too many wait already, after too long a
   * wait, or if the client has disconnected.
   */
  async enter(response: ServerResponse): Promise<Disposable | undefined> {
    const { waiting, patience } = this.#limits;
    const address = response.req.socket.remoteAddress ?? '';
    if (this.#mayBegin(address)) this.#active.push(address);
    else if (this.#waiting.size >= waiting || !(await this.#wait(address, response, patience))) return undefined;
    return {
      [Symbol.dispose]: () => {
        this.#active.splice(this.#active.indexOf(address), 1);
        for (const [take, next] of this.#waiting) if (this.#mayBegin(next)) take();
      },
    };
  }

  #mayBegin(address: string): boolean {
    const { active, activePerAddress = Math.ceil(active / 2) } = this.#limits;
    const own = this.#active.filter((each) => each === address);
    return this.#active.length < active && own.length < activePerAddress;
  }

  /** Returns whether the turn of this response came in time. */
  #wait(address: string, response: ServerResponse, patience: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isTurn: boolean): void => {
        this.#waiting.delete(take);
        clearTimeout(timer);
        response.off('close', leave);
        resolve(isTurn);
      };
      const take = (): void => {
        this.#active.push(address);
        end(true);
      };
      const leave = (): void => end(false);
      const timer = setTimeout(leave, patience);
      this.#waiting.set(take, address);
      response.once('close', leave);
      if (response.destroyed) leave();
    });
  }
}

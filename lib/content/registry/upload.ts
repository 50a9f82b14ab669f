import { Readable } from 'node:stream';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { TransientError, type RetryBudget } from '../http/retry.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Reference } from '../oci/reference.ts';
import { verifyStream } from '../store/store.ts';
import type { RegistryRequest } from './authenticatedClient.ts';
import { errorCodesOf, explainRegistryRefusal, type Reply } from './refusals.ts';
import type { Transport } from './transport.ts';

/** How blobs are uploaded: at once or in chunks. */
export interface UploadOptions {
  /** The number of bytes in one PATCH, if a registry refuses whole blobs; default 64 MiB. */
  readonly chunkSize?: number;
  /** Always send chunks. */
  readonly chunked?: boolean;
  /** Which registries take a blob with the request that begins its upload. Without it, none is asked to. */
  readonly singlePosts?: Map<string, boolean>;
}

/**
 * The size up to which a blob is sent with the request that begins its upload, in bytes: Go reads as much of a refused
 * body.
 */
export const smallUpload = 64 * 1024;

const defaultChunkSize = 64 * 1024 * 1024;
const minimumChunkSize = 1024 * 1024;

/**
 * Uploads one blob: in one PUT, or in PATCH chunks if the registry refuses that or the connection is lost
 * (distribution-spec, “Pushing blobs”). Chunks resume. A PUT restarts at the first byte.
 */
export class BlobUpload {
  readonly #transport: Transport;
  readonly #context: Context;
  readonly #subject: Omit<RegistryRequest, 'method' | 'target'>;
  readonly #descriptor: Descriptor;
  readonly #open: () => Promise<Readable>;
  readonly #singlePosts: Map<string, boolean> | undefined;
  #chunked: boolean;
  #chunkSize: number;
  /** The URL of the next request of this upload. It changes with each response. */
  #location: URL | undefined;
  /** Whether the registry has just begun the upload, and has none of its bytes. */
  #isBegun = false;
  /** The number of bytes that the registry has. */
  #offset = 0;
  /** The largest offset so far. Repeated bytes are no progress. */
  #furthest = 0;
  /** Whether the registry did not know an upload that it had begun. */
  #wasLost = false;
  /** The error of the source. Retrying the request does not fix it. */
  #broken: { error: unknown } | undefined;

  constructor(
    transport: Transport,
    { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
    context: Context,
    descriptor: Descriptor,
    open: () => Promise<Readable>,
    { chunked = false, chunkSize = defaultChunkSize, singlePosts }: UploadOptions,
  ) {
    this.#transport = transport;
    this.#context = context;
    this.#subject = { registry, repository, what: `blob ${descriptor.digest}`, actions: 'pull,push' };
    this.#descriptor = descriptor;
    this.#open = open;
    this.#singlePosts = singlePosts;
    this.#chunked = chunked;
    this.#chunkSize = chunkSize;
  }

  /**
   * Runs the upload. Throws the errors of `open` and its stream, `digest-mismatch`, `size-mismatch`, and errors of the
   * registry.
   */
  async run(): Promise<void> {
    try {
      await this.#transport.persist(this.#subject.registry, async (budget) => {
        try {
          if (await this.#sendAtOnce()) return;
          if (this.#chunked || !(await this.#sendWhole())) await this.#sendChunks(budget);
        } catch (error) {
          if (!this.#broken) throw error;
        }
      });
      if (this.#broken) throw this.#broken.error;
    } catch (error) {
      await this.#cancel();
      throw error;
    }
  }

  /**
   * Sends a small blob with the request that begins the upload (distribution-spec, “Single POST”), as Quay and zot
   * accept it. Returns whether the registry confirms its digest. The first blob finds out for all.
   */
  async #sendAtOnce(): Promise<boolean> {
    const { digest, size } = this.#descriptor;
    const { registry } = this.#subject;
    if (!this.#singlePosts || this.#singlePosts.get(registry) === false) return false;
    if (this.#chunked || size > smallUpload) return false;
    // Until the answer is known, other blobs do not ask.
    if (!this.#singlePosts.has(registry)) this.#singlePosts.set(registry, false);
    const headers = { 'Content-Type': 'application/octet-stream', 'Content-Length': String(size) };
    const target = `blobs/uploads/?digest=${encodeURIComponent(digest)}`;
    try {
      const reply = await this.#send('POST', target, { headers, body: () => this.#read() });
      const isStored = reply.status === 201 && reply.headers['docker-content-digest'] === digest;
      this.#singlePosts.set(registry, isStored);
      if (reply.status === 202) {
        this.#location = this.#locationIn(reply);
        this.#isBegun = this.#location !== undefined && [undefined, '0-0'].includes(reply.headers.range);
      }
      return isStored;
    } catch (error) {
      if (this.#broken || !isPluginError(error) || error.code === 'interrupted') throw error;
      this.#singlePosts.set(registry, false);
      this.#context.log('debug', `${registry} does not accept ${this.#subject.what} at once: ${error.message}`);
      return false;
    }
  }

  /** Sends the blob in one request. Returns false if the registry does not accept that. */
  async #sendWhole(): Promise<boolean> {
    if (!this.#isBegun) await this.#begin();
    this.#isBegun = false;
    const { size } = this.#descriptor;
    try {
      const reply = await this.#send('PUT', this.#finalLocation(), {
        headers: { 'Content-Type': 'application/octet-stream', 'Content-Length': String(size) },
        body: () => this.#read(),
        accept: [400, 404, 405, 411, 413, 416, 501],
      });
      if (reply.status < 300) return true;
      const codes = errorCodesOf(reply);
      const isLost = codes.includes('BLOB_UPLOAD_UNKNOWN') && !this.#wasLost;
      this.#wasLost ||= isLost;
      if (isLost || codes.some((code) => ['DIGEST_INVALID', 'SIZE_INVALID'].includes(code)))
        throw explainRegistryRefusal({ ...this.#subject, method: 'PUT' }, reply);
      this.#context.log(
        'debug',
        `${this.#subject.registry} does not accept ${this.#subject.what} in one request: sending chunks`,
      );
      this.#chunked = true;
      return false;
    } catch (error) {
      // A reset of the connection often hides a response such as 413.
      if (isPluginError(error, 'unreachable') && size > this.#chunkSize) this.#chunked = true;
      throw error;
    }
  }

  async #sendChunks(budget: RetryBudget): Promise<void> {
    await this.#resume();
    const bytes = await this.#read();
    try {
      const reader = bytes.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
      const rest = new Slices(reader);
      await rest.skip(this.#offset);
      while (this.#offset < this.#descriptor.size) {
        await this.#sendChunk(rest, Math.min(this.#chunkSize, this.#descriptor.size - this.#offset));
        budget.progress(Math.max(0, this.#offset - this.#furthest));
        this.#furthest = Math.max(this.#furthest, this.#offset);
      }
      // Reading to the end of the stream checks the digest.
      await rest.skip(1);
    } finally {
      bytes.destroy();
    }
    await this.#send('PUT', this.#finalLocation(), { body: Buffer.alloc(0) });
  }

  async #sendChunk(bytes: Slices, length: number): Promise<void> {
    let taken = false;
    const reply = await this.#send('PATCH', this.#target(), {
      headers: {
        'Content-Type': 'application/octet-stream',
        'Content-Length': String(length),
        'Content-Range': `${this.#offset}-${this.#offset + length - 1}`,
      },
      body: () => {
        // The bytes that were read from the source are lost, so the next attempt reads it from its start.
        if (taken) throw new TransientError('unreachable', `a chunk of ${this.#subject.what} must be sent again`, {});
        taken = true;
        return Promise.resolve(Readable.from(bytes.take(length), { objectMode: false }));
      },
      accept: [413, 416],
    });
    if (reply.status >= 400) {
      const refusal = explainRegistryRefusal({ ...this.#subject, method: 'PATCH' }, reply);
      if (reply.status === 413 && length <= minimumChunkSize) throw refusal;
      if (reply.status === 413) this.#chunkSize = Math.max(minimumChunkSize, Math.floor(length / 8));
      throw new TransientError(refusal.code, refusal.message, {});
    }
    this.#location = this.#locationIn(reply) ?? this.#location;
    this.#offset += length;
  }

  /** Requests the offset of the current upload. Starts an upload if there is none. */
  async #resume(): Promise<void> {
    if (this.#location) {
      const reply = await this.#send('GET', this.#location, { accept: [400, 404, 405, 416] });
      const [, unit, last] = /^(bytes=)?0-(\d+)$/.exec(reply.headers.range ?? '') ?? [];
      const end = Number(last ?? NaN);
      if (reply.status < 300 && end < this.#descriptor.size) {
        this.#location = this.#locationIn(reply) ?? this.#location;
        // Registries send “0-0” for an empty upload, and Quay, which names the unit, sends the offset of the next byte.
        this.#offset = unit || end === 0 ? end : end + 1;
        return;
      }
    }
    await this.#begin();
  }

  async #begin(): Promise<void> {
    await this.#cancel();
    const reply = await this.#send('POST', 'blobs/uploads/', { body: Buffer.alloc(0) });
    this.#location = this.#locationIn(reply);
    this.#offset = 0;
    this.#chunkSize = Math.max(this.#chunkSize, Number(reply.headers['oci-chunk-min-length'] ?? 0) || 0);
  }

  /** Cancels an upload, so that the registry can remove its data. */
  async #cancel(): Promise<void> {
    const location = this.#location;
    this.#location = undefined;
    if (location) await this.#send('DELETE', location).catch(() => undefined);
  }

  async #read(): Promise<Readable> {
    try {
      const stream = verifyStream(await this.#open(), this.#descriptor, this.#subject.what);
      return stream.once('error', (error) => {
        this.#broken ??= { error };
      });
    } catch (error) {
      this.#broken = { error };
      throw error;
    }
  }

  #target(): URL {
    if (this.#location) return this.#location;
    const { registry, repository } = this.#subject;
    throw new PluginError('server-error', `${registry}/${repository} began an upload without a Location header`);
  }

  #finalLocation(): URL {
    const url = new URL(this.#target());
    // The parameters of the registry may be signed, so they must not change.
    url.search = `${url.search === '' ? '?' : `${url.search}&`}digest=${encodeURIComponent(this.#descriptor.digest)}`;
    return url;
  }

  #locationIn(reply: Reply): URL | undefined {
    return this.#transport.addressIn(reply, reply.headers.location, this.#subject.registry, 'uploads');
  }

  #send(method: string, target: string | URL, request: Partial<RegistryRequest> = {}): Promise<Reply> {
    return this.#transport.sendOnce({ ...this.#subject, ...request, method, target });
  }
}

/** Splits a stream into parts of given lengths. */
class Slices {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterator<Buffer>) {
    this.#chunks = chunks;
  }

  /** Yields the next bytes; fewer at the end of the stream. */
  async *take(length: number): AsyncGenerator<Buffer> {
    for (let missing = length; missing > 0;) {
      if (this.#left.length === 0) {
        const next = await this.#chunks.next();
        if (next.done) return;
        this.#left = next.value;
      }
      const piece = this.#left.subarray(0, missing);
      this.#left = this.#left.subarray(piece.length);
      missing -= piece.length;
      if (piece.length > 0) yield piece;
    }
  }

  async skip(length: number): Promise<void> {
    for await (const piece of this.take(length)) void piece;
  }
}

import { Readable } from 'node:stream';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Reference } from '../oci/reference.ts';
import { TransientError, type RetryBudget } from '../http/retry.ts';
import { errorCodesOf, explainRegistryRefusal, type Reply } from './refusals.ts';
import { verifyStream } from '../store/store.ts';
import type { RegistryRequest } from './authenticatedClient.ts';
import type { Transport } from './transport.ts';

/** How blobs are uploaded. */
export interface UploadOptions {
  /** Bytes in one PATCH, where a registry does not take a blob whole; default 64 MiB. */
  readonly chunkSize?: number;
  /** Do not try to send blobs whole. */
  readonly chunked?: boolean;
}

const defaultChunkSize = 64 * 1024 * 1024;
const minimumChunkSize = 1024 * 1024;

/**
 * The upload of one blob: whole, in one PUT of a stream, or in PATCH chunks where the registry refuses that or the connection
 * does not hold (distribution-spec, “Pushing blobs”). Chunks go on where they stopped; a whole blob begins anew.
 */
export class BlobUpload {
  readonly #transport: Transport;
  readonly #context: Context;
  readonly #subject: Omit<RegistryRequest, 'method' | 'target'>;
  readonly #descriptor: Descriptor;
  readonly #open: () => Promise<Readable>;
  #chunked: boolean;
  #chunkSize: number;
  /** Where the registry wants the next request of this upload; it changes with each. */
  #location: URL | undefined;
  /** How many bytes the registry has. */
  #offset = 0;
  /** The most that it ever had: what has to be sent again is no progress. */
  #furthest = 0;
  /** What was wrong with the bytes to be sent: no other attempt at the registry mends that. */
  #broken: { error: unknown } | undefined;

  constructor(
    transport: Transport,
    { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
    context: Context,
    descriptor: Descriptor,
    open: () => Promise<Readable>,
    { chunked = false, chunkSize = defaultChunkSize }: UploadOptions,
  ) {
    this.#transport = transport;
    this.#context = context;
    this.#subject = { registry, repository, what: `blob ${descriptor.digest}`, actions: 'pull,push' };
    this.#descriptor = descriptor;
    this.#open = open;
    this.#chunked = chunked;
    this.#chunkSize = chunkSize;
  }

  /** Does all of it. Throws what `open` and its stream do, `digest-mismatch`, `size-mismatch`, and what the registry says. */
  async run(): Promise<void> {
    try {
      await this.#transport.persist(this.#subject.registry, async (budget) => {
        try {
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

  /** Sends the blob in one piece; false when the registry does not take it so. */
  async #sendWhole(): Promise<boolean> {
    await this.#begin();
    const { size } = this.#descriptor;
    try {
      const reply = await this.#send('PUT', this.#finalLocation(), {
        headers: { 'Content-Type': 'application/octet-stream', 'Content-Length': String(size) },
        body: () => this.#read(),
        accept: [400, 404, 405, 411, 413, 416, 501],
      });
      if (reply.status < 300) return true;
      const wrong = errorCodesOf(reply).some((code) => ['DIGEST_INVALID', 'SIZE_INVALID'].includes(code));
      if (wrong) throw explainRegistryRefusal({ ...this.#subject, method: 'PUT' }, reply);
      this.#context.log(
        'debug',
        `${this.#subject.registry} does not accept ${this.#subject.what} in one request: sending chunks`,
      );
      this.#chunked = true;
      return false;
    } catch (error) {
      // An answer such as 413 is often lost in the reset that follows it.
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
      // The verdict on the bytes comes at the end of the stream.
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
        // What has been read of the source is gone: the next attempt opens it again.
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
    this.#location = locationOf(reply) ?? this.#location;
    this.#offset += length;
  }

  /** Finds out how much the registry has of an upload that was begun; begins one where there is none. */
  async #resume(): Promise<void> {
    if (this.#location) {
      const reply = await this.#send('GET', this.#location, { accept: [400, 404, 405, 416] });
      const end = Number(/^(?:bytes=)?0-(\d+)$/.exec(reply.headers.range ?? '')?.[1] ?? NaN);
      if (reply.status < 300 && end < this.#descriptor.size) {
        this.#location = locationOf(reply) ?? this.#location;
        // “0-0” is what registries say of an upload that has nothing yet.
        this.#offset = end === 0 ? 0 : end + 1;
        return;
      }
    }
    await this.#begin();
  }

  async #begin(): Promise<void> {
    await this.#cancel();
    const reply = await this.#send('POST', 'blobs/uploads/', { body: Buffer.alloc(0) });
    this.#location = locationOf(reply);
    this.#offset = 0;
    this.#chunkSize = Math.max(this.#chunkSize, Number(reply.headers['oci-chunk-min-length'] ?? 0) || 0);
  }

  /** Lets go of an upload, so that the registry need not keep what it has of it. */
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
    // The registry's own parameters stay as they are, to the letter: they may be signed.
    url.search = `${url.search === '' ? '?' : `${url.search}&`}digest=${encodeURIComponent(this.#descriptor.digest)}`;
    return url;
  }

  #send(method: string, target: string | URL, request: Partial<RegistryRequest> = {}): Promise<Reply> {
    return this.#transport.sendOnce({ ...this.#subject, ...request, method, target });
  }
}

/** Where an upload goes on. A registry behind a proxy may not know that it is spoken to by https: its own name stays so. */
export function locationOf({ headers, url }: Reply): URL | undefined {
  const location = headers.location === undefined ? null : URL.parse(headers.location, url);
  if (location?.hostname === url.hostname && url.protocol === 'https:') location.protocol = 'https:';
  return location ?? undefined;
}

/** Cuts a stream of chunks into pieces of given lengths. */
class Slices {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterator<Buffer>) {
    this.#chunks = chunks;
  }

  /** The next bytes; fewer at the end of the stream. */
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

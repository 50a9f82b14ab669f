import type { Transform } from 'node:stream';
import { createGunzip, createZstdDecompress, crc32 } from 'node:zlib';
import { Parser, type ReadEntry } from 'tar';
import { checkInterrupted, takeTurn, type Context } from '#context';
import { isPluginError, messageOf, PluginError, type ErrorCode } from '#errors';
import type { Descriptor } from '../oci/descriptor.ts';
import { digestOf } from '../oci/reference.ts';
import type { Layer } from '../store/derivedImage.ts';
import type { ContentSource } from '../store/store.ts';
import { layOutTar, type TarEntry } from './tarLayout.ts';

/** The header of an entry of a layer. */
export type LayerEntry = Pick<ReadEntry, 'path' | 'size' | 'type' | 'linkpath'>;

/** Gets the content of one file of a layer, chunk by chunk. */
export interface EntryContent {
  write(chunk: Buffer): unknown;
  end(): unknown;
}

/** The limits for one layer, and the words for a layer that exceeds them. */
interface LayerLimits {
  /** The size of the layer, in bytes. */
  readonly packed: number;
  /** The number of bytes that may leave the decompression: headers and contents, also of skipped entries. */
  readonly unpacked: number;
  /** The number of headers; without a limit if undefined. */
  readonly headers?: number;
  /** The image of the layer: `a release payload`. */
  readonly of: string;
  /** The code of the error for a malformed layer. */
  readonly code: ErrorCode;
}

/** For how many milliseconds a layer is unpacked before other work gets a turn. */
const turnLength = 50;

/**
 * Reads a layer entry by entry, with any compression. `visit` returns the destination of a file's content, or undefined
 * to skip the entry. The digest of the layer is verified only when the promise resolves. Returns the number of unpacked
 * bytes. Throws `too-large`, the code of the limits, the errors of `visit`, and the errors of the source.
 */
export async function readLayer(
  source: ContentSource,
  layer: Descriptor,
  limits: LayerLimits,
  { signal }: Context,
  visit: (entry: LayerEntry) => EntryContent | undefined,
): Promise<number> {
  const where = `layer ${layer.digest} in ${source.name}`;
  if (layer.size > limits.packed) throw new PluginError('too-large', `${where} is too large for ${limits.of}`);
  const reading = new LayerReading(where, limits, visit, signal);
  // The stream is always read to its end, where its digest is checked. So corrupt content is reported as corrupt.
  let turn = performance.now();
  for await (const chunk of (await source.fetch(layer)) as AsyncIterable<Buffer>) {
    await reading.write(chunk);
    if (performance.now() - turn < turnLength) continue;
    await takeTurn(signal);
    turn = performance.now();
  }
  return reading.finish();
}

/** The state of reading a layer. After a problem, or the end of the tar, it unpacks no more. */
class LayerReading {
  readonly #where: string;
  readonly #limits: LayerLimits;
  readonly #visit: (entry: LayerEntry) => EntryContent | undefined;
  readonly #parser: Parser;
  readonly #decompressor: Decompressor;
  /** The first block, until it is complete. */
  #head: Buffer | undefined = Buffer.alloc(0);
  #unpacked = 0;
  #headers = 0;
  #ended = false;
  #problem: Error | undefined;

  constructor(
    where: string,
    limits: LayerLimits,
    visit: (entry: LayerEntry) => EntryContent | undefined,
    signal: AbortSignal,
  ) {
    this.#where = where;
    this.#limits = limits;
    this.#visit = visit;
    this.#decompressor = new Decompressor((bytes) => {
      // A chunk of a megabyte may unpack to a gigabyte.
      checkInterrupted(signal);
      this.#take(bytes);
    });
    this.#parser = new Parser({
      zstd: false,
      onReadEntry: (entry) => {
        this.#readEntry(entry);
      },
      onwarn: (code, message) => {
        this.#countHeader();
        // Other warnings are about single entries, which then count as absent.
        if (code === 'TAR_BAD_ARCHIVE') this.#refuse(message);
      },
    });
    this.#parser.on('error', (cause: unknown) => {
      this.#refuse(cause);
    });
    for (const event of ['meta', 'ignoredEntry']) {
      this.#parser.on(event, () => {
        this.#countHeader();
      });
    }
    // The parser would keep all data after the end, and copy it again with every chunk.
    this.#parser.on('eof', () => (this.#ended = true));
  }

  async write(chunk: Buffer): Promise<void> {
    if (!this.#isDone()) await this.#decompressor.write(chunk).catch((cause: unknown) => this.#refuse(cause));
  }

  /** Returns the number of unpacked bytes. Throws the problem of the layer. */
  async finish(): Promise<number> {
    if (!this.#isDone()) await this.#decompressor.end().catch((cause: unknown) => this.#refuse(cause));
    if (this.#head && !this.#isDone()) this.#feed(this.#head);
    // A parser that is at the end of the tar never closes.
    if (!this.#isDone()) await closeParser(this.#parser);
    if (this.#problem) throw this.#problem;
    return this.#unpacked;
  }

  #take(bytes: Buffer): void {
    this.#unpacked += bytes.length;
    this.#requireSize(0);
    if (!this.#head) this.#feed(bytes);
    else {
      this.#head = Buffer.concat([this.#head, bytes]);
      if (this.#head.length >= 512) this.#feed(this.#head);
    }
    if (this.#problem) throw this.#problem;
    if (this.#ended) this.#decompressor.close();
  }

  /** Passes unpacked bytes to the parser. It would unpack them again if they were compressed twice. */
  #feed(bytes: Buffer): void {
    if (this.#head && isCompressed(bytes)) return this.#refuse('it is compressed twice');
    this.#head = undefined;
    if (!this.#isDone()) this.#parser.write(bytes);
  }

  #readEntry(entry: ReadEntry): void {
    this.#countHeader();
    this.#guard(() => {
      this.#requireSize(entry.size);
      const content = this.#visit(entry);
      if (!content) return;
      entry.on('data', (chunk) => {
        this.#guard(() => content.write(chunk));
      });
      entry.on('end', () => {
        this.#guard(() => content.end());
      });
    });
    // Without a listener nothing else would read the content.
    entry.resume();
  }

  #countHeader(): void {
    this.#headers += 1;
    if (this.#headers > (this.#limits.headers ?? Infinity))
      this.#problem ??= new PluginError('too-large', `${this.#where} has more than ${this.#limits.headers} headers`);
  }

  #requireSize(more: number): void {
    if (this.#unpacked + more > this.#limits.unpacked)
      throw new PluginError('too-large', `${this.#where} is too large when it is unpacked`);
  }

  #guard(action: () => unknown): void {
    if (this.#problem) return;
    try {
      action();
    } catch (error) {
      this.#problem = error as Error;
    }
  }

  #refuse(cause: unknown): void {
    if (this.#isDone()) return;
    this.#problem = isPluginError(cause)
      ? cause
      : new PluginError(this.#limits.code, `${this.#where} is not a valid archive: ${messageOf(cause)}`, { cause });
  }

  #isDone(): boolean {
    return this.#ended || this.#problem !== undefined;
  }
}

async function closeParser(parser: Parser): Promise<void> {
  await new Promise<void>((resolve) => {
    parser.once('close', resolve).once('error', () => {
      resolve();
    });
    parser.end();
  });
}

/** Returns whether an entry is a regular file. */
export function isFile({ type }: LayerEntry): boolean {
  return type === 'File' || type === 'OldFile' || type === 'ContiguousFile';
}

const pieceSize = 64 * 1024;
const gzip = Buffer.from([0x1f, 0x8b]);
const zstd = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);

/**
 * Decompresses gzip, zstd or plain bytes, chunk by chunk. Passes every unpacked byte to `take`, in pieces of at most 64
 * KiB of compressed content. An error of `take` stops it.
 */
class Decompressor {
  readonly #take: (bytes: Buffer) => void;
  /** The first bytes, until they show the format. */
  #head: Buffer | undefined = Buffer.alloc(0);
  /** Undefined for plain bytes. */
  #stream: Transform | undefined;
  #failure: Error | undefined;

  constructor(take: (bytes: Buffer) => void) {
    this.#take = take;
  }

  /** Decompresses a chunk. Throws the error of `take`, or that of the format. */
  async write(chunk: Buffer): Promise<void> {
    if (!this.#head) return this.#pass(chunk);
    this.#head = Buffer.concat([this.#head, chunk]);
    if (this.#head.length >= zstd.length) await this.#begin(this.#head);
  }

  /** Decompresses the rest. Throws what `write` throws, and an error if the compressed bytes are truncated. */
  async end(): Promise<void> {
    if (this.#head) await this.#begin(this.#head);
    await this.#wait((stream) => stream.end());
  }

  /** Stops the decompression without an error. */
  close(): void {
    this.#stream?.destroy();
  }

  #begin(head: Buffer): Promise<void> {
    this.#head = undefined;
    const options = { chunkSize: pieceSize };
    if (startsWith(head, gzip)) this.#stream = createGunzip(options);
    else if (startsWith(head, zstd)) this.#stream = createZstdDecompress(options);
    this.#stream?.on('error', (error) => (this.#failure ??= error));
    this.#stream?.on('data', (bytes: Buffer) => {
      if (this.#failure) return;
      try {
        this.#take(bytes);
      } catch (error) {
        this.#failure = error as Error;
        this.close();
      }
    });
    return this.#pass(head);
  }

  async #pass(chunk: Buffer): Promise<void> {
    if (this.#stream) return this.#wait((stream, done) => stream.write(chunk, done));
    this.#take(chunk);
  }

  /** Calls `act`, and waits until it is done or the stream is closed. A failed stream never calls back. */
  async #wait(act: (stream: Transform, done: () => void) => void): Promise<void> {
    const stream = this.#stream;
    if (!stream || stream.closed) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        stream.off('close', done);
        resolve();
      };
      stream.on('close', done);
      act(stream, done);
    });
    if (this.#failure) throw this.#failure;
  }
}

/** Returns whether bytes are gzip or zstd. */
function isCompressed(bytes: Buffer): boolean {
  return startsWith(bytes, gzip) || startsWith(bytes, zstd);
}

function startsWith(bytes: Buffer, start: Buffer): boolean {
  return bytes.subarray(0, start.length).equals(start);
}

/**
 * Makes a gzip layer of files by their paths from the root, with their folders. Everything belongs to root and is
 * readable by all users. The same files give the same bytes.
 */
export function makeLayer(files: ReadonlyMap<string, Buffer>): Layer {
  const tar = makeTar(files);
  return { bytes: packTar(tar), diffId: digestOf(tar) };
}

function makeTar(files: ReadonlyMap<string, Buffer>): Buffer {
  const folders = new Set(
    [...files.keys()].flatMap((path) => [...path.matchAll(/\//g)].map(({ index }) => path.slice(0, index))),
  );
  const entries: TarEntry[] = [
    ...[...folders].map((path) => ({ path: `${path}/`, folder: true }) as const),
    ...[...files].map(([path, content]) => ({ path, content })),
  ];
  // By path, so that a folder comes before its content.
  entries.sort((a, b) => (a.path < b.path ? -1 : 1));
  const layout = layOutTar(entries);
  const tar = Buffer.alloc(layout.size);
  for (const { entry, header, position, start } of layout.entries) {
    header.copy(tar, position);
    if ('content' in entry) entry.content.copy(tar, start);
  }
  return tar;
}

/**
 * Packs as gzip (RFC 1952) with stored blocks (RFC 1951, 3.2.4). The output of zlib depends on the processor and on the
 * version of Node.js, and the digest of the image with it.
 */
function packTar(tar: Buffer): Buffer {
  const most = 0xffff;
  const parts: Buffer[] = [Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])];
  for (let start = 0; start < tar.length; start += most) {
    const block = tar.subarray(start, start + most);
    const header = Buffer.alloc(5);
    header.writeUInt8(start + most >= tar.length ? 1 : 0, 0);
    header.writeUInt16LE(block.length, 1);
    header.writeUInt16LE(most - block.length, 3);
    parts.push(header, block);
  }
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc32(tar), 0);
  trailer.writeUInt32LE(tar.length % 2 ** 32, 4);
  return Buffer.concat([...parts, trailer]);
}

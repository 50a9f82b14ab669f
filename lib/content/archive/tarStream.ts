import { Header } from 'tar';
import { PluginError } from '#errors';
import { roundToBlock } from './tarLayout.ts';

/** A file in a tar that is read as a stream. */
export interface StreamedFile {
  /** The path without a leading `./`. */
  readonly path: string;
  /** The size in bytes. */
  readonly size: number;
  /** Read it before the next file. The next file skips the rest. */
  readonly content: AsyncIterable<Buffer>;
}

/** Reads the files of a tar from any stream. Throws `invalid-file` with `where`. */
export async function* readTarStream(source: AsyncIterable<Buffer>, where: string): AsyncGenerator<StreamedFile> {
  const bytes = new Bytes(source);
  for (;;) {
    const block = await bytes.take(512);
    // Some tars end without the two empty blocks.
    if (block.length === 0) return;
    const header = block.length === 512 ? new Header(block) : undefined;
    if (header?.nullBlock) {
      await bytes.skip(Infinity);
      return;
    }
    if (!header?.cksumValid) throw damaged(where, 'it is not a tar, or is truncated');
    const size = header.size ?? 0;
    const state = { left: size };
    if (header.type === 'File' || header.type === 'OldFile') {
      const content = readContent(bytes, state, where);
      yield { path: (header.path ?? '').replace(/^\.\//, ''), size, content };
    }
    await bytes.skip(state.left + roundToBlock(size) - size);
  }
}

async function* readContent(bytes: Bytes, state: { left: number }, where: string): AsyncGenerator<Buffer> {
  while (state.left > 0) {
    const chunk = await bytes.next(state.left);
    if (!chunk) throw damaged(where, 'it is truncated');
    state.left -= chunk.length;
    yield chunk;
  }
}

/** Bytes from chunks of any size. */
class Bytes {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Returns some bytes, at most `limit`; undefined at the end. */
  async next(limit: number): Promise<Buffer | undefined> {
    while (this.#held.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return undefined;
      this.#held = next.value;
    }
    const chunk = this.#held.subarray(0, limit);
    this.#held = this.#held.subarray(chunk.length);
    return chunk;
  }

  /** Returns the requested number of bytes; fewer at the end. */
  async take(size: number): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for (let remaining = size; remaining > 0;) {
      const chunk = await this.next(remaining);
      if (!chunk) break;
      chunks.push(chunk);
      remaining -= chunk.length;
    }
    return Buffer.concat(chunks);
  }

  async skip(size: number): Promise<void> {
    for (let remaining = size; remaining > 0;) {
      const chunk = await this.next(remaining);
      if (!chunk) return;
      remaining -= chunk.length;
    }
  }
}

function damaged(where: string, why: string): PluginError {
  return new PluginError('invalid-file', `${where} cannot be read: ${why}`, {
    hint: 'Copy it again, and compare its digest with the digest at its source.',
  });
}

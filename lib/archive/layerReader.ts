import { Parser, type ReadEntry } from 'tar';
import { takeTurn, type Context } from '../context.ts';
import { messageOf, PluginError, type ErrorCode } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { ContentSource } from '../store/store.ts';

/** The header of an entry of a layer. */
export type LayerEntry = Pick<ReadEntry, 'path' | 'size' | 'type' | 'linkpath'>;

/** Gets the content of one file of a layer, chunk by chunk. */
export interface EntryContent {
  write(chunk: Buffer): unknown;
  end(): unknown;
}

/** The limits for one layer, in bytes, and the words for a layer that exceeds them. */
export interface LayerLimits {
  readonly packed: number;
  readonly unpacked: number;
  /** The image of the layer: `a release payload`. */
  readonly of: string;
  /** The code of the error for a malformed layer. */
  readonly code: ErrorCode;
}

// The parser unpacks a slice at once: zstd makes 128 MB of a slice of zeros.
const sliceSize = 4096;

/** For how many milliseconds a layer is unpacked before other work gets a turn. */
const turnLength = 50;

/**
 * Reads a layer entry by entry, with any compression. `visit` returns the destination of a file's content, or undefined
 * to skip the entry. The digest of the layer is verified only when the promise resolves. Throws `too-large`, the code
 * of the limits, the errors of `visit`, and the errors of the source.
 */
export async function readLayer(
  source: ContentSource,
  layer: Descriptor,
  limits: LayerLimits,
  { signal }: Context,
  visit: (entry: LayerEntry) => EntryContent | undefined,
): Promise<void> {
  const where = `layer ${layer.digest} in ${source.name}`;
  if (layer.size > limits.packed) throw new PluginError('too-large', `${where} is too large for ${limits.of}`);
  let problem: Error | undefined;
  let unpacked = 0;
  let ended = false as boolean;
  const guard = (action: () => unknown): void => {
    if (problem) return;
    try {
      action();
    } catch (error) {
      problem = error as Error;
    }
  };
  const readEntry = (entry: ReadEntry): void => {
    guard(() => {
      unpacked += entry.size;
      if (unpacked > limits.unpacked) throw new PluginError('too-large', `${where} is too large when it is unpacked`);
      const content = visit(entry);
      if (!content) return;
      entry.on('data', (chunk) => guard(() => content.write(chunk)));
      entry.on('end', () => guard(() => content.end()));
    });
    // Without a listener nothing else would read the content.
    entry.resume();
  };
  const refuse = (cause: unknown): void => {
    if (!ended)
      problem ??= new PluginError(limits.code, `${where} is not a valid archive: ${messageOf(cause)}`, { cause });
  };
  const parser = new Parser({
    onReadEntry: readEntry,
    onwarn: (code, message) => {
      // Other warnings are about single entries, which then count as absent.
      if (code === 'TAR_BAD_ARCHIVE') refuse(message);
    },
  });
  parser.on('error', refuse);
  // The parser would keep all data after the end, and copy it again with every chunk.
  parser.on('eof', () => {
    ended = true;
    parser.abort(new Error('the end was reached'));
  });
  // The stream is always read to its end, where its digest is checked. So corrupt content is reported as corrupt.
  let turn = performance.now();
  for await (const chunk of (await source.fetch(layer)) as AsyncIterable<Buffer>) {
    for (let at = 0; at < chunk.length && !problem && !ended; at += sliceSize) {
      parser.write(chunk.subarray(at, at + sliceSize));
      // A chunk of a megabyte may unpack to gigabytes.
      if (performance.now() - turn < turnLength) continue;
      await takeTurn(signal);
      turn = performance.now();
    }
  }
  // An aborted parser never closes.
  if (!problem && !ended) await closeParser(parser);
  if (problem) throw problem;
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

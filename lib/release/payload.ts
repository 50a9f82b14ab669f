import { Parser, type ReadEntry } from 'tar';
import { takeTurn, type Context } from '../context.ts';
import { PluginError, messageOf } from '../errors.ts';
import type { Descriptor, Manifest } from '../oci/descriptor.ts';
import type { ContentSource } from '../store/store.ts';

/**
 * The files of a payload's `release-manifests` folder by their names, in the order of the archive, from the top layer.
 */
export type PayloadFiles = ReadonlyMap<string, Buffer>;

const folder = /^(?:\.?\/)*release-manifests\/([^/]+)$/;
const wanted = /^(?:image-references|release-metadata)$|\.(?:ya?ml|json)$/;

// Real sizes: image-references 120 KB, the largest manifest below 1 MB, all manifests 10 MB, layers
// up to 200 MB.
const fileLimit = 16 * 1024 * 1024;
const totalLimit = 128 * 1024 * 1024;
const layerLimit = 2 * 1024 * 1024 * 1024;
const unpackedLimit = 16 * 1024 * 1024 * 1024;

// The parser decompresses each slice at once: with zstd, a slice of zeros becomes 128 MB.
const sliceSize = 4096;

/** The time for which a layer is unpacked before other work gets its turn, in milliseconds. */
const turnLength = 50;

/**
 * Reads the metadata and the manifests of a release payload, from the last layer down to the layer with
 * `image-references`. Uses a layer only after its digest is verified. Throws `invalid-release`, `too-large` and the
 * errors of the source.
 */
export async function readPayloadFiles(
  source: ContentSource,
  manifest: Manifest,
  context: Context,
): Promise<PayloadFiles> {
  const files = new Map<string, Buffer>();
  for (const layer of manifest.layers.toReversed()) {
    context.log('debug', `looking for release-manifests in ${layer.digest}`);
    for (const [name, content] of await readLayer(source, layer, context)) {
      if (!files.has(name)) files.set(name, content);
    }
    if (files.has('image-references')) return files;
  }
  throw new PluginError('invalid-release', `the image in ${source.name} has no release-manifests/image-references`, {
    hint: 'It is an image, but not a release payload.',
  });
}

async function readLayer(source: ContentSource, layer: Descriptor, context: Context): Promise<Map<string, Buffer>> {
  const where = `layer ${layer.digest} in ${source.name}`;
  if (layer.size > layerLimit) throw new PluginError('too-large', `${where} is too large for one of a release payload`);
  const files = new Map<string, Buffer>();
  let problem: PluginError | undefined;
  let total = 0;
  let unpacked = 0;
  let ended = false as boolean;
  const readEntry = (entry: ReadEntry): void => {
    const name = folder.exec(entry.path)?.[1];
    if ((unpacked += entry.size) > unpackedLimit)
      problem ??= new PluginError('too-large', `${where} is too large when it is unpacked`);
    if (problem || name === undefined || !wanted.test(name) || !isFile(entry)) {
      entry.resume();
      return;
    }
    total += entry.size;
    if (entry.size > fileLimit || total > totalLimit) {
      problem = new PluginError('too-large', `${name} in ${where} is too large for a file of a release payload`);
      entry.resume();
      return;
    }
    const chunks: Buffer[] = [];
    entry.on('data', (chunk) => chunks.push(chunk));
    entry.on('end', () => files.set(name, Buffer.concat(chunks)));
  };
  const malformed = (cause: unknown): void => {
    if (ended) return;
    problem ??= new PluginError('invalid-release', `${where} is not a valid archive: ${messageOf(cause)}`, { cause });
  };
  const parser = new Parser({
    onReadEntry: readEntry,
    onwarn: (code, message) => {
      // Other warnings are about single entries, which then count as missing.
      if (code === 'TAR_BAD_ARCHIVE') malformed(message);
    },
  });
  parser.on('error', malformed);
  // The parser would keep all data after the end, and copy it again with every chunk.
  parser.on('eof', () => {
    ended = true;
    parser.abort(new Error('the end was reached'));
  });
  // Read the stream to its end, where its digest is checked: corrupt content is then reported as
  // corrupt, not by its other faults.
  let turn = performance.now();
  for await (const chunk of (await source.fetch(layer)) as AsyncIterable<Buffer>) {
    for (let at = 0; at < chunk.length && !problem && !ended; at += sliceSize) {
      parser.write(chunk.subarray(at, at + sliceSize));
      // A chunk of a megabyte may decompress to gigabytes.
      if (performance.now() - turn < turnLength) continue;
      await takeTurn(context.signal);
      turn = performance.now();
    }
  }
  // An aborted parser never closes.
  if (!problem && !ended) await closeParser(parser);
  if (problem) throw problem;
  return files;
}

async function closeParser(parser: Parser): Promise<void> {
  await new Promise<void>((resolve) => {
    parser.once('close', resolve).once('error', () => {
      resolve();
    });
    parser.end();
  });
}

function isFile(entry: ReadEntry): boolean {
  return entry.type === 'File' || entry.type === 'OldFile' || entry.type === 'ContiguousFile';
}

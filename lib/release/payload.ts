import { isFile, readLayer, type EntryContent, type LayerEntry } from '../content/archive/layerReader.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import type { Descriptor, Manifest } from '../content/oci/descriptor.ts';
import type { ContentSource } from '../content/store/store.ts';

/**
 * The files of a payload's `release-manifests` folder by their names, in the order of the archive, from the top layer.
 */
export type PayloadFiles = ReadonlyMap<string, Buffer>;

const folder = /^(?:\.?\/)*release-manifests\/([^/]+)$/;
const namePattern = /^(?:image-references|release-metadata)$|\.(?:ya?ml|json)$/;

// Real sizes: image-references 120 KB, the largest manifest below 1 MB, all manifests 10 MB in a thousand files. They
// are in the last layer. All layers together have 200 MB, and 600 MB unpacked.
const fileLimit = 16 * 1024 * 1024;
const totalLimit = 128 * 1024 * 1024;
/** For all layers of a payload together. A payload may be read before its signature is judged. */
const payloadLimits = { packed: 512 * 1024 * 1024, unpacked: 1024 * 1024 * 1024, headers: 200_000 };

/**
 * Reads the metadata and the manifests of a release payload, from the last layer down to the layer with
 * `image-references`. Uses a layer only after its digest is verified. Throws `invalid-release`, `too-large` (512 MiB of
 * layers, 1 GiB of unpacked bytes) and the errors of the source.
 */
export async function readPayloadFiles(
  source: ContentSource,
  manifest: Manifest,
  context: Context,
): Promise<PayloadFiles> {
  const files = new Map<string, Buffer>();
  const remaining = { ...payloadLimits };
  for (const layer of manifest.layers.toReversed()) {
    context.log('debug', `looking for release-manifests in ${layer.digest}`);
    const read = await readManifestFiles(source, layer, remaining, context);
    remaining.packed -= layer.size;
    remaining.unpacked -= read.unpacked;
    for (const [name, content] of read.files) {
      if (!files.has(name)) files.set(name, content);
    }
    if (files.has('image-references')) return files;
  }
  throw new PluginError('invalid-release', `the image in ${source.name} has no release-manifests/image-references`, {
    hint: 'It is an image, but not a release payload.',
  });
}

async function readManifestFiles(
  source: ContentSource,
  layer: Descriptor,
  remaining: typeof payloadLimits,
  context: Context,
): Promise<{ readonly files: ReadonlyMap<string, Buffer>; readonly unpacked: number }> {
  const files = new Map<string, Buffer>();
  let total = 0;
  const visit = (entry: LayerEntry): EntryContent | undefined => {
    const name = folder.exec(entry.path)?.[1];
    if (name === undefined || !namePattern.test(name) || !isFile(entry)) return undefined;
    total += entry.size;
    if (entry.size > fileLimit || total > totalLimit) {
      const where = `layer ${layer.digest} in ${source.name}`;
      throw new PluginError('too-large', `${name} in ${where} is too large for a file of a release payload`);
    }
    const chunks: Buffer[] = [];
    return { write: (chunk) => chunks.push(chunk), end: () => files.set(name, Buffer.concat(chunks)) };
  };
  const limits = { ...remaining, of: 'a release payload', code: 'invalid-release' } as const;
  return { files, unpacked: await readLayer(source, layer, limits, context, visit) };
}

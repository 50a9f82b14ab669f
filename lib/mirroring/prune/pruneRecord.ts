import { Readable } from 'node:stream';
import { fieldsOf, textsOf } from '../../fields.ts';
import { mediaTypes, parseManifest, type Descriptor, type Manifest } from '../../oci/descriptor.ts';
import { digestOf, isDigest, type Digest } from '../../oci/digest.ts';
import { parseJson } from '../../oci/syntax.ts';
import { readContent, type ContentStore } from '../../store/store.ts';
import type { PrunedRepository } from './repository.ts';

/**
 * The tag of the record of an unfinished run. After the release image is gone, only the record tells which other images belonged to
 * the release.
 */
export const recordTag = 'prune-unfinished';

/** What a run removes from one repository. */
export interface PruneRecord {
  /** The tags of the releases. */
  readonly releases: readonly string[];
  /** The tags that lead to the manifests. */
  readonly tags: readonly string[];
  readonly manifests: readonly Digest[];
  readonly blobs: readonly Digest[];
}

const recordLimit = 64 * 1024 * 1024;
const recordType = 'application/vnd.oc-disconnected.prune.v1+json';

/** Writes the record of a run into a repository before the run removes anything there, and returns its manifest and its blobs. */
export async function writeRecord(store: ContentStore, record: PruneRecord): Promise<Digest[]> {
  const push = async (mediaType: string, bytes: Buffer): Promise<Descriptor> => {
    const descriptor = { mediaType, digest: digestOf(bytes), size: bytes.length };
    await store.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    return descriptor;
  };
  const layer = await push(recordType, Buffer.from(JSON.stringify(record)));
  const config = await push('application/vnd.oci.empty.v1+json', Buffer.from('{}'));
  const manifest = { schemaVersion: 2, mediaType: mediaTypes.ociManifest, config, layers: [layer] };
  const root = await push(mediaTypes.ociManifest, Buffer.from(JSON.stringify(manifest)));
  await store.tag(root, recordTag);
  await store.close();
  return [root.digest, layer.digest, config.digest];
}

/** Returns whether a manifest is that of a record. */
export function isRecord({ layers }: Manifest): boolean {
  return layers[0]?.mediaType === recordType;
}

/** Reads the record of an unfinished run; undefined if there is none. */
export async function readRecord({ store, tags }: PrunedRepository): Promise<PruneRecord | undefined> {
  const digest = tags.get(recordTag);
  if (digest === undefined) return undefined;
  const manifest = await readContent(store, await store.resolve(digest));
  const [layer] = parseManifest(manifest, `${recordTag} in ${store.name}`).layers;
  if (layer?.mediaType !== recordType) return undefined;
  const {
    releases,
    tags: names,
    manifests,
    blobs,
  } = fieldsOf(parseJson((await readContent(store, layer, recordLimit)).toString()));
  return {
    releases: textsOf(releases),
    tags: textsOf(names),
    manifests: textsOf(manifests).filter(isDigest),
    blobs: textsOf(blobs).filter(isDigest),
  };
}

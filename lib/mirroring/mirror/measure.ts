import { join } from 'node:path';
import { isAllowed, type Verb, applyManifests, type ApplyOutcome } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { formatObjectName } from '#cluster/objects';
import type { ConfigManifest } from '#config/manifest';
import { checkSpace } from '#content/files';
import type { Descriptor, Digest } from '#content/oci';
import { blobsOf, walkManifests, type ContentStore, Directory } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { Place, MirrorGroup, MirrorImage } from './destination.ts';

/** A number of blobs, and their size in bytes. */
interface BlobAmount {
  readonly blobs: number;
  readonly bytes: number;
}

/** What a plan copies. A blob that one registry or directory needs several times counts once. */
export interface MirrorMeasure {
  /** The images that are at their place already. */
  readonly present: ReadonlySet<MirrorImage>;
  readonly total: BlobAmount;
  readonly missing: BlobAmount;
}

/** Measures a plan, and asks the destinations what they have. Throws what they throw. */
export async function measureMirror(
  groups: readonly MirrorGroup[],
  openStore: (place: Place) => ContentStore,
): Promise<MirrorMeasure> {
  const present = new Set<MirrorImage>();
  const [total, missing] = [new Map<string, number>(), new Map<string, number>()];
  for (const { place, images } of groups) {
    const store = openStore(place);
    const host = place.kind === 'registry' ? place.registry : place.root;
    const blobs = new Map(
      images.flatMap(({ graph }) => blobsOf(graph.manifests.values())).map((each) => [each.digest, each]),
    );
    for (const { digest, size } of blobs.values()) total.set(`${host} ${digest}`, size);
    const stored = await findStored(store, images);
    for (const { image, graph } of images) if (stored.has(graph.root.digest)) present.add(image);
    const lacking = [...blobs.values()].filter(({ digest }) => !stored.has(digest));
    const isThere = await Promise.all(lacking.map((blob) => store.exists(blob)));
    for (const [index, { digest, size }] of lacking.entries()) {
      if (!isThere[index]) missing.set(`${host} ${digest}`, size);
    }
  }
  return { present, total: amountOf(total), missing: amountOf(missing) };
}

/** Finds the images and attachments that a store has, and returns their digests with those of everything below. */
async function findStored(store: ContentStore, images: MirrorGroup['images']): Promise<ReadonlySet<Digest>> {
  const stored = new Set<Digest>();
  const find = async (root: Descriptor, { graph }: MirrorGroup['images'][number]): Promise<void> => {
    if (!(await store.exists(root))) return;
    for (const { digest, children } of walkManifests(root.digest, (name) => graph.manifests.get(name)?.manifest)) {
      for (const each of [digest, ...children.map((child) => child.digest)]) stored.add(each);
    }
  };
  await Promise.all(
    images.flatMap((each) => [each.graph.root, ...each.graph.attachments.values()].map((root) => find(root, each))),
  );
  return stored;
}

function amountOf(sizes: ReadonlyMap<string, number>): BlobAmount {
  return { blobs: sizes.size, bytes: [...sizes.values()].reduce((sum, size) => sum + size, 0) };
}

/**
 * Throws `disk-full` unless the file systems of the mirror directories of a plan have space for what is missing there.
 */
export async function checkDirectorySpace(groups: readonly MirrorGroup[], context: Context): Promise<void> {
  const roots = Map.groupBy(groups, ({ place }) => (place.kind === 'directory' ? place.root : undefined));
  for (const [root, own] of roots) {
    if (root === undefined) continue;
    const { missing } = await measureMirror(own, ({ repository }) => new Directory(root, repository, {}, context));
    // The folder itself may be where another file system is mounted.
    await checkSpace(join(root, 'v2'), missing.bytes);
  }
}

const verbs: Partial<Record<ApplyOutcome['outcome'], Verb>> = { created: 'create', configured: 'update' };

/** Throws `denied` if the user may not make the changes in a cluster that applying manifests to it will need. */
export async function checkRights(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  { overwrite }: { readonly overwrite: boolean },
  context: Context,
): Promise<void> {
  const missing: string[] = [];
  for (const { manifest, outcome, error } of await applyManifests(
    cluster,
    manifests,
    { overwrite, dryRun: 'client' },
    context,
  )) {
    const { object } = manifest;
    const verb = isPluginError(error, 'denied') ? 'get' : verbs[outcome];
    if (verb === undefined || (!error && (await isAllowed(cluster, verb, object)))) continue;
    missing.push(`${verb} ${formatObjectName(object)}`);
  }
  if (missing.length === 0) return;
  throw new PluginError('denied', `${cluster.name} does not allow this user to ${missing.join(', ')}`, {
    hint: 'Use the context of an administrator; or only write the configuration to a folder, and apply it later.',
    settings: ['context'],
  });
}

import type { Descriptor } from '../content/oci/descriptor.ts';
import type { Digest } from '../content/oci/digest.ts';
import { blobsOf, walkManifests } from '../content/store/imageGraph.ts';
import type { ContentStore } from '../content/store/store.ts';
import type { Place } from './destination.ts';
import type { MirrorGroup, MirrorImage } from './mirrorGroup.ts';

/** A number of blobs, and their size in bytes. */
export interface BlobAmount {
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

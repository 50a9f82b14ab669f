import { type ConfigManifest, formatManifest } from '../../config/manifest.ts';
import { releaseRepository } from '../../content/store/directory.ts';
import { layOutTar, roundToBlock, type TarEntry, type TarLayout } from '../../content/archive/tarLayout.ts';
import type { Contents } from './contents.ts';
import type { MetadataFacts } from '../metadataFacts.ts';
import { formatMetadata, metadataPath, parseMetadata, type BundleMetadata } from '../metadata.ts';
import { describeVolumes, type Split } from '../split.ts';

/** The layout of a bundle, without its blobs. */
export interface BundleLayout {
  readonly metadata: BundleMetadata;
  readonly tar: TarLayout;
}

/**
 * Lays out a bundle: metadata.json, the configuration manifests, then a mirror directory with manifests, tags and
 * blobs, in the order of the images. The same inputs give the same bytes.
 */
export function layOutBundle(
  facts: MetadataFacts,
  contents: Contents,
  config: readonly ConfigManifest[],
  split?: Split,
): BundleLayout {
  const folder = `v2/${releaseRepository}`;
  const rest: TarEntry[] = [
    ...config.map(({ path, object }) => ({ path, content: Buffer.from(formatManifest(object)) })),
    ...[...contents.manifests].map(([digest, { bytes }]) => ({
      path: `${folder}/manifests/${digest}`,
      content: bytes,
    })),
    ...[...contents.tags].map(([tag, digest]) => ({ path: `${folder}/manifests/${tag}`, target: digest })),
    ...[...contents.blobs].map(([digest, { descriptor }]) => ({ path: `${folder}/blobs/${digest}`, descriptor })),
  ];
  const blobs = [...contents.blobs.values()].map(({ descriptor: { digest, size } }) => ({ digest, size }));
  const restSize = layOutTar(rest).size;
  const bytes = formatMetadata(
    { formatVersion: facts.releases ? 2 : 1, ...facts, blobs },
    (length) => 512 + roundToBlock(length) + restSize,
    (size) => split && describeVolumes(split, size),
  );
  const tar = layOutTar([{ path: metadataPath, content: bytes }, ...rest], split?.volumeSize);
  return { metadata: parseMetadata(bytes, 'this bundle'), tar };
}

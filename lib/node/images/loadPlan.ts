import { arch } from 'node:os';
import { listArtifacts, gatherContents } from '#bundle/create';
import { listContainerImages, listNamedImages, type BundleImage } from '#bundle/metadata';
import type { Bundle } from '#bundle/open';
import {
  childrenOf,
  isManifest,
  type Descriptor,
  type Manifest,
  type Digest,
  formatReference,
  parseReference,
} from '#content/oci';
import { walkManifests } from '#content/store';
import type { Context } from '#context';
import { PluginError, nameSome } from '#errors';
import type { StoreImage } from './imageStore.ts';

/** An image to load, with its blobs. */
export interface PlannedImage extends StoreImage {
  /** The component’s name, `release`, or the pullspec of an extra image. */
  readonly label: string;
  /** The sizes of its blobs in bytes; for a manifest list, those of the image for this machine. */
  readonly blobs: ReadonlyMap<Digest, number>;
}

/** The names of architectures in a release and in a manifest list, by their names in Node.js. */
const machines: Readonly<Record<string, { readonly release: string; readonly list: string }>> = {
  x64: { release: 'x86_64', list: 'amd64' },
  arm64: { release: 'aarch64', list: 'arm64' },
  ppc64: { release: 'ppc64le', list: 'ppc64le' },
  s390x: { release: 's390x', list: 's390x' },
};

/**
 * Lists the images of a bundle to load, the most important first. `names` are components, pullspecs or digests; all
 * images if it is empty. Throws `usage` for an unknown image and for a bundle of another architecture, and the errors
 * of reading the manifests.
 */
export async function planImages(bundle: Bundle, names: readonly string[], context: Context): Promise<PlannedImage[]> {
  const { metadata, path } = bundle;
  const here = machines[arch()];
  if (here !== undefined && metadata.arch !== 'multi' && metadata.arch !== here.release) {
    throw new PluginError('usage', `${path} is for ${metadata.arch}, and this machine is ${here.release}`, {
      hint: `Create a bundle for ${here.release}, or for multi (all architectures).`,
    });
  }
  const all = listImages(bundle);
  for (const word of names) {
    if (!all.some((image) => isNamed(image, word))) {
      throw new PluginError('usage', `${path} has no image ${word}`, {
        hint: 'Name a component such as etcd, a pullspec or a digest. “inspect” lists all images.',
        settings: ['images'],
      });
    }
  }
  const chosen = names.length === 0 ? all : all.filter((image) => names.some((word) => isNamed(image, word)));
  const { manifests } = await gatherContents(chosen, () => bundle.content, context);
  const artifacts = listArtifacts(chosen, manifests);
  if (artifacts.length > 0) context.log('info', `not loaded, because no container images: ${nameSome(artifacts)}`);
  context.log('debug', `load: ${chosen.length} of the ${all.length} images of ${path}`);
  const loadable = chosen.filter(({ name }) => !artifacts.includes(name));
  return loadable.map(({ name: label, reference }) => {
    const blobs = new Map<Digest, number>();
    const manifestOf = (digest: Digest): Manifest | undefined => manifests.get(digest)?.manifest;
    for (const { children } of walkManifests(reference.digest, manifestOf, chooseHere)) {
      for (const child of children) if (!isManifest(child)) blobs.set(child.digest, child.size);
    }
    return { label, name: formatReference(reference), digest: reference.digest, blobs };
  });
}

/** Returns the children of a manifest. For a manifest list, returns only the images for this machine, if it has any. */
function chooseHere(manifest: Manifest): readonly Descriptor[] {
  const children = childrenOf(manifest);
  const here = children.filter(({ platform }) => platform && platform.architecture === machines[arch()]?.list);
  return here.length > 0 ? here : children;
}

/** Returns the images of a bundle under the names in a store, from its metadata. Throws `invalid-bundle`. */
export function storeImagesOf(bundle: Pick<Bundle, 'metadata' | 'path'>): StoreImage[] {
  return listImages(bundle).map(({ reference }) => ({ name: formatReference(reference), digest: reference.digest }));
}

/** Lists each image under each of its names, because a store finds an image by its exact name. */
function listImages({ metadata, path }: Pick<Bundle, 'metadata' | 'path'>): BundleImage[] {
  const labels = new Map<string, string>();
  const images = listContainerImages(metadata);
  for (const { name, pullspec } of listNamedImages({ ...metadata, images }))
    if (!labels.has(pullspec)) labels.set(pullspec, name);
  return [...labels].map(([pullspec, name]) => {
    const { digest, ...reference } = parseReference(pullspec);
    if (!digest) throw new PluginError('invalid-bundle', `${path} names ${pullspec}, which has no digest`);
    // A tag is not part of the name in a store.
    const { tag: _tag, ...bare } = reference;
    return { name, tag: '', reference: { ...bare, digest } };
  });
}

function isNamed({ name, reference }: BundleImage, word: string): boolean {
  return [name, formatReference(reference), reference.digest].includes(word);
}

/** Returns the sizes of the blobs of several images in bytes, each blob once. */
export function blobsOfImage(images: readonly PlannedImage[]): Map<Digest, number> {
  return new Map(images.flatMap(({ blobs }) => [...blobs]));
}

/** Returns the total size of blobs in bytes. */
export function sizeOf(blobs: ReadonlyMap<Digest, number>): number {
  return [...blobs.values()].reduce((total, size) => total + size, 0);
}

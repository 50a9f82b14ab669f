import { arch } from 'node:os';
import { gatherContents } from '../../bundle/create/contents.ts';
import { listNamedImages, type BundleImage } from '../../bundle/images.ts';
import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { childrenOf, isManifest, type Descriptor, type Manifest } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import { formatReference, parseReference } from '../../oci/reference.ts';
import { walkManifests } from '../../store/imageGraph.ts';
import type { StoreImage } from './imageStore.ts';

/** An image that is to be loaded, with what it consists of. */
export interface PlannedImage extends StoreImage {
  /** The component’s name, `release`, or the pullspec of an extra image. */
  readonly label: string;
  /** Its blobs with their sizes in bytes; of a list, those of the image that is for this machine. */
  readonly blobs: ReadonlyMap<Digest, number>;
}

/** What machines are called in a release, and in a list of images, by what Node.js calls them. */
const machines: Readonly<Record<string, { readonly release: string; readonly list: string }>> = {
  x64: { release: 'x86_64', list: 'amd64' },
  arm64: { release: 'aarch64', list: 'arm64' },
  ppc64: { release: 'ppc64le', list: 'ppc64le' },
  s390x: { release: 's390x', list: 's390x' },
};

/**
 * Lists the images of a bundle that are to be loaded, those that nodes cannot do without first. `wanted` are components, pullspecs or
 * digests; without any it is all of them. Throws `usage` for one that the bundle does not have and for a bundle of another
 * architecture, and what reading the manifests throws.
 */
export async function planImages(bundle: Bundle, wanted: readonly string[], context: Context): Promise<PlannedImage[]> {
  const { metadata, path } = bundle;
  const here = machines[arch()];
  if (here !== undefined && metadata.arch !== 'multi' && metadata.arch !== here.release) {
    throw new PluginError('usage', `${path} is for ${metadata.arch}, and this machine is ${here.release}`, {
      hint: `Create a bundle for ${here.release}, or for multi (all architectures).`,
    });
  }
  const all = listImages(bundle);
  for (const word of wanted) {
    if (!all.some((image) => isNamed(image, word))) {
      throw new PluginError('usage', `${path} has no image ${word}`, {
        hint: 'Name a component such as etcd, a pullspec or a digest. “inspect” lists all images.',
        settings: ['images'],
      });
    }
  }
  const chosen = wanted.length === 0 ? all : all.filter((image) => wanted.some((word) => isNamed(image, word)));
  const { manifests } = await gatherContents(chosen, () => bundle.content);
  context.log('debug', `load: ${chosen.length} of the ${all.length} images of ${path}`);
  return chosen.map(({ name: label, reference }) => {
    const blobs = new Map<Digest, number>();
    const manifestOf = (digest: Digest): Manifest | undefined => manifests.get(digest)?.manifest;
    for (const { children } of walkManifests(reference.digest, manifestOf, chooseHere)) {
      for (const child of children) if (!isManifest(child)) blobs.set(child.digest, child.size);
    }
    return { label, name: formatReference(reference), digest: reference.digest, blobs };
  });
}

/** What a manifest points to, of a list only the images for this machine if it has any. */
function chooseHere(manifest: Manifest): readonly Descriptor[] {
  const children = childrenOf(manifest);
  const here = children.filter(({ platform }) => platform && platform.architecture === machines[arch()]?.list);
  return here.length > 0 ? here : children;
}

/** The images of a bundle as a store has them, by what its metadata says. Throws `invalid-bundle`. */
export function storeImagesOf(bundle: Pick<Bundle, 'metadata' | 'path'>): StoreImage[] {
  return listImages(bundle).map(({ reference }) => ({ name: formatReference(reference), digest: reference.digest }));
}

/** Every name of every image once: an image that is in two repositories is looked up by both names. */
function listImages({ metadata, path }: Pick<Bundle, 'metadata' | 'path'>): BundleImage[] {
  const labels = new Map<string, string>();
  for (const { name, pullspec } of listNamedImages(metadata)) if (!labels.has(pullspec)) labels.set(pullspec, name);
  return [...labels].map(([pullspec, name]) => {
    const { digest, ...reference } = parseReference(pullspec);
    if (!digest) throw new PluginError('invalid-bundle', `${path} names ${pullspec}, which is not by digest`);
    // Whatever tag the pullspec has besides is not part of the name in a store.
    const { tag: _tag, ...bare } = reference;
    return { name, tag: '', reference: { ...bare, digest } };
  });
}

function isNamed({ name, reference }: BundleImage, word: string): boolean {
  return [name, formatReference(reference), reference.digest].includes(word);
}

/** The blobs of some images, each once, with their sizes in bytes. */
export function blobsOfImage(images: readonly PlannedImage[]): Map<Digest, number> {
  return new Map(images.flatMap(({ blobs }) => [...blobs]));
}

/** How many bytes some blobs have. */
export function sizeOf(blobs: ReadonlyMap<Digest, number>): number {
  return [...blobs.values()].reduce((total, size) => total + size, 0);
}

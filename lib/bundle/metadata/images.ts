import { type Digest, formatReference, parseReference, type Reference } from '#content/oci';
import type { ContentSource } from '#content/store';
import type { SignedRelease } from '#release/load';
import type { Release } from '#release/release';
import { componentTag, releaseTag } from '#release/version';
import type { BundledRelease, BundleMetadata } from './metadata.ts';

/**
 * Finds the digests of extra images, and adds them to images by digest. Returns each image once, in an order that
 * depends only on the images. Throws the errors of `resolve`.
 */
export async function resolveExtraImages(
  pullspecs: readonly string[],
  provider: {
    sourceOf(reference: Reference): ContentSource;
  },
  others: readonly (Reference & { readonly digest: Digest })[] = [],
): Promise<ExtraImage[]> {
  const resolved = await Promise.all(pullspecs.map((pullspec) => resolveExtraImage(pullspec, provider)));
  const named = [...resolved, ...others].map(({ registry, repository, digest }): [string, ExtraImage] => {
    const reference = { registry, repository, digest };
    const name = formatReference(reference);
    return [name, { name, reference }];
  });
  // The same images give the same bundle, in any order and spelling of their names.
  return [...new Map(named)].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, image]) => image);
}

/**
 * Finds the digest of an extra image, and keeps its tag; `latest` without tag and digest. Throws the errors of
 * `resolve`.
 */
export async function resolveExtraImage(
  pullspec: string,
  provider: {
    sourceOf(reference: Reference): ContentSource;
  },
): Promise<Reference & { readonly digest: Digest }> {
  const { registry, repository, digest, ...named } = parseReference(pullspec);
  const tag = named.tag ?? (digest ? undefined : 'latest');
  const source = provider.sourceOf({ registry, repository, digest });
  const descriptor = await source.resolve(digest ?? tag ?? '');
  return { registry, repository, tag, digest: descriptor.digest };
}

/** Returns the extra images that are neither a release image nor a component of one of the releases. */
export function selectExtraImages<Image extends ExtraImage>(
  images: readonly Image[],
  releases: readonly Release[],
): Image[] {
  const own = new Set(
    releases.flatMap(({ pullspec, images }) => [pullspec, ...[...images.values()].map(({ pullspec }) => pullspec)]),
  );
  return images.filter(({ name }) => !own.has(name));
}

/**
 * Returns the tag of an extra image beside a release: the tag of the release, its name, and 12 digits of its digest.
 */
export function extraImageTag(tag: string, { repository, digest }: Reference & { readonly digest: Digest }): string {
  const name = repository.split('/').at(-1) ?? '';
  return `${tag}-extra-${name}`.slice(0, 115) + `-${digest.slice(7, 19)}`;
}

/**
 * Lists the images of each release of a bundle: the release, its components and the extra images, which have tags for
 * each release. If there are several releases, the names of their images begin with the version.
 */
export function listImages(
  releases: readonly Pick<SignedRelease, 'release'>[],
  extraImages: readonly ExtraImage[],
): BundleImage[][] {
  return releases.map(({ release }) => listOwnImages(release, extraImages, releases.length > 1));
}

function listOwnImages(
  { version, arch, reference, digest, images }: Release,
  extraImages: readonly ExtraImage[],
  isOneOfSeveral: boolean,
): BundleImage[] {
  const prefix = isOneOfSeveral ? `${version}/` : '';
  const components = [...images].map(([component, image]): BundleImage => {
    const tag = componentTag(version, arch, component);
    return { name: `${prefix}${component}`, reference: { ...image.reference, digest: image.digest }, tag };
  });
  const extras = extraImages.map((image): BundleImage => {
    return { ...image, tag: extraImageTag(releaseTag(version, arch), image.reference) };
  });
  return [
    { name: `${prefix}release`, reference: { ...reference, digest }, tag: releaseTag(version, arch) },
    ...components,
    ...extras,
  ];
}

/**
 * An image by its name in metadata.json or in a release: the name of a component, `release`, or the pullspec of an
 * extra image.
 */
export interface MetadataImage {
  readonly name: string;
  readonly pullspec: string;
}

/**
 * Lists the names of all images of a bundle: the release, each component, and the other images in `images`. A pullspec
 * of several components is listed for each of them. If there are several releases, the names begin with the version.
 */
export function listNamedImages({
  release,
  components,
  images,
  releases,
}: Pick<BundleMetadata, 'release' | 'components' | 'images'> & {
  readonly releases?: readonly Pick<BundledRelease, 'version' | 'release' | 'components'>[];
}): MetadataImage[] {
  const all = releases?.map((each) => ({ ...each, prefix: `${each.version}/` })) ?? [
    { release, components, prefix: '' },
  ];
  const named = all.flatMap((each) => [
    { name: `${each.prefix}release`, pullspec: each.release },
    ...Object.entries(each.components).map(([name, pullspec]) => ({ name: `${each.prefix}${name}`, pullspec })),
  ]);
  const namedPullspecs = new Set(named.map(({ pullspec }) => pullspec));
  const others = [...new Set(images)].filter((pullspec) => !namedPullspecs.has(pullspec));
  return [...named, ...others.map((pullspec) => ({ name: pullspec, pullspec }))];
}

/** Returns the images of a bundle without OCI artifacts. Only these are loaded and pinned. */
export function listContainerImages({
  images,
  artifacts = [],
  releases = [],
  ...last
}: Pick<BundleMetadata, 'release' | 'components' | 'images' | 'artifacts' | 'releases'>): string[] {
  // No signature covers the list of artifacts, so it must not hide an image of a release.
  const signed = new Set([last, ...releases].flatMap((each) => [each.release, ...Object.values(each.components)]));
  return images.filter((image) => signed.has(image) || !artifacts.includes(image));
}

/** An image that is not part of the release, before it has a tag. */
export type ExtraImage = Omit<BundleImage, 'tag'>;

/** An image of a bundle: its pullspec by digest, and its tag in the bundle. */
export interface BundleImage {
  /** The component’s name, `release`, or the pullspec of an extra image. */
  readonly name: string;
  readonly reference: Reference & { readonly digest: Digest };
  /** The tag in the bundle’s repository. */
  readonly tag: string;
}

import { stat } from 'node:fs/promises';
import { parseVolumeName } from '#content/archive';
import { sumSizes, type Digest, formatReference, parseReference, repositoryIn, type Reference } from '#content/oci';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { findRelease, type FoundRelease, type ReleaseRequest } from '#release/load';
import { readPayload, type Release } from '#release/release';
import { compareVersions, componentTag, isOlder, isVersion, releaseTag, type Architecture } from '#release/version';
import { gatherContents } from './create/contents.ts';
import type { BundleImage } from './metadata/images.ts';
import { type BundleMetadata, splitReleases } from './metadata/metadata.ts';
import { openBundle } from './open/open.ts';
import { compareReleases, type ChangedImage } from './verify/changes.ts';

/** The way to releases that are named by a version or an image. */
export interface DiffAccess {
  readonly arch: Architecture;
  readonly repository: string;
  readonly sourceOf: (reference: Reference) => ContentSource;
}

/** A number of blobs, and their size in bytes. */
export interface BlobCount {
  readonly blobs: number;
  readonly bytes: number;
}

/** One of the two compared releases. `blobs` is their number, and `bytes` their size. */
export interface DiffSide extends BlobCount {
  /** The text that named it. */
  readonly name: string;
  readonly version: string;
  readonly arch: string;
  readonly release: string;
  readonly images: number;
}

/** A component that differs, with sizes in bytes. */
export interface ImageDiff extends ChangedImage {
  /** The sizes of all its blobs; absent if a release lacks it. */
  readonly fromSize?: number;
  readonly toSize?: number;
  /** The size of its blobs that the first release does not have. */
  readonly newSize: number;
}

/** The differences between two releases, not verified. */
export interface ReleaseDiff {
  readonly from: DiffSide;
  readonly to: DiffSide;
  /** The versions of parts that differ, such as `kubernetes` and `machine-os`. */
  readonly versions: readonly { readonly part: string; readonly from?: string; readonly to?: string }[];
  readonly images: readonly ImageDiff[];
  /** The number of components that are the same in both. */
  readonly unchanged: number;
  readonly shared: BlobCount;
  /** The blobs that only the second release has: the content of a delta bundle. */
  readonly added: BlobCount;
  readonly removed: BlobCount;
  /** The differences of each release from the one before it, if the later side is a bundle of several. */
  readonly steps?: readonly ReleaseDiff[];
}

interface Side extends DiffSide {
  readonly content: Release;
  readonly sizes: ReadonlyMap<Digest, number>;
  readonly blobsOf: ReadonlyMap<string, ReadonlySet<Digest>>;
}

/**
 * Compares two releases: of bundles with several the last ones, and each step of the later bundle. They are bundles,
 * devices, mirror directories, versions or release images. Reads the payloads and manifests only, and checks no
 * signature. Throws `not-found` for a text that names no release, and the errors of the stores.
 */
export async function diffReleases(
  names: readonly [from: string, to: string],
  access: DiffAccess,
  context: Context,
): Promise<ReleaseDiff> {
  const before = await readSides(names[0], access, context);
  const after = await readSides(names[1], access, context);
  const from = before.at(-1) ?? before[0];
  const steps = after.map((side, index) => {
    const earlier = [...before, ...after.slice(0, index)].filter(({ version }) => isOlder(version, side.version));
    const [latest = from] = earlier.sort((a, b) => compareVersions(b.version, a.version));
    return compareSides(latest, side);
  });
  return { ...compareSides(from, after.at(-1) ?? after[0]), ...(steps.length > 1 && { steps }) };
}

function compareSides(from: Side, to: Side): ReleaseDiff {
  const { images, unchanged } = compareReleases(from.content, to.content);
  const count = (side: Side, has: (digest: Digest) => boolean): BlobCount => {
    const blobs = [...side.sizes].filter(([digest]) => has(digest));
    return { blobs: blobs.length, bytes: blobs.reduce((sum, [, size]) => sum + size, 0) };
  };
  return {
    from: plain(from),
    to: plain(to),
    versions: compareParts(from.content, to.content),
    images: images.map((image) => measure(image, from, to)),
    unchanged,
    shared: count(to, (digest) => from.sizes.has(digest)),
    added: count(to, (digest) => !from.sizes.has(digest)),
    removed: count(from, (digest) => !to.sizes.has(digest)),
  };
}

async function readSides(name: string, access: DiffAccess, context: Context): Promise<[Side, ...Side[]]> {
  const stats = await stat(name).catch(() => undefined);
  if (!stats && parseVolumeName(name) === undefined && !/^[./]|\.tar$/.test(name)) {
    const located = await findRelease(requestOf(name, access), access.sourceOf);
    return [await measureRelease(name, located, access.sourceOf, context)];
  }
  await using bundle = await openBundle(name, context);
  const { content, metadata } = bundle;
  const measureIn = async ({ release }: BundleMetadata): Promise<Side> => {
    const reference = parseReference(release);
    const descriptor = await content.resolve(reference.digest ?? '');
    const located = { reference: { ...reference, digest: descriptor.digest }, descriptor, source: content };
    return await measureRelease(name, located, () => content, context);
  };
  const [first, ...others] = splitReleases(metadata);
  const sides: [Side, ...Side[]] = [await measureIn(first)];
  for (const other of others) sides.push(await measureIn(other));
  return sides;
}

function requestOf(name: string, { arch, repository }: DiffAccess): ReleaseRequest {
  if (isVersion(name)) return { version: name, arch, repository };
  if (/^[^/\s]+\/\S+[:@]\S+$/.test(name)) return { image: name };
  throw new PluginError('not-found', `there is no ${name}`, {
    hint: 'Name a bundle, a device, a mirror directory, a version or a release image.',
  });
}

async function measureRelease(
  name: string,
  { reference, descriptor, source }: FoundRelease,
  sourceOf: DiffAccess['sourceOf'],
  context: Context,
): Promise<Side> {
  const pullspec = formatReference(reference);
  const content = await readPayload(source, descriptor, { repository: repositoryIn(pullspec) }, context);
  const { version, arch, images } = content;
  const own: BundleImage = { name: 'release', reference, tag: releaseTag(version, arch) };
  const components = [...images].map(([component, image]): BundleImage => {
    const { digest } = image;
    return { name: component, reference: { ...image.reference, digest }, tag: componentTag(version, arch, component) };
  });
  const { blobs } = await gatherContents([own, ...components], sourceOf, context);
  const blobsOf = new Map<string, Set<Digest>>();
  for (const [digest, { images: owners }] of blobs) {
    for (const owner of owners) blobsOf.set(owner.name, (blobsOf.get(owner.name) ?? new Set()).add(digest));
  }
  const descriptors = [...blobs.values()].map((blob) => blob.descriptor);
  return {
    name,
    version,
    arch,
    release: pullspec,
    images: components.length + 1,
    blobs: blobs.size,
    bytes: sumSizes(descriptors),
    content,
    sizes: new Map(descriptors.map(({ digest, size }) => [digest, size])),
    blobsOf,
  };
}

function plain({ content: _content, sizes: _sizes, blobsOf: _blobsOf, ...side }: Side): DiffSide {
  return side;
}

function measure(image: ChangedImage, from: Side, to: Side): ImageDiff {
  const sizeIn = ({ sizes, blobsOf }: Side, counts: (digest: Digest) => boolean = () => true): number =>
    [...(blobsOf.get(image.name) ?? [])].filter(counts).reduce((sum, digest) => sum + (sizes.get(digest) ?? 0), 0);
  return {
    ...image,
    ...(image.from && { fromSize: sizeIn(from) }),
    ...(image.to && { toSize: sizeIn(to) }),
    newSize: sizeIn(to, (digest) => !from.sizes.has(digest)),
  };
}

function compareParts(before: Release, after: Release): ReleaseDiff['versions'] {
  const [old, current] = [before.provenance.versions, after.provenance.versions];
  const parts = [...new Set([...Object.keys(old), ...Object.keys(current)])].sort();
  return parts.flatMap((part) => {
    const [from, to] = [old[part], current[part]];
    return from === to ? [] : [{ part, from, to }];
  });
}

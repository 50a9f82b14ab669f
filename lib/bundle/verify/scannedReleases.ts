import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import { isDigest, parseDigest, type Digest } from '../../content/oci/digest.ts';
import { digestIn, repositoryIn } from '../../content/oci/reference.ts';
import { readStreamsOf, type OSImageStreams } from '../../release/osImageStreams.ts';
import { readPayload, type Release } from '../../release/release.ts';
import { isReleaseTag } from '../../release/version.ts';
import type { Bundle } from '../bundle.ts';
import { listSignedImages } from '../bundleTags.ts';
import { describeComponents } from '../metadataFacts.ts';
import { listNamedImages } from '../images.ts';
import { type BundleMetadata, metadataPath, splitReleases } from '../metadata.ts';
import { describeProblem, type Problem } from '../problem.ts';
import type { ScannedContent } from './scan.ts';
import { visitAttachments, Walk } from './walk.ts';

/** A release of a scanned bundle. */
export interface ScannedRelease {
  /** The metadata about this release alone. */
  readonly metadata: BundleMetadata;
  readonly digest: Digest;
  /** Undefined if the payload cannot be read. */
  readonly release: Release | undefined;
  readonly problems: readonly Problem[];
  /** Its operating system streams; undefined if it needs none described in the cluster. */
  readonly streams?: OSImageStreams;
}

/** Reads the payload of each release of a bundle. Throws the errors of reading the bundle. */
export async function readScannedReleases(
  { metadata, content }: Bundle,
  scanned: ScannedContent,
  context: Context,
): Promise<[ScannedRelease, ...ScannedRelease[]]> {
  const [first, ...others] = splitReleases(metadata);
  // Without metadata.json, or with a wrong one, the only release of a bundle is found by its tag.
  const tagged = [...scanned.tags].flatMap(([tag, { digest }]) => (isReleaseTag(tag) && digest ? [digest] : []));
  const scannedReleases: [ScannedRelease, ...ScannedRelease[]] = [
    await findRelease(content, first, others.length === 0 ? tagged : [], scanned, context),
  ];
  for (const each of others) scannedReleases.push(await findRelease(content, each, [], scanned, context));
  return scannedReleases;
}

/**
 * Finds a release: the image that metadata.json names or, if that is not a release, the image that a release tag
 * names. In the second case, metadata.json is wrong.
 */
async function findRelease(
  content: Bundle['content'],
  metadata: BundleMetadata,
  tagged: readonly Digest[],
  scanned: ScannedContent,
  context: Context,
): Promise<ScannedRelease> {
  const named = parseDigest(digestIn(metadata.release));
  const problems: Problem[] = [];
  const note = (digest: Digest, words: string): number =>
    problems.push(describeProblem('inconsistent', 'metadata', digest, words));
  for (const digest of new Set([named, ...tagged])) {
    if (!new Walk(scanned).visit(digest, 'release')) continue;
    try {
      const options = { repository: repositoryIn(metadata.release) };
      const release = await readPayload(content, await content.resolve(digest), options, context);
      if (digest !== named) note(named, `${metadataPath} says that the release is ${named}, and it is ${digest}`);
      const streams = await readStreamsOf(release, () => content, context, { executable: true });
      return { metadata, digest, release, problems, streams };
    } catch (error) {
      if (!isPluginError(error) || ['interrupted', 'not-readable'].includes(error.code)) throw error;
      if (digest === named) note(digest, error.message);
    }
  }
  return { metadata, digest: named, release: undefined, problems };
}

/** Returns the version of a release, and its pullspec by digest. */
export function nameRelease({ metadata, digest, release }: ScannedRelease): { version: string; release: string } {
  return {
    version: release?.version ?? metadata.version,
    release: `${repositoryIn(metadata.release)}@${digest}`,
  };
}

/**
 * Returns the expected images with their names: by the releases that could be read, else by metadata.json. If there
 * are several releases, the names begin with the version.
 */
export function listExpectedImages(
  { extraImages, images }: BundleMetadata,
  scannedReleases: readonly [ScannedRelease, ...ScannedRelease[]],
): ReadonlyMap<Digest, readonly string[]> {
  const [first, ...others] = scannedReleases.map((each) => ({
    ...nameRelease(each),
    components: each.release ? describeComponents(each.release) : each.metadata.components,
  }));
  if (!first) return new Map();
  const isRead = scannedReleases.every(({ release }) => release !== undefined);
  const expected = new Map<Digest, string[]>();
  const releases = others.length > 0 ? [first, ...others] : undefined;
  for (const { name, pullspec } of listNamedImages({ ...first, images: isRead ? extraImages : images, releases })) {
    const image = digestIn(pullspec);
    // A pullspec without a digest is already reported as a problem of metadata.json.
    if (isDigest(image)) expected.set(image, [...(expected.get(image) ?? []), name]);
  }
  return expected;
}

/** Returns the tags that the images of some releases have in a bundle. */
export function listExpectedTags(bundle: Bundle, releases: readonly Release[]): ReadonlyMap<string, Digest> {
  const images = listSignedImages(
    bundle,
    releases.map((release) => ({ release })),
  ).flat();
  // If two images have the same tag, it belongs to the release.
  return new Map(images.map(({ tag, reference }) => [tag, reference.digest] as const).toReversed());
}

/** Compares the bytes that each release adds to a bundle with the metadata. */
export function checkReleaseBytes(
  metadata: BundleMetadata,
  scanned: ScannedContent,
  scannedReleases: readonly ScannedRelease[],
): Problem[] {
  const walk = new Walk(scanned);
  const measure = (): number => [...walk.blobs.values()].reduce((total, size) => total + size, 0);
  return (metadata.releases ?? []).flatMap(({ version, bytes }, index) => {
    const before = measure();
    const { images = [] } = scannedReleases[index]?.metadata ?? {};
    for (const image of images) {
      const digest = digestIn(image);
      if (isDigest(digest)) walk.visit(digest, image);
    }
    visitAttachments(scanned, walk);
    const actual = measure() - before;
    const words = `${metadataPath} says that ${version} adds ${bytes} bytes, and it adds ${actual}`;
    return actual === bytes ? [] : [describeProblem('inconsistent', 'metadata', metadataPath, words)];
  });
}

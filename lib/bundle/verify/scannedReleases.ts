import { isDigest, parseDigest, type Digest, digestIn, repositoryIn, attachedTo, attachmentName } from '#content/oci';
import type { Context } from '#context';
import { isPluginError } from '#errors';
import { readStreamsOf, type OSImageStreams } from '#release/payload';
import { readPayload, type Release } from '#release/release';
import { isReleaseTag } from '#release/version';
import { listNamedImages } from '../metadata/images.ts';
import { describeComponents, type BundleMetadata, metadataPath, splitReleases } from '../metadata/metadata.ts';
import { listSignedImages } from '../metadata/originalNames.ts';
import { type Bundle, describeProblem, type Problem, type BundleFile } from '../open/bundle.ts';
import { type ScannedContent, visitAttachments, Walk, type VisitedAttachments } from './scan.ts';

/** A release of a scanned bundle. */
interface ScannedRelease {
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

/**
 * Checks that each image has its tag, that each tag points to its image or an attachment, and that there are no other
 * tags. `expected` has the tags of the releases and of the extra images.
 */
export function checkTags(
  bundle: Bundle,
  { tags }: ScannedContent,
  expected: ReadonlyMap<string, Digest>,
  { images }: VisitedAttachments,
  walk: Walk,
): Problem[] {
  const problems: Problem[] = [];
  const roots = new Set([...expected].flatMap(([name, digest]) => (isReleaseTag(name) ? [digest] : [])));
  for (const [name, { path, digest, leadsTo }] of tags) {
    const expectedDigest = expected.get(name);
    const attached = attachedTo(name);
    if (digest === undefined) {
      problems.push(
        describeProblem('corrupt', 'tag', path, `the tag ${name} leads to ${leadsTo}, which is not a manifest`),
      );
    } else if (images.has(name)) {
      const words = `the tag ${name} leads to an image that can run, and not to the ${attachmentName(name)}`;
      problems.push(describeProblem('unexpected', 'tag', path, `${words} of ${attached ?? ''}`));
    } else if (expectedDigest !== undefined && expectedDigest !== digest) {
      problems.push(
        describeProblem('corrupt', 'tag', path, `the tag ${name} leads to ${digest} instead of ${expectedDigest}`),
      );
    } else if (
      expectedDigest === undefined &&
      !attached &&
      (bundle.form === 'tar' || (roots.has(digest) && isReleaseTag(name)))
    ) {
      problems.push(describeProblem('unexpected', 'tag', path, `the tag ${name} is not a tag of this release`));
    } else if (!walk.manifests.has(attached ?? digest) && !walk.isPartial && !isUnpackedDelta(bundle)) {
      problems.push(describeProblem('unexpected', 'tag', path, `the tag ${name} belongs to no image of this bundle`));
    }
  }
  // Other tools, and older versions of oc, write other tags.
  const missing = bundle.described && !bundle.damage ? [...expected].filter(([name]) => !tags.has(name)) : [];
  return [
    ...problems,
    ...missing.map(([name, digest]) =>
      describeProblem('missing', 'tag', name, `the tag ${name} of ${digest} is missing`),
    ),
  ];
}

/**
 * Lists the content that no image needs, and special files. If manifests are missing, skips content that they may need.
 */
export function listUnreferenced(bundle: Bundle, scanned: ScannedContent, walk: Walk): Problem[] {
  const { manifests, blobs, others } = scanned;
  if (isUnpackedDelta(bundle)) return others.filter(({ isSpecial }) => isSpecial).map(describeOther);
  const expected = new Set(bundle.metadata.blobs.map(({ digest }) => digest));
  const mayBeNeeded = (digest: Digest): boolean => walk.isPartial && (!bundle.described || expected.has(digest));
  const spare =
    (kind: 'manifest' | 'blob') =>
    (digest: Digest): Problem =>
      describeProblem('unexpected', kind, digest, `the ${kind} ${digest} belongs to no image of this bundle`);
  return [
    ...[...manifests.keys()].filter((digest) => !walk.manifests.has(digest) && !walk.isPartial).map(spare('manifest')),
    // A mirror directory has its manifests also among the blobs.
    ...[...blobs.keys()]
      .filter((digest) => !walk.blobs.has(digest) && !(bundle.form === 'directory' && manifests.has(digest)))
      .filter((digest) => !mayBeNeeded(digest))
      .map(spare('blob')),
    ...others.map(describeOther),
  ];
}

function describeOther({ path, target, isSpecial }: BundleFile): Problem {
  const what = isSpecial ? 'is a pipe, socket or device' : target !== undefined ? `is a link to ${target}` : undefined;
  const words = what === undefined ? 'does not belong in a bundle' : `${what}, which does not belong in a bundle`;
  return describeProblem('unexpected', 'file', path, `${path} ${words}`);
}

/** Returns whether a bundle is a delta in a mirror directory, which also has the content of its base. */
function isUnpackedDelta({ form, metadata }: Bundle): boolean {
  return form === 'directory' && metadata.base !== undefined;
}

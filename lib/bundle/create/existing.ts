import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { type ArchiveDigests, findArchive } from '#content/archive';
import { type Digest, formatReference, type Reference } from '#content/oci';
import type { Context } from '#context';
import { asFailure } from '#errors';
import { describeSignatures, type BundleMetadata, splitReleases } from '../metadata/metadata.ts';
import type { Bundle } from '../open/bundle.ts';
import { openBundle } from '../open/open.ts';
import { readCurrentDigest } from '../open/sidecars.ts';
import type { VerifyTrust } from '../open/signatureCheck.ts';
import { checkSigned } from '../open/signedBundle.ts';
import { describeVolumes } from '../open/split.ts';
import { verifyBundle } from '../verify.ts';
import { type Base, listBlobs } from './base.ts';

/** The content and the form that a finished bundle must have to be kept. */
interface ExpectedBundle {
  /** The releases in their order. */
  readonly references: readonly (Reference & { readonly digest: Digest })[];
  /** The pullspecs by digest. */
  readonly extraImages: readonly string[];
  /** The base release, whose blobs the bundle may leave out. */
  readonly base: Base | undefined;
  readonly reports: BundleMetadata['reports'];
  readonly volumeSize: number | undefined;
}

/** A finished bundle with the expected content, to keep. */
export interface SameBundle {
  readonly kind: 'same';
  /** The metadata, with the verified signatures. */
  readonly metadata: BundleMetadata;
  readonly digest: Digest;
  /** The computed digests if every byte was read. If not, `digest` is that of the .sha256 file. */
  readonly computed?: ArchiveDigests;
}

/** A finished bundle with other content, or a corrupt one. A new bundle replaces it, and takes its blobs. */
interface OtherBundle {
  readonly kind: 'other';
  readonly blobs: ReadonlySet<Digest>;
}

/**
 * The finished bundle at the path of a new one. An unfinished one is not part of this: only `ArchiveWriter` can tell
 * whether it has the same layout, and only under the lock.
 */
export type ExistingBundle = SameBundle | OtherBundle;

/**
 * Finds the finished bundle at a path, and compares its metadata, entries and size with what is expected. Reads every
 * byte if requested, or if the .sha256 or .yaml file is missing or older. An unsigned bundle is the same only if
 * unsigned releases are allowed. Warns if a bundle is not the same. Writes nothing. Returns undefined without a bundle.
 */
export async function findExisting(
  path: string,
  expected: ExpectedBundle,
  { verifyExisting, dryRun }: { readonly verifyExisting: boolean; readonly dryRun: boolean },
  trust: VerifyTrust,
  context: Context,
): Promise<ExistingBundle | undefined> {
  if (!(await findArchive(path).catch(() => undefined))) return undefined;
  let blobs: readonly Digest[] = [];
  const other = (reason: string): ExistingBundle => {
    context.log('warn', reason);
    return { kind: 'other', blobs: new Set(blobs) };
  };
  try {
    await using bundle = await openBundle(path, context);
    blobs = listBlobs(bundle);
    const difference = differenceOf(bundle, expected);
    if (difference !== undefined)
      return other(`${path} ${difference}: ${dryRun ? 'it would be replaced' : 'it is replaced'}`);
    // The signatures that metadata.json names prove nothing, because anyone can write them.
    const { signatures } = await checkSigned(bundle, trust, context);
    const metadata = { ...bundle.metadata, signatures: describeSignatures(signatures) };
    const currentDigest = verifyExisting ? undefined : await readCurrentDigest(path, bundle.volumes);
    if (currentDigest) return { kind: 'same', metadata, digest: currentDigest };
    const { digest, volumes, problems } = await verifyBundle(bundle, { assumeBase: true }, context);
    if (!digest || problems.length > 0)
      return other(`${path} is corrupt (${problems[0]?.message ?? ''}): creating it again`);
    return { kind: 'same', metadata, digest, computed: { digest, volumes } };
  } catch (error) {
    return other(`${asFailure(error).message}; creating it again`);
  }
}

/**
 * Returns how a finished bundle differs from the expected one, as the rest of a sentence that begins with its path;
 * undefined if it does not.
 */
function differenceOf({ path, metadata, size: actual }: Bundle, expected: ExpectedBundle): string | undefined {
  const { images: all, extraImages, size, volumes, base } = metadata;
  const { volumeSize = Infinity } = expected;
  const expectedVolumes = describeVolumes({ name: basename(path), volumeSize }, size);
  const releases = splitReleases(metadata).map(({ release }) => release);
  const expectedReleases = expected.references.map(formatReference);
  if (releases.join() !== expectedReleases.join())
    return `has ${releases.join(', ')} instead of ${expectedReleases.join(', ')}`;
  const added = expected.extraImages.filter((image) => !all.includes(image));
  const dropped = extraImages.filter((image) => !expected.extraImages.includes(image));
  const images = [
    ...(added.length > 0 ? [`lacks ${added.join(', ')}`] : []),
    ...(dropped.length > 0 ? [`has ${dropped.join(', ')} in addition`] : []),
  ];
  if (images.length > 0) return images.join(' and ');
  if (!isDeepStrictEqual(metadata.reports, expected.reports)) return 'has another place or key for reports';
  if (base?.release !== expected.base?.release) return 'has another base';
  if (base?.blobs.some(({ digest }) => !expected.base?.blobs.has(digest)))
    return 'lacks blobs that the base does not have';
  if (formOf(volumes) !== formOf(expectedVolumes)) {
    return expectedVolumes ? 'is not in volumes of that size' : 'is in volumes';
  }
  return size === actual ? undefined : `has ${actual} bytes and should have ${size}`;
}

/** Returns the sizes of the volumes as a text to compare. */
function formOf(volumes: BundleMetadata['volumes']): string {
  return volumes?.map(({ size }) => size).join() ?? '';
}

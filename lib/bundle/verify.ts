/** Verification of every byte, its receipt, and the updates that a bundle allows. */

import { basename } from 'node:path';
import { hashVolume } from '#content/archive';
import { sumSizes, type Digest } from '#content/oci';
import { type Context, checkInterrupted } from '#context';
import { isPluginError } from '#errors';
import type { OSImageStreams } from '#release/payload';
import type { Provenance } from '#release/release';
import type { VerifiedSignature } from '#release/signature';
import type { NamedResult } from '#release/sigstore';
import { findExcess, listConfig, parseConfig } from './metadata/bundledConfig.ts';
import { announceMirrors, describedSubject, checkConfig, signatureSubjectOf } from './metadata/configCheck.ts';
import { metadataPath, type SkippedImage, type BlobRecord } from './metadata/metadata.ts';
import { type Bundle, describeProblem, type Problem } from './open/bundle.ts';
import { baseHint, descriptorOf, listMissingBlobs } from './open/deltaBase.ts';
import { readDigests } from './open/sidecars.ts';
import {
  checkBlobs,
  checkReleaseFacts,
  checkPolicies,
  findRefusedImages,
  findExtraImages,
  verifySignatures,
  verifyUntrusted,
  type VerifyTrust,
} from './open/signatureCheck.ts';
import { findChanges, type ReleaseChanges } from './verify/changes.ts';
import { scanContent, type ScannedContent, type ScannedItem, visitAttachments, Walk } from './verify/scan.ts';
import {
  checkReleaseBytes,
  listExpectedImages,
  listExpectedTags,
  nameRelease,
  readScannedReleases,
  checkTags,
  listUnreferenced,
} from './verify/scannedReleases.ts';

export { openReceipt, readSigningKey, signReceipt, type ReceiptStatement } from './verify/receipt.ts';
export { Walk, scanContent } from './verify/scan.ts';
export { planUpdate, type UpdatePlan } from './verify/updatePlan.ts';

/** A digest that the whole bundle must have, and its source: a file name or an option. */
export interface ExpectedDigest {
  readonly digest: Digest;
  readonly source: string;
}

/** Options of verifyBundle. By default, it compares all content with its digests, and checks no signature. */
interface VerifyOptions {
  /** The keys to verify the signature with; undefined skips the signature. */
  readonly trust?: VerifyTrust;
  /** Digests to compare the whole file with, in addition to the one in `<bundle>.sha256`. */
  readonly expected?: readonly ExpectedDigest[];
  /** Assume that the base has all blobs that a delta bundle lacks. */
  readonly assumeBase?: boolean;
}

/** The result of verifying a bundle. The bundle is good if there are no problems. */
export interface VerifyReport {
  readonly path: string;
  readonly version: string;
  readonly arch: string;
  /** The release image by digest; of several releases, the last one. */
  readonly release: string;
  /** All releases in the order of the updates, if there are several. */
  readonly releases?: readonly { readonly version: string; readonly release: string }[];
  /** The digest of the whole file; undefined for a directory, and for a truncated tar. */
  readonly digest: Digest | undefined;
  /** The digest of each of its volumes; empty for a bundle in one file. */
  readonly volumes: readonly Digest[];
  /** The other sources that have the same digest. */
  readonly confirmedBy: readonly string[];
  /** The number of expected images (of the release and extra ones), and of complete images. */
  readonly images: { readonly expected: number; readonly whole: number };
  /** The images by digest, with the names of their components. */
  readonly contents: readonly {
    readonly digest: Digest;
    readonly names: readonly string[];
    readonly isWhole: boolean;
  }[];
  /** The number of attachments: sigstore signatures, attestations, SBOMs and lists of referrers. */
  readonly attachments: number;
  /** The tags of these. */
  readonly attachmentTags: readonly string[];
  /** The number of manifests and blobs that images and attachments need. */
  readonly manifests: number;
  readonly blobs: number;
  /** The images by digest that the release signature does not cover. */
  readonly extraImages: readonly string[];
  /** The images of operators that the bundle says it lacks; absent if there are none. */
  readonly skippedImages?: readonly SkippedImage[];
  /** The version of the base release, if the bundle is a delta. */
  readonly base: string | undefined;
  /**
   * The blobs that only the nodes of a site have, by its report. They were not checked. Absent for any other bundle.
   */
  readonly heldBySite?: { readonly blobs: number; readonly bytes: number };
  /** The differences from the base of a delta bundle, if the base is there. */
  readonly changes: ReleaseChanges | undefined;
  /** The number of bytes that were read. */
  readonly bytes: number;
  /** The good signatures of the releases, and of their images. */
  readonly signatures: readonly VerifiedSignature[];
  /** The sigstore signatures of the images, by the image policies of their releases. */
  readonly policies: readonly NamedResult[];
  /** The provenance; undefined if the payload could not be read. */
  readonly provenance: Provenance | undefined;
  /** The operating system streams of the releases that need them described in the cluster; absent if none does. */
  readonly osImageStreams?: readonly OSImageStreams[];
  readonly problems: readonly Problem[];
  /** Unusual properties of a bundle that may still be good. */
  readonly warnings: readonly VerifyWarning[];
}

/**
 * A warning. `repacked`: another tar program packed the bundle, but the files in it are the same. `not-compared`: the
 * .sha256 file beside the bundle has no digest of it.
 */
interface VerifyWarning {
  readonly kind: 'repacked' | 'not-compared';
  readonly message: string;
}

/**
 * Verifies a bundle from the signature to the last blob. Reads everything once, and the files of the releases twice.
 * The signature covers each release, the release its components, and each manifest its content; metadata.json proves
 * nothing. Lists all problems. Reads blobs that a delta bundle lacks from the bases of addBases. Throws the errors of
 * reading the bundle or a keyring.
 */
export async function verifyBundle(bundle: Bundle, options: VerifyOptions, context: Context): Promise<VerifyReport> {
  const { metadata, described } = bundle;
  const { trust } = options;
  const own = await scanContent(bundle, context);
  const compared = await compareDigests(bundle, own, options.expected ?? [], context);
  const problems: (readonly Problem[])[] = [checkForm(bundle, own), compared.problems];
  const assumed = assumeBase(bundle, own);
  const { scanned, heldBySite } =
    options.assumeBase === true ? { scanned: assumed, heldBySite: [] } : await scanBase(bundle, own, context);

  // The releases of a delta bundle are readable without its base.
  const scannedReleases = await readScannedReleases(bundle, assumed, context);
  const releases = scannedReleases.flatMap(({ release }) => release ?? []);
  const streams = scannedReleases.flatMap((each) => each.streams ?? []);
  const walk = new Walk(scanned);
  for (const { digest, problems: own } of scannedReleases) {
    walk.visit(digest, 'release');
    problems.push(own);
  }

  const roots = listExpectedImages(metadata, scannedReleases);
  const contents = [...roots].map(([image, names]) => {
    return { digest: image, names, isWhole: names.map((name) => walk.visit(image, name)).every(Boolean) };
  });
  const attached = visitAttachments(scanned, walk);
  problems.push(walk.problems.map((problem) => explainByBase(bundle, problem)));
  const isRead = releases.length === scannedReleases.length;
  if (isRead) problems.push(checkTags(bundle, scanned, listExpectedTags(bundle, releases), attached, walk));
  for (const { metadata: stated, release } of scannedReleases)
    if (release && described) problems.push(checkReleaseFacts(stated, release));
  if (described && !walk.isPartial)
    problems.push(checkBlobs(metadata, walk.blobs), checkReleaseBytes(metadata, scanned, scannedReleases));
  problems.push(listUnreferenced(bundle, scanned, walk));

  const config = await parseConfig(scanned.config, context);
  const excess = findExcess(listConfig(bundle));
  const judged = trust && (await verifySignatures(bundle, scannedReleases, config.signatures, trust, context));
  const subject = isRead ? signatureSubjectOf(releases) : describedSubject(metadata);
  const others =
    trust && bundle.form === 'directory'
      ? await verifyUntrusted(config.signatures, subject.digests, releases, trust, context)
      : [];
  const good = [...(judged?.signatures ?? []), ...others];
  const verdict = checkConfig(bundle, config, subject, { good, lenient: trust?.allowUnsigned ?? true });
  announceMirrors(verdict, context);
  problems.push(excess ? [excess] : verdict.problems, judged?.problems ?? []);
  if (trust?.requireSignedImages === true) problems.push(findExtraImages(metadata));
  const policies =
    trust && isRead
      ? await checkPolicies(
          bundle,
          releases.map((release) => ({ release })),
          context,
        )
      : [];
  if (trust?.allowUnsigned === false) problems.push(findRefusedImages(policies));
  const last = scannedReleases.at(-1) ?? scannedReleases[0];
  return {
    path: bundle.path,
    ...nameRelease(last),
    arch: last.release?.arch ?? metadata.arch,
    ...(metadata.releases && { releases: scannedReleases.map(nameRelease) }),
    digest: scanned.digest,
    volumes: scanned.volumes,
    confirmedBy: compared.confirmedBy,
    images: { expected: roots.size, whole: contents.filter(({ isWhole }) => isWhole).length },
    contents,
    attachments: attached.tags.length,
    attachmentTags: attached.tags,
    manifests: walk.manifests.size,
    blobs: walk.blobs.size,
    extraImages: metadata.extraImages,
    ...(metadata.skippedImages && { skippedImages: metadata.skippedImages }),
    base: metadata.base?.version,
    ...(metadata.base?.images && { heldBySite: { blobs: heldBySite.length, bytes: sumSizes(heldBySite) } }),
    changes: last.release && (await findChanges(bundle, last.release, context)),
    bytes: scanned.bytes,
    signatures: judged?.signatures ?? [],
    policies,
    provenance: last.release?.provenance,
    ...(streams.length > 0 && { osImageStreams: streams }),
    problems: problems.flat(),
    warnings: [...listWarnings(bundle, own), ...compared.warnings],
  };
}

/** Returns problems of the tar itself. */
function checkForm(
  { path, form, metadata, size, trailing, damage, isCut, isRepacked, faults }: Bundle,
  { strayBytes, trailingBytes }: ScannedContent,
): Problem[] {
  const inTar = (kind: Problem['kind'], message: string): Problem => describeProblem(kind, 'bundle', path, message);
  if (faults.length > 0) return [...faults];
  if (isCut) {
    const share = String(Math.floor((100 * size) / metadata.size));
    const words = `only the first ${size} of its ${metadata.size} bytes (${share}%) can be used`;
    return [inTar('truncated', `${path} is cut short: ${words}`)];
  }
  if (damage) return [inTar('corrupt', `${damage.message}; nothing after byte ${size} can be read`)];
  const lengths = `${metadataPath} says that the tar has ${metadata.size} bytes, and it has ${size}`;
  return [
    ...(form === 'tar' && !isRepacked && metadata.size !== size ? [inTar('inconsistent', lengths)] : []),
    ...(trailingBytes > 0 ? [inTar('unexpected', `${trailing} bytes follow the end of the tar`)] : []),
    ...(strayBytes > 0 ? [inTar('corrupt', `${strayBytes} bytes between the files of the tar are corrupt`)] : []),
  ];
}

/** Returns warnings about differences from a tar of `create` that do not change the extracted files. */
function listWarnings(
  { path, damage, isRepacked, trailing }: Bundle,
  { trailingBytes }: ScannedContent,
): VerifyWarning[] {
  if (damage || trailingBytes > 0 || (!isRepacked && trailing === 0)) return [];
  const why = isRepacked
    ? 'its headers differ from the headers that create writes (owners, modes, times, folders)'
    : `${trailing} zeros follow its end`;
  return [
    { kind: 'repacked', message: `${path} was packed again: ${why}. Every tar program extracts the same files.` },
  ];
}

/**
 * Compares the digests of the whole file and of the volumes with the .sha256 file if it has them, and the digest of the
 * whole file with the given digests.
 */
async function compareDigests(
  { path, volumes }: Bundle,
  { digest, volumes: actual }: ScannedContent,
  given: readonly ExpectedDigest[],
  context: Context,
): Promise<{ confirmedBy: string[]; problems: Problem[]; warnings: VerifyWarning[] }> {
  const digests = await readDigests(path);
  const noted = digests ?? new Map<string, Digest>();
  const whole = noted.get(basename(path));
  const isNoted = whole !== undefined || volumes.some((volume) => noted.has(basename(volume.path)));
  const warnings: VerifyWarning[] = [];
  if (digests && !isNoted) {
    const message = `${path}.sha256 has no digest of ${basename(path)}, so it was not compared.`;
    warnings.push({ kind: 'not-compared', message });
  }
  const corrupt: Problem[] = [];
  for (const [index, volume] of (volumes.length > 1 ? volumes : []).entries()) {
    const notedDigest = noted.get(basename(volume.path));
    if (notedDigest === undefined) continue;
    // Nothing is read after the place where a tar is damaged.
    const own = actual[index] ?? (await hashVolume(volume, context));
    const words = `the volume ${volume.path} is corrupt: its digest is ${own}, and ${path}.sha256 says ${notedDigest}`;
    if (notedDigest !== own) corrupt.push(describeProblem('corrupt', 'volume', basename(volume.path), words));
  }
  if (digest === undefined) return { confirmedBy: [], problems: corrupt, warnings };
  // The problem of a volume is more precise than that of the whole file.
  const expected = [...(whole && corrupt.length === 0 ? [{ digest: whole, source: `${path}.sha256` }] : []), ...given];
  const { same = [], other = [] } = Object.groupBy(expected, (each) => (each.digest === digest ? 'same' : 'other'));
  return {
    warnings,
    confirmedBy: same.map(({ source }) => source),
    problems: [
      ...corrupt,
      ...other.map(({ digest: expectedDigest, source }) =>
        describeProblem(
          'corrupt',
          'bundle',
          path,
          `the digest of the whole file is ${digest}, and ${source} says ${expectedDigest}`,
        ),
      ),
    ],
  };
}

/** Adds the blobs of the base to the scanned content of a delta bundle, without reading them. */
function assumeBase({ metadata }: Bundle, scanned: ScannedContent): ScannedContent {
  const leftOut = metadata.base?.blobs ?? [];
  const assumed = leftOut.map(({ digest, size }): [Digest, ScannedItem] => [digest, { path: digest, size }]);
  return { ...scanned, blobs: new Map([...assumed, ...scanned.blobs]) };
}

/** The scanned content with that of the base, and the blobs that only the nodes of a site have. */
interface CompletedScan {
  readonly scanned: ScannedContent;
  readonly heldBySite: readonly BlobRecord[];
}

/**
 * Reads and checks the blobs that a delta bundle lacks if a base has them, and adds them to the scanned content. Adds
 * the blobs that the nodes of its site have without reading them.
 */
async function scanBase(bundle: Bundle, scanned: ScannedContent, context: Context): Promise<CompletedScan> {
  const { base } = bundle.metadata;
  if (!base) return { scanned, heldBySite: [] };
  const absent = await listMissingBlobs(bundle);
  const lacking = new Set(absent.map(({ digest }) => digest));
  const unscannedBlobs = base.blobs.filter(({ digest }) => !lacking.has(digest) && !scanned.blobs.has(digest));
  const bytes = sumSizes(unscannedBlobs);
  const total = scanned.bytes + bytes;
  context.onEvent({ kind: 'plan', images: 0, blobs: unscannedBlobs.length, bytes: total, present: 0 });
  const blobs = new Map(scanned.blobs);
  for (const blob of unscannedBlobs) {
    checkInterrupted(context.signal);
    let size = 0;
    try {
      for await (const chunk of await bundle.content.fetch(descriptorOf(blob))) {
        size += (chunk as Buffer).length;
        context.onEvent({ kind: 'bytes', digest: blob.digest, bytes: (chunk as Buffer).length });
      }
      blobs.set(blob.digest, { path: blob.digest, size });
    } catch (error) {
      if (!isPluginError(error) || !['digest-mismatch', 'size-mismatch'].includes(error.code)) throw error;
      blobs.set(blob.digest, { path: blob.digest, size, fault: 'corrupt' });
    }
  }
  const heldBySite = base.images ? absent : [];
  for (const { digest, size } of heldBySite) blobs.set(digest, { path: digest, size });
  return { scanned: { ...scanned, bytes: scanned.bytes + bytes, blobs }, heldBySite };
}

/** Adds the base to a problem of a blob that a delta bundle lacks. */
function explainByBase({ metadata }: Bundle, problem: Problem): Problem {
  const { subject, what, kind, images } = problem;
  if (subject !== 'blob' || !metadata.base?.blobs.some(({ digest }) => digest === what)) return problem;
  const words = `the blob ${what} is ${kind === 'missing' ? 'missing' : 'corrupt'} in the base ${metadata.base.version}`;
  return { ...describeProblem(kind, subject, what, words, baseHint(metadata)), images };
}

import { readAllSignatures } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError, messageOf } from '../errors.ts';
import { childrenOf, isManifest, parseManifest } from '../oci/descriptor.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { parseReference } from '../oci/reference.ts';
import { loadKeyring } from '../release/keyring.ts';
import { readPayload, type Release } from '../release/release.ts';
import type { VerifiedSignature } from '../release/signature.ts';
import type { FetchFile } from '../release/signatureStore.ts';
import { verifyRelease } from '../release/trust.ts';
import { releaseRepository } from '../store/directory.ts';
import { describeRelease } from './facts.ts';
import { metadataPath } from './metadata.ts';
import type { Bundle } from './open.ts';
import { readDigestFile } from './sidecars.ts';
import { scanContent, type ScannedContent } from './scan.ts';

/** Something that is wrong with a bundle. */
export interface Problem {
  readonly kind: 'missing' | 'truncated' | 'altered' | 'superfluous' | 'inconsistent' | 'unsigned' | 'untrusted';
  /** A digest, or a path in the bundle. */
  readonly what: string;
  /** The images that need it. */
  readonly images: readonly string[];
  readonly message: string;
}

/** What a check of a bundle found; it is good when there are no problems. */
export interface VerifyReport {
  /** Of the whole tar; absent for a directory. */
  readonly digest: Digest | undefined;
  /** How many images, manifests and blobs are whole, and how many bytes were read. */
  readonly images: number;
  readonly manifests: number;
  readonly blobs: number;
  readonly bytes: number;
  readonly signatures: readonly VerifiedSignature[];
  readonly problems: readonly Problem[];
}

/** Whom to believe about a bundle. */
export interface VerifyTrust {
  readonly keyrings: readonly string[];
  readonly fingerprints: readonly string[];
  readonly allowUnsigned: boolean;
  /** A signature store to ask where the bundle has no signature; without it nothing is asked. */
  readonly store?: string | undefined;
  readonly fetchFile: FetchFile;
}

/**
 * Checks a bundle from the signature to the last blob, reading everything once: the signature vouches for the release, the
 * release for its components, each manifest for what it points to. Everything that is wrong is listed. Without `trust` the
 * signature is not looked at. `expected` is a digest that the whole file must have, besides what `<bundle>.sha256` says.
 */
export async function verifyBundle(
  bundle: Bundle,
  trust: VerifyTrust | undefined,
  expected: Digest | undefined,
  context: Context,
): Promise<VerifyReport> {
  const scanned = await scanContent(bundle, context);
  const problems = [...scanned.problems];
  if (scanned.digest) problems.push(...(await compareDigest(bundle, scanned.digest, expected)));
  const graph = walkImages(bundle, scanned);
  problems.push(...graph.problems);
  const { release, problems: inconsistencies } = await compareRelease(bundle, scanned, context);
  problems.push(...inconsistencies);
  const judged = trust
    ? await judgeSignature(bundle, scanned, release, trust, context)
    : { signatures: [], problems: [] };
  problems.push(...judged.problems);
  return {
    digest: scanned.digest,
    images: graph.images,
    manifests: scanned.manifests.size,
    blobs: scanned.blobs.size,
    bytes: scanned.bytes,
    signatures: judged.signatures,
    problems,
  };
}

async function compareDigest(bundle: Bundle, digest: Digest, expected: Digest | undefined): Promise<Problem[]> {
  const noted = await readDigestFile(bundle.path);
  const differing = [
    ...(noted !== undefined && noted !== digest ? [`${bundle.path}.sha256 says ${noted}`] : []),
    ...(expected !== undefined && expected !== digest ? [`${expected} was expected`] : []),
  ];
  return differing.map((says) => {
    return {
      kind: 'altered',
      what: bundle.path,
      images: [],
      message: `the digest of ${bundle.path} is ${digest}, and ${says}`,
    };
  });
}

/** Follows every image of the metadata down to its blobs; then lists what none of them needs. */
function walkImages(
  bundle: Bundle,
  { manifests, blobs, failed }: ScannedContent,
): { images: number; problems: Problem[] } {
  const { metadata } = bundle;
  const names = new Map(Object.entries(metadata.components).map(([name, pullspec]) => [pullspec, name]));
  const reached = new Set<Digest>();
  const lacking = new Map<Digest, Problem & { images: string[] }>();
  const lack = (digest: Digest, image: string, kind: 'missing' | 'truncated' | 'altered', message: string): void => {
    const known = lacking.get(digest) ?? { kind, what: digest, images: [], message };
    lacking.set(digest, known);
    if (!known.images.includes(image)) known.images.push(image);
  };
  let whole = 0;
  const visit = (digest: Digest, image: string): boolean => {
    reached.add(digest);
    const bytes = manifests.get(digest);
    if (!bytes) {
      lack(
        digest,
        image,
        failed.get(digest) ?? 'missing',
        `the manifest ${digest} is ${failed.get(digest) ?? 'missing'}`,
      );
      return false;
    }
    let isWhole = true;
    for (const child of childrenOf(parseManifest(bytes, digest))) {
      if (isManifest(child)) {
        isWhole = visit(child.digest, image) && isWhole;
        continue;
      }
      reached.add(child.digest);
      const size = blobs.get(child.digest);
      if (size === child.size) continue;
      const kind = size === undefined ? (failed.get(child.digest) ?? 'missing') : 'altered';
      lack(child.digest, image, kind, `the blob ${child.digest} is ${kind}`);
      isWhole = false;
    }
    return isWhole;
  };
  for (const pullspec of new Set([metadata.release, ...metadata.images, ...Object.values(metadata.components)])) {
    const { digest } = parseReference(pullspec);
    const name = pullspec === metadata.release ? 'release' : (names.get(pullspec) ?? pullspec);
    if (digest && visit(digest, name)) whole += 1;
  }
  const superfluous: Problem[] = [];
  for (const { path, target } of bundle.files) {
    const [, kind = '', name = ''] = new RegExp(`^v2/${releaseRepository}/(manifests|blobs)/([^/]+)$`).exec(path) ?? [];
    const attached = /^sha256-([0-9a-f]{64})\.sig$/.exec(name)?.[1];
    if (kind === 'manifests' && target !== undefined && isDigest(target)) {
      if (attached !== undefined && reached.has(`sha256:${attached}`))
        visit(target, `the sigstore attachment of sha256:${attached}`);
      else if (!reached.has(target)) superfluous.push(spare(path, `the tag ${name} names no image of this bundle`));
    }
  }
  for (const { path } of bundle.files) {
    const [, name = ''] = new RegExp(`^v2/${releaseRepository}/(?:manifests|blobs)/([^/]+)$`).exec(path) ?? [];
    const digest = name.replace(/^sha256-/, 'sha256:');
    const isKnown = isDigest(digest) ? reached.has(digest) || failed.has(digest) : name !== '';
    if (!isKnown && path !== metadataPath && !path.startsWith('config/'))
      superfluous.push(spare(path, `${path} belongs to no image of this bundle`));
  }
  return { images: whole, problems: [...lacking.values(), ...superfluous] };
}

function spare(what: string, message: string): Problem {
  return { kind: 'superfluous', what, images: [], message };
}

/** Compares what metadata.json says with what the payload, which the signature vouches for, says itself. */
async function compareRelease(
  bundle: Bundle,
  scanned: ScannedContent,
  context: Context,
): Promise<{ release: Release | undefined; problems: Problem[] }> {
  const { metadata, content } = bundle;
  const { registry, repository, digest } = parseReference(metadata.release);
  // Missing or altered content was reported already.
  if (!digest || !scanned.manifests.has(digest)) return { release: undefined, problems: [] };
  const inconsistent = (message: string): Problem => ({
    kind: 'inconsistent',
    what: metadataPath,
    images: [],
    message,
  });
  try {
    const release = await readPayload(
      content,
      await content.resolve(digest),
      { repository: `${registry}/${repository}` },
      context,
    );
    const facts = describeRelease({ release, signatures: new Map() }, metadata.extraImages, metadata.tool);
    const fields = ['version', 'arch', 'images', 'components', 'osImages', 'previous'] as const;
    const differing = fields.filter((field) => JSON.stringify(facts[field]) !== JSON.stringify(metadata[field]));
    const problems = differing.map((field) =>
      inconsistent(`metadata.json has other ${field} than the release payload`),
    );
    if (metadata.size !== bundle.size && bundle.form === 'tar' && !bundle.damage) {
      problems.push(
        inconsistent(`metadata.json says ${String(metadata.size)} bytes, and the tar has ${String(bundle.size)}`),
      );
    }
    return { release, problems };
  } catch (error) {
    if (!isPluginError(error) || error.code === 'interrupted') throw error;
    return { release: undefined, problems: [inconsistent(`the release payload cannot be read: ${error.message}`)] };
  }
}

async function judgeSignature(
  bundle: Bundle,
  scanned: ScannedContent,
  release: Release | undefined,
  trust: VerifyTrust,
  context: Context,
): Promise<{ signatures: readonly VerifiedSignature[]; problems: Problem[] }> {
  const { digest } = parseReference(bundle.metadata.release);
  if (!digest) return { signatures: [], problems: [] };
  try {
    const known = readAllSignatures(scanned.config).get(digest) ?? [];
    const others = release?.verification.keys ?? [];
    const keyring = await loadKeyring({ files: trust.keyrings, others }, trust.fingerprints, context);
    const stores = trust.store === undefined ? [] : [trust.store];
    const signatures = await verifyRelease(digest, { keyring, known, stores, fetchFile: trust.fetchFile }, context);
    return { signatures, problems: [] };
  } catch (error) {
    const kind = isPluginError(error, 'unsigned')
      ? 'unsigned'
      : isPluginError(error, 'untrusted')
        ? 'untrusted'
        : undefined;
    if (kind === undefined) throw error;
    if (trust.allowUnsigned) {
      context.log('warn', messageOf(error));
      return { signatures: [], problems: [] };
    }
    return { signatures: [], problems: [{ kind, what: digest, images: ['release'], message: messageOf(error) }] };
  }
}

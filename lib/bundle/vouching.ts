import { formatManifest } from '../config/manifest.ts';
import { readObjects, type UnknownObject } from '../config/objects.ts';
import { readSignatures, signatureConfigMap, signatureLabel, type SignaturesByDigest } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { loadKeyring } from '../release/keyring.ts';
import type { Release } from '../release/release.ts';
import type { VerifiedSignature } from '../release/signature.ts';
import type { FetchFile } from '../release/signatureStore.ts';
import { collectSignatures, verifyRelease } from '../release/trust.ts';
import type { Bundle } from './open.ts';
import { describeProblem, type Problem } from './problem.ts';
import type { ScannedConfig } from './scan.ts';

/** Whom to believe about a bundle. */
export interface VerifyTrust {
  readonly keyrings: readonly string[];
  readonly fingerprints: readonly string[];
  readonly allowUnsigned: boolean;
  /** A signature store to ask where the bundle has no good signature; without it nothing is asked. */
  readonly store?: string | undefined;
  readonly fetchFile: FetchFile;
}

const mirrorSets: readonly unknown[] = ['ImageDigestMirrorSet', 'ImageTagMirrorSet', 'ImageContentSourcePolicy'];

/**
 * Reads the signatures out of the configuration manifests. These are made to be applied to a cluster, so nothing may be
 * among them but signatures of `digests`, the release and the images in it, in the form in which create writes them, and
 * mirror sets in config/mirrors.
 */
export function readConfig(
  bundle: Bundle,
  config: readonly ScannedConfig[],
  digests: ReadonlySet<string>,
): { signatures: SignaturesByDigest; problems: Problem[] } {
  const signatures = new Map<Digest, readonly Buffer[]>();
  const problems: Problem[] = [];
  for (const { path, text } of config) {
    const note = (kind: 'altered' | 'superfluous', words: string): void => {
      problems.push(describeProblem(kind, 'file', path, `${path} ${words}`));
    };
    try {
      const objects = readObjects(text ?? '', path);
      if (path.startsWith('config/mirrors/') && objects.every(({ kind }) => mirrorSets.includes(kind))) continue;
      const found = [...readSignatures(text ?? '', path)];
      for (const [digest, list] of found) signatures.set(digest, [...(signatures.get(digest) ?? []), ...list]);
      const stray = found.find(([digest]) => !digests.has(digest));
      if (found.length === 0 || !objects.every(isSignatures))
        note('superfluous', 'is no signature: nothing vouches for it');
      else if (stray) note('superfluous', `has a signature of ${stray[0]}, which is no image of this release`);
      else if (bundle.described && !isAsWritten(bundle, path, text, found)) note('altered', 'is altered');
    } catch (error) {
      if (!isPluginError(error, 'invalid-file')) throw error;
      note('altered', `is altered: ${error.message}`);
    }
  }
  return { signatures, problems };
}

// The namespace is where the cluster looks; a ConfigMap with data would change more than signatures.
function isSignatures({ kind, metadata, data }: UnknownObject): boolean {
  const { namespace, labels } = (metadata ?? {}) as { namespace?: unknown; labels?: Record<string, unknown> | null };
  const isLabelled = labels?.[signatureLabel] !== undefined;
  return kind === 'ConfigMap' && namespace === 'openshift-config-managed' && isLabelled && data === undefined;
}

function isAsWritten(
  { metadata }: Bundle,
  path: string,
  text: string | undefined,
  found: readonly (readonly [Digest, readonly Buffer[]])[],
): boolean {
  const { version } = metadata;
  const written = found.map(([digest, list]) =>
    signatureConfigMap(digest, list, { version, signer: metadata.signatures[digest]?.[0]?.fingerprint ?? '' }),
  );
  return written.length === 1 && written.every((each) => each.path === path && formatManifest(each.object) === text);
}

/**
 * Judges the signatures of a release and those of the images in it, with trusted keys, whose bytes may come out of the
 * payload. An image inside a release needs none, but one that it has must be good.
 */
export async function judgeSignatures(
  bundle: Bundle,
  digest: Digest,
  release: Release | undefined,
  known: SignaturesByDigest,
  trust: VerifyTrust,
  context: Context,
): Promise<{ signatures: VerifiedSignature[]; problems: Problem[] }> {
  const others = release?.verification.keys ?? [];
  const keyring = await loadKeyring({ files: trust.keyrings, others }, trust.fingerprints, context);
  const signatures: VerifiedSignature[] = [];
  const problems: Problem[] = [];
  const stores = trust.store === undefined ? [] : [trust.store];
  const options = { keyring, known: known.get(digest) ?? [], stores, fetchFile: trust.fetchFile };
  try {
    signatures.push(...(await verifyRelease(digest, options, context)));
  } catch (error) {
    if (!isPluginError(error) || (error.code !== 'unsigned' && error.code !== 'untrusted')) throw error;
    if (trust.allowUnsigned) context.log('warn', `${error.message}; going on because unsigned releases are allowed`);
    else problems.push(describeProblem(error.code, 'signature', digest, error.message, error.hint));
  }
  for (const child of release?.children ?? []) {
    const own = known.get(child.digest) ?? [];
    const { good } = await collectSignatures(child.digest, { ...options, known: own, stores: [] }, context);
    signatures.push(...good);
    if (own.length === 0 || good.length > 0 || trust.allowUnsigned) continue;
    const message = `no trusted key vouches for ${child.digest}, an image of the release, though it has a signature`;
    problems.push(describeProblem('untrusted', 'signature', child.digest, message));
  }
  return { signatures, problems: [...problems, ...compareRecords(bundle, digest, known, signatures, problems)] };
}

/** Compares the signatures that metadata.json lists with those that are there. */
function compareRecords(
  { described, metadata }: Bundle,
  release: Digest,
  known: SignaturesByDigest,
  good: readonly VerifiedSignature[],
  found: readonly Problem[],
): Problem[] {
  const recorded = new Map(
    Object.entries(metadata.signatures).filter(([digest]) => digest !== release || found.length === 0),
  );
  const missing = [...recorded.keys()].filter((digest) => !known.has(digest as Digest));
  const unlisted = good.filter(
    ({ digest, fingerprint, bytes }) =>
      described &&
      known.get(digest)?.some((each) => each.equals(bytes)) &&
      !metadata.signatures[digest]?.some((record) => record.fingerprint === fingerprint),
  );
  return [
    ...missing.map((digest) =>
      describeProblem('missing', 'signature', digest, `a signature of ${digest} is missing, which metadata.json lists`),
    ),
    ...unlisted.map(({ digest, fingerprint }) => {
      const message = `metadata.json does not say that ${digest} is signed by ${fingerprint}, as it is`;
      return describeProblem('inconsistent', 'metadata', digest, message);
    }),
  ];
}

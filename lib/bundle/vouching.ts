import { dirname } from 'node:path/posix';
import { formatManifest } from '../config/manifest.ts';
import { readObjects, type UnknownObject } from '../config/objects.ts';
import {
  mergeSignatures,
  readSignatures,
  signatureConfigMap,
  signatureLabel,
  type SignaturesByDigest,
} from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { loadKeyring } from '../release/keyring.ts';
import type { Release } from '../release/release.ts';
import type { VerifiedSignature } from '../release/signature.ts';
import type { FetchFile } from '../release/signatureStore.ts';
import { collectSignatures, verifyRelease } from '../release/trust.ts';
import { compareSignatures } from './agreement.ts';
import type { Bundle } from './open.ts';
import { describeProblem, type Problem } from './problem.ts';
import type { ScannedConfig } from './scan.ts';
import { isUnpackedDelta } from './surplus.ts';

/** Whom to believe about a bundle. */
export interface VerifyTrust {
  readonly keyrings: readonly string[];
  readonly fingerprints: readonly string[];
  readonly allowUnsigned: boolean;
  /** A signature store to ask where the bundle has no good signature; without it nothing is asked. */
  readonly store?: string | undefined;
  readonly fetchFile: FetchFile;
}

/** What a mirror directory may have in `config` besides signatures, by folder. */
const mirrorObjects: Readonly<Record<string, (object: UnknownObject) => boolean>> = {
  'config/mirrors': ({ kind }) =>
    ['ImageDigestMirrorSet', 'ImageTagMirrorSet', 'ImageContentSourcePolicy'].includes(String(kind)),
  'config/update-service': ({ kind, metadata }) =>
    kind === 'UpdateService' || (kind === 'ConfigMap' && namespaceOf(metadata) === 'openshift-config'),
};

/** A configuration manifest that holds signatures and nothing else. */
export interface SignatureFile {
  readonly path: string;
  readonly text: string;
  readonly signatures: SignaturesByDigest;
}

/**
 * Reads the signatures out of the configuration manifests. These are made to be applied to a cluster, so nothing may be
 * among them but signatures of `digests`, the release and the images in it, mirror sets in config/mirrors, and in a
 * directory the update service of a mirror, and the signature of the base of a delta. Nothing vouches for these, which is said.
 */
export function readConfig(
  bundle: Bundle,
  config: readonly ScannedConfig[],
  digests: ReadonlySet<string>,
  context: Context,
): { files: SignatureFile[]; signatures: SignaturesByDigest; problems: Problem[] } {
  const files: SignatureFile[] = [];
  const found: SignaturesByDigest[] = [];
  const unvouched: string[] = [];
  const problems: Problem[] = [];
  for (const { path, text = '' } of config) {
    const note = (kind: 'altered' | 'superfluous', words: string): void => {
      problems.push(describeProblem(kind, 'file', path, `${path} ${words}`));
    };
    try {
      const objects = readObjects(text, path);
      const signatures = readSignatures(text, path);
      found.push(signatures);
      const stray = [...signatures.keys()].find((digest) => !digests.has(digest));
      const folder = dirname(path);
      const isForMirror = mirrorObjects[folder];
      const mayBeThere = bundle.form === 'directory' || folder === 'config/mirrors';
      if (isForMirror && mayBeThere && objects.length > 0 && objects.every(isForMirror)) unvouched.push(path);
      else if (signatures.size === 0 || !objects.every(isSignatures))
        note('superfluous', 'is no signature: nothing vouches for it');
      else if (stray && isUnpackedDelta(bundle)) unvouched.push(path);
      else if (stray) note('superfluous', `has a signature of ${stray}, which is no image of this release`);
      else files.push({ path, text, signatures });
    } catch (error) {
      if (!isPluginError(error, 'invalid-file')) throw error;
      note('altered', `is altered: ${error.message}`);
    }
  }
  if (unvouched.length > 0)
    context.log('info', `nothing vouches for ${unvouched.join(', ')}: look before you apply it`);
  return { files, signatures: mergeSignatures(...found), problems };
}

/**
 * Finds files of signatures that are not as create writes them. The version and the signers that are written beside a signature
 * are those of the release where it could be read and judged, and not those that metadata.json claims.
 */
export function compareWritten(
  { described, metadata }: Bundle,
  files: readonly SignatureFile[],
  release: Release | undefined,
  good: readonly VerifiedSignature[],
): Problem[] {
  const version = release?.version ?? metadata.version;
  const signerOf = (digest: Digest): string =>
    (good.find((each) => each.digest === digest) ?? metadata.signatures[digest]?.[0])?.fingerprint ?? '';
  const isAsWritten = ({ path, text, signatures }: SignatureFile): boolean => {
    const written = [...signatures].map(([digest, list]) =>
      signatureConfigMap(digest, list, { version, signer: signerOf(digest) }),
    );
    return written.length === 1 && written.every((each) => each.path === path && formatManifest(each.object) === text);
  };
  return files
    .filter((file) => described && !isAsWritten(file))
    .map(({ path }) => describeProblem('altered', 'file', path, `${path} is altered`));
}

// The namespace is where the cluster looks; a ConfigMap with data would change more than signatures.
function isSignatures({ kind, metadata, data }: UnknownObject): boolean {
  const { labels } = (metadata ?? {}) as { labels?: Record<string, unknown> | null };
  const isLabelled = labels?.[signatureLabel] !== undefined;
  return (
    kind === 'ConfigMap' && namespaceOf(metadata) === 'openshift-config-managed' && isLabelled && data === undefined
  );
}

function namespaceOf(metadata: unknown): unknown {
  return (metadata as { namespace?: unknown } | null | undefined)?.namespace;
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
  return {
    signatures,
    problems: [
      ...problems,
      ...compareSignatures(bundle, release, known, signatures, problems.length === 0 ? [] : [digest]),
    ],
  };
}

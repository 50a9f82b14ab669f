import { basename, dirname } from 'node:path';
import { readObjects } from '#config/manifest';
import { ignoreMissing, RootFolder, readSmallFile } from '#content/files';
import { isDigest, type Digest } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { readBundledSignatures } from '../metadata/bundledConfig.ts';
import { splitReleases, type BundleBase, type BundleMetadata } from '../metadata/metadata.ts';
import type { Bundle } from './bundle.ts';
import { openBundle } from './open.ts';
import { findDigest, readDigestFile, upgradeBundleName } from './sidecars.ts';
import type { VerifyTrust } from './signatureCheck.ts';
import { checkSigned, type SignedBundle } from './signedBundle.ts';

/** The name and the digest of a bundle, and the facts that an UpgradeBundle states beside them. */
export interface BundleIdentity {
  /** The name of its UpgradeBundle: `4.12.4-x86-64`. */
  readonly name: string;
  /** The digest of the whole file. */
  readonly digest: Digest;
  /** The version of its last release; undefined if only a file beside the bundle was read, and does not state it. */
  readonly version?: string;
  /** The digest of the last release; undefined like the version. */
  readonly releaseDigest?: Digest;
  /** The proof; undefined if only a file beside the bundle was read, so that nothing was verified. */
  readonly evidence?: BundleEvidence;
}

/** The verified release of a bundle, with the claims of the bundle that its signature does not cover. */
export interface BundleEvidence {
  /** The format of its metadata.json. */
  readonly formatVersion: BundleMetadata['formatVersion'];
  readonly signed: SignedBundle;
  /** All signatures of its release in the bundle, by any key. */
  readonly signatures: readonly Buffer[];
  /** The images by digest that the release signature does not cover. */
  readonly extraImages: readonly string[];
  /** What the bundle leaves out. */
  readonly base?: BundleBase;
  /** The releases in the order of the updates, with the known risks that the bundle claims. */
  readonly releases: readonly Pick<BundleMetadata, 'version' | 'risks'>[];
}

const sizeLimit = 1024 * 1024;

/**
 * Returns the identity of a bundle, from the `.yaml` or `.sha256` beside it or from the bundle itself. Of a bundle
 * itself, reads every byte for its digest, and checks the release signature and that the metadata agrees with the
 * release. Throws `digest-mismatch` if a file beside the bundle differs from it, `not-readable`, `invalid-file`,
 * `invalid-bundle`, the errors of checkSigned, and `usage` for a mirror directory, which has no digest.
 */
export async function identifyBundle(path: string, trust: VerifyTrust, context: Context): Promise<BundleIdentity> {
  if (/\.(ya?ml|json)$/.test(path)) return parseIdentity(String(await readSmallFile(path, sizeLimit)), path);
  if (path.endsWith('.sha256')) {
    const bundle = path.slice(0, -'.sha256'.length);
    return { ...identityFrom(bundle), digest: await findDigest(path, bundle) };
  }
  await using bundle = await openBundle(path, context);
  if (bundle.form === 'directory') {
    throw new PluginError('usage', `${path} is a mirror directory, which has no digest to allow`, {
      hint: 'Create a bundle from it with oc adm-upgrade-bundle create.',
    });
  }
  const { metadata } = bundle;
  const signed = await checkSigned(bundle, trust, context);
  const signatures = (await readBundledSignatures(bundle, context)).get(signed.release.digest) ?? [];
  const { formatVersion, extraImages, base } = metadata;
  const identity = {
    name: upgradeBundleName(metadata),
    version: signed.release.version,
    releaseDigest: signed.release.digest,
    digest: await readDigest(bundle, context),
    evidence: { formatVersion, signed, signatures, extraImages, base, releases: splitReleases(metadata) },
  };
  await compareSidecars(bundle.path, identity);
  return identity;
}

/** Reads a whole bundle, and returns its digest. Throws `digest-mismatch` if it has changed since it was opened. */
async function readDigest(bundle: Bundle, context: Context): Promise<Digest> {
  const { path, size, trailing } = bundle;
  context.log('debug', `computing the digest of ${path}`);
  context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size + trailing, present: 0 });
  const digests = await bundle.scan((_, chunk) => {
    context.onEvent({ kind: 'bytes', digest: '', bytes: chunk.length });
  });
  if (digests) return digests.digest;
  throw new PluginError('invalid-bundle', `${path} has no digest`);
}

/** Throws `digest-mismatch` if a file beside a bundle states another digest, version or release. */
async function compareSidecars(path: string, own: BundleIdentity): Promise<void> {
  const manifest = await new RootFolder(dirname(path)).read(`${basename(path)}.yaml`, sizeLimit).catch(ignoreMissing);
  const digest = await readDigestFile(path);
  const noted: readonly (readonly [file: string, stated: Partial<BundleIdentity>])[] = [
    [`${path}.sha256`, { digest }],
    [`${path}.yaml`, manifest ? parseIdentity(String(manifest), `${path}.yaml`) : {}],
  ];
  for (const [file, stated] of noted)
    for (const [field, what] of identityFields) {
      const [expected, actual] = [stated[field], own[field]];
      if (expected === undefined || expected === actual) continue;
      const message = `${file} states the ${what} ${expected}, and ${path} has ${actual ?? ''}`;
      const hint = `One of the two belongs to another bundle, or is corrupt. Use neither before you know which.`;
      throw new PluginError('digest-mismatch', message, { hint });
    }
}

/** The fields that identify a bundle, with their names in messages. */
export const identityFields = [
  ['digest', 'digest'],
  ['version', 'version'],
  ['releaseDigest', 'release digest'],
] as const;

/**
 * Reads the UpgradeBundle that `create` writes beside a bundle. `path` is for messages. Throws `invalid-file` without
 * exactly one.
 */
export function parseIdentity(text: string, path: string): BundleIdentity {
  const objects = readObjects(text, path);
  const [object] = objects.filter(({ kind }) => kind === 'UpgradeBundle');
  const { digest, version, releaseDigest } = fieldsAt(object, 'spec', 'bundle');
  const name = textOf(fieldsAt(object, 'metadata')['name']);
  if (objects.length === 1 && name !== undefined && typeof digest === 'string' && isDigest(digest)) {
    const release = textOf(releaseDigest);
    return {
      name,
      digest,
      version: textOf(version),
      releaseDigest: release !== undefined && isDigest(release) ? release : undefined,
    };
  }
  const message = `${path} does not have exactly one UpgradeBundle with a digest, as create writes it beside a bundle`;
  const hint = 'Give the bundle, or the .yaml or .sha256 file beside it.';
  throw new PluginError('invalid-file', message, { hint });
}

/**
 * Returns the name of the UpgradeBundle and the version by the name of a file: `upgrade-4.12.4-x86_64.tar`, for a delta
 * bundle `upgrade-4.12.4-x86_64-from-4.12.3.tar`, for several releases `upgrade-4.12.4-x86_64-via-4.11.9.tar`.
 */
function identityFrom(path: string): Pick<BundleIdentity, 'name' | 'version'> {
  const pattern = /^upgrade-(\d+\.\d+\.\d+.*?)-([a-z0-9_]+)(?:-(?:via|from)-\d+\.\d+\.\d+[^/]*)?\.tar$/;
  const [, version, arch] = pattern.exec(basename(path)) ?? [];
  if (version !== undefined && arch !== undefined) return { name: upgradeBundleName({ version, arch }), version };
  throw new PluginError('usage', `${path} does not have the name of a bundle: upgrade-VERSION-ARCH.tar`, {
    hint: 'Give the .yaml file beside the bundle.',
  });
}

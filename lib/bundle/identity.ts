import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { readObjects } from '../config/objects.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { readSmallFile } from '../files/smallFile.ts';
import { type BundleBase, type BundleMetadata, splitReleases } from './metadata.ts';
import { openBundle } from './open.ts';
import { readBundledSignatures } from './bundledConfig.ts';
import { checkSigned, type SignedBundle } from './signedBundle.ts';
import { findDigest, readDigestFile, upgradeBundleName } from './sidecars.ts';
import type { VerifyTrust } from './signatureCheck.ts';

/** The name and the digest of a bundle. */
export interface BundleIdentity {
  /** The name of its UpgradeBundle: `4.12.4-x86-64`. */
  readonly name: string;
  /** The digest of the whole file. */
  readonly digest: Digest;
  /** The proof; undefined if only a file beside the bundle was read. */
  readonly evidence?: BundleEvidence;
}

/** The proof that a bundle is genuine. */
export interface BundleEvidence {
  readonly signed: SignedBundle;
  /** All signatures of its release in the bundle, by any key. */
  readonly signatures: readonly Buffer[];
  /** The images by digest that the release signature does not cover. */
  readonly extraImages: readonly string[];
  /** What the bundle leaves out. */
  readonly base?: BundleBase | undefined;
  /** The releases in the order of the updates, with the known risks that the bundle accepts. */
  readonly releases: readonly Pick<BundleMetadata, 'version' | 'risks'>[];
}

const sizeLimit = 1024 * 1024;

/**
 * Returns the identity of a bundle, from the `.yaml` or `.sha256` beside it or from the bundle itself. Computes the
 * digest of a bundle if there is no `.sha256`. For a bundle itself, checks the release signature and that the metadata
 * agrees with the release, but does not read every byte. Throws `not-readable`, `invalid-file`, `invalid-bundle`, the
 * errors of checkSigned, and `usage` for a mirror directory, which has no digest.
 */
export async function identifyBundle(path: string, trust: VerifyTrust, context: Context): Promise<BundleIdentity> {
  if (/\.(ya?ml|json)$/.test(path)) return readManifest(path);
  if (path.endsWith('.sha256')) {
    const bundle = path.slice(0, -'.sha256'.length);
    return { name: nameFrom(bundle), digest: await findDigest(path, bundle) };
  }
  await using bundle = await openBundle(path, context);
  const name = upgradeBundleName(bundle.metadata);
  if (!bundle.chunks) {
    throw new PluginError('usage', `${path} is a mirror directory, which has no digest to allow`, {
      hint: 'Create a bundle from it with oc adm-upgrade-bundle create.',
    });
  }
  const signed = await checkSigned(bundle, trust, context);
  const signatures = (await readBundledSignatures(bundle, context)).get(signed.release.digest) ?? [];
  const { extraImages, base } = bundle.metadata;
  const evidence = { signed, signatures, extraImages, base, releases: splitReleases(bundle.metadata) };
  const known = await readDigestFile(path);
  if (known !== undefined) return { name, digest: known, evidence };
  context.log('info', `computing the digest of ${path}, because ${basename(path)}.sha256 is missing`);
  const hash = createHash('sha256');
  const size = bundle.metadata.size;
  context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present: 0 });
  for await (const chunk of bundle.chunks(0, size)) {
    hash.update(chunk);
    context.onEvent({ kind: 'bytes', digest: '', bytes: chunk.length });
  }
  return { name, digest: `sha256:${hash.digest('hex')}`, evidence };
}

async function readManifest(path: string): Promise<BundleIdentity> {
  const objects = readObjects(String(await readSmallFile(path, sizeLimit)), path);
  const [object] = objects.filter(({ kind }) => kind === 'UpgradeBundle');
  const { metadata, spec } = (object ?? {}) as {
    metadata?: { name?: unknown };
    spec?: { bundle?: { digest?: unknown } };
  };
  const [name, digest] = [metadata?.name, spec?.bundle?.digest];
  if (objects.length === 1 && typeof name === 'string' && typeof digest === 'string' && isDigest(digest)) {
    return { name, digest };
  }
  throw new PluginError(
    'invalid-file',
    `${path} does not have exactly one UpgradeBundle with a digest, as create writes it beside a bundle`,
    {
      hint: 'Give the bundle, or the .yaml or .sha256 file beside it.',
    },
  );
}

/**
 * Returns the name of the UpgradeBundle by the name of a file: `upgrade-4.12.4-x86_64.tar`, for a delta bundle
 * `upgrade-4.12.4-x86_64-from-4.12.3.tar`, for several releases `upgrade-4.12.4-x86_64-via-4.11.9.tar`.
 */
function nameFrom(path: string): string {
  const pattern = /^upgrade-(\d+\.\d+\.\d+.*?)-([a-z0-9_]+)(?:-(?:via|from)-\d+\.\d+\.\d+[^/]*)?\.tar$/;
  const [, version, arch] = pattern.exec(basename(path)) ?? [];
  if (version !== undefined && arch !== undefined) return upgradeBundleName({ version, arch });
  throw new PluginError('usage', `${path} does not have the name of a bundle: upgrade-VERSION-ARCH.tar`, {
    hint: 'Give the .yaml file beside the bundle.',
  });
}

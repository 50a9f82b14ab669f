import { readFile } from 'node:fs/promises';
import type { ConfigManifest } from '../config/manifest.ts';
import { signatureConfigMap } from '../config/signatures.ts';
import { parseMetadata, type BundleMetadata } from '../bundle/metadata.ts';
import type { Bundle } from '../bundle/open.ts';
import { readSignatures } from '../bundle/signedBundle.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { writeWhole } from '../store/disk.ts';

/** What is known of a bundle whose digest and signature have been checked: enough to update a cluster with it. */
export interface BundleFacts {
  /** Of the whole file. */
  readonly digest: Digest;
  readonly metadata: BundleMetadata;
  /** The ConfigMaps with the signatures that it carries. */
  readonly manifests: readonly ConfigManifest[];
}

/** Gathers the facts of a bundle that has been verified. Throws what reading it does. */
export async function gatherFacts(bundle: Bundle, digest: Digest): Promise<BundleFacts> {
  const { metadata } = bundle;
  const { version } = metadata;
  // Of signatures of anything else nothing is known.
  const own = [...(await readSignatures(bundle))].filter(([signed]) => signed in metadata.signatures);
  const manifests = own.map(([signed, signatures]) => {
    const signer = metadata.signatures[signed]?.[0]?.fingerprint ?? '';
    return signatureConfigMap(signed, signatures, { version, signer });
  });
  return { digest, metadata, manifests };
}

/** Writes facts as the bytes that parseFacts reads. */
export function formatFacts(facts: BundleFacts): Buffer {
  return Buffer.from(JSON.stringify(facts));
}

/** Reads facts that this program wrote; undefined where they are not of that bundle or not whole. `where` is for the message of `invalid-bundle`. */
export function parseFacts(bytes: Buffer, digest: Digest, where: string): BundleFacts | undefined {
  let facts: Partial<BundleFacts> | null;
  try {
    facts = JSON.parse(bytes.toString()) as Partial<BundleFacts> | null;
  } catch {
    return undefined;
  }
  if (facts?.digest !== digest || !Array.isArray(facts.manifests)) return undefined;
  const metadata = parseMetadata(Buffer.from(JSON.stringify(facts.metadata ?? null)), where);
  return { digest, metadata, manifests: facts.manifests };
}

/** Keeps facts in a file, whole or not at all. Throws `not-writable` and `disk-full`. */
export function keepFacts(path: string, facts: BundleFacts): Promise<void> {
  return writeWhole(path, formatFacts(facts), 0o600);
}

/** The facts that were kept in a file; undefined where there are none of that bundle that can be read: they can be had again from the bundle. */
export async function recallFacts(path: string, digest: Digest): Promise<BundleFacts | undefined> {
  const bytes = await readFile(path).catch(() => undefined);
  try {
    return bytes && parseFacts(bytes, digest, path);
  } catch (error) {
    if (!isPluginError(error, 'invalid-bundle')) throw error;
    return undefined;
  }
}

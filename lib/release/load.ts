import { CopyFailure, describeFailures } from '#content/copy';
import type { FetchFile } from '#content/http';
import { type Descriptor, hexOf, type Digest, parseReference, parseRepository, type Reference } from '#content/oci';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { shellCommand } from '#text';
import { readPayload, type Release } from './release.ts';
import { loadKeyring, type Keyring, type KeyMaterial } from './signature/keyring.ts';
import type { VerifiedSignature } from './signature/signature.ts';
import { collectSignatures, verifyRelease } from './signature/trust.ts';
import { parseVersion, releaseTag, unknownVersion, type Architecture } from './version.ts';

/**
 * A release by version, architecture and repository, or by image. For an image, `arch` is the required architecture.
 */
export type ReleaseRequest =
  | { readonly version: string; readonly arch: Architecture; readonly repository: string }
  | { readonly image: string; readonly arch?: Architecture };

/** The keys and signature stores to verify a release with. */
export interface TrustRequest {
  /** Keyring files, and trusted fingerprints in addition to Red Hat’s. */
  readonly keyrings: readonly string[];
  readonly fingerprints: readonly string[];
  /** Keys that are in no file. */
  readonly keys?: readonly KeyMaterial[];
  /** The only signature store to ask, instead of the stores that the payload names. */
  readonly store?: string;
  /** Ask no store that the payload names. */
  readonly offline?: boolean;
  /** Available signatures, from a `config` folder. */
  readonly known: ReadonlyMap<Digest, readonly Buffer[]>;
  readonly allowUnsigned: boolean;
  readonly fetchFile: FetchFile;
}

/** The image of a release by digest, and its source. */
export interface FoundRelease {
  readonly reference: Reference & { readonly digest: Digest };
  readonly descriptor: Descriptor;
  readonly source: ContentSource;
}

/** A release with its valid signatures; for a multi-architecture release, also those of its images. */
export interface SignedRelease {
  readonly release: Release;
  readonly signatures: ReadonlyMap<Digest, readonly VerifiedSignature[]>;
}

/** Finds the image of a release. Throws `unknown-version` with the nearest versions, and `not-found` for an image. */
export async function findRelease(
  request: ReleaseRequest,
  sourceOf: (reference: Reference) => ContentSource,
): Promise<FoundRelease> {
  if ('image' in request) {
    const reference = parseReference(request.image);
    const tagOrDigest = reference.digest ?? reference.tag;
    if (tagOrDigest === undefined) {
      throw new PluginError('usage', `${request.image} has neither a tag nor a digest`, {
        hint: 'Name the release image as REPOSITORY:TAG or REPOSITORY@sha256:DIGEST.',
      });
    }
    return found(reference, await sourceOf(reference).resolve(tagOrDigest), sourceOf(reference));
  }
  const repository = parseRepository(request.repository);
  const source = sourceOf(repository);
  const version = parseVersion(request.version);
  try {
    return found(repository, await source.resolve(releaseTag(version, request.arch)), source);
  } catch (error) {
    if (!isPluginError(error, 'not-found')) throw error;
    const tags = await source.tags().catch(() => []);
    throw unknownVersion(version, request.arch, tags, source.name);
  }
}

/**
 * Reads a release, and verifies its signature. Verifies before it reads the payload if keys and signatures are
 * available, or if there can be no signature; else with the trusted keys and the stores in the payload. Throws
 * `unsigned` and `untrusted`, or only warns if unsigned releases are allowed.
 */
export async function loadRelease(
  { reference, descriptor, source }: FoundRelease,
  requirement: { readonly version?: string; readonly arch?: Architecture },
  trust: TrustRequest,
  context: Context,
): Promise<SignedRelease> {
  const early = await gatherKeys(trust, [], context);
  const availableSignatures = trust.known.get(descriptor.digest) ?? [];
  const hasSignatures = trust.store !== undefined || availableSignatures.length > 0;
  // Without any signature and any store, the keys of the payload do not matter.
  const canCheckFirst = hasSignatures ? early.trusted.length > 0 : trust.offline === true;
  const checked = canCheckFirst ? await check(descriptor.digest, early, [], trust, context) : undefined;

  const options = { ...requirement, repository: `${reference.registry}/${reference.repository}` };
  const release = await readPayload(source, descriptor, options, context).catch((error: unknown) => {
    throw nameRelease(error, source.name, descriptor.digest);
  });
  const { keys } = release.verification;
  const stores = trust.offline === true ? [] : release.verification.stores;
  const keyring = await gatherKeys(trust, keys, context);
  const own =
    checked ??
    (await check(descriptor.digest, keyring, stores, trust, context).catch((error: unknown) => {
      throw explainList(error, release, trust.known);
    }));

  const signatures = new Map<Digest, readonly VerifiedSignature[]>();
  if (own.length > 0) signatures.set(descriptor.digest, own);
  // If the signature was available, so are the signatures of the images in the list. There may be no network.
  const isAtHand = own.some(({ bytes }) => availableSignatures.some((other) => other.equals(bytes)));
  const asked = isAtHand ? { ...trust, store: undefined } : trust;
  for (const { digest } of release.children) {
    const options = trustOptions(digest, keyring, isAtHand ? [] : stores, asked);
    const { good } = await collectSignatures(digest, options, context);
    if (good.length > 0) signatures.set(digest, good);
  }
  return { release, signatures };
}

/**
 * Explains that only images of a multi-architecture release have a signature. `oc adm release mirror` verifies and
 * keeps the signature of one of them, and clusters verify the list (openshift/oc 6b8e30c5,
 * pkg/cli/admin/release/mirror.go).
 */
function explainList(
  error: unknown,
  { digest, children, verification: { stores } }: Release,
  signaturesByDigest: TrustRequest['known'],
): unknown {
  const signed = children.filter((child) => signaturesByDigest.has(child.digest)).map((child) => child.digest);
  if (!isPluginError(error, 'unsigned') || signed.length === 0) return error;
  const folder = `sha256=${hexOf(digest)}`;
  const [store] = stores;
  const url = store && `${store.replace(/\/$/, '')}/${folder}/signature-1`;
  const command =
    url && shellCommand`mkdir -p signatures/${folder} && curl -fLo signatures/${folder}/signature-1 ${url}`;
  const hint =
    'Clusters verify the list for all architectures, and oc keeps the signature of one image only. ' +
    (command === undefined
      ? 'Get the signature of the list.'
      : `Use the folder “signatures” as signature store after this command, which needs a network: ${command}`);
  return new PluginError(
    'unsigned',
    `${error.message}; the signature of ${signed.join(', ')} does not cover the list`,
    {
      hint,
      settings: error.settings,
      cause: error.cause,
    },
  );
}

/** Adds the image and its source to a network error, which names only a host. */
function nameRelease(error: unknown, source: string, digest: Digest): unknown {
  if (!isPluginError(error) || error.code === 'interrupted' || error.message.includes(source)) return error;
  return describeFailures(new Map([[new CopyFailure('source', source, digest, error), ['release']]]), 1);
}

function found(
  repository: Pick<Reference, 'registry' | 'repository'>,
  descriptor: Descriptor,
  source: ContentSource,
): FoundRelease {
  const { registry, repository: name } = repository;
  return { reference: { registry, repository: name, digest: descriptor.digest }, descriptor, source };
}

function gatherKeys(trust: TrustRequest, others: readonly KeyMaterial[], context: Context): Promise<Keyring> {
  return loadKeyring(
    { files: trust.keyrings, others: [...(trust.keys ?? []), ...others] },
    trust.fingerprints,
    context,
  );
}

function trustOptions(
  digest: Digest,
  keyring: Keyring,
  stores: readonly string[],
  trust: TrustRequest,
): Parameters<typeof verifyRelease>[1] {
  return {
    keyring,
    known: trust.known.get(digest) ?? [],
    stores: trust.store === undefined ? stores : [trust.store],
    fetchFile: trust.fetchFile,
  };
}

async function check(
  digest: Digest,
  keyring: Keyring,
  stores: readonly string[],
  trust: TrustRequest,
  context: Context,
): Promise<readonly VerifiedSignature[]> {
  try {
    return await verifyRelease(digest, trustOptions(digest, keyring, stores, trust), context);
  } catch (error) {
    if (!trust.allowUnsigned || !(isPluginError(error, 'unsigned') || isPluginError(error, 'untrusted'))) throw error;
    context.log('warn', `${error.message}; continuing, because unsigned releases are allowed`);
    return [];
  }
}

import type { VerifyTrust, SignedBundle } from '#bundle/open';
import { digestIn } from '#content/oci';
import { nameKey, releaseKeys, type ExpectedKeys, type NamedResult } from '#release/sigstore';
import type { Arguments } from './command.ts';
import { trustOptions } from './options.ts';

const { 'signature-store': _store, ...rest } = trustOptions;

/**
 * The trust options of a command that uses no network. A cluster without a registry cannot reach a signature store
 * either.
 */
export const offlineTrustOptions = rest;

/** The trust options of a command, and its option for images if it has one. */
type TrustArguments = Arguments<typeof trustOptions> & { readonly requireSignedImages?: boolean };

/** Returns the trust for a release, from the trust options of a command. */
export function trustOf(args: TrustArguments): Omit<VerifyTrust, 'fetchFile'> {
  return {
    keyrings: args.signatureKeyring,
    fingerprints: args.trustFingerprint,
    allowUnsigned: args.allowUnsigned,
    store: args.signatureStore,
    ...(args.requireSignedImages === true && { requireSignedImages: true }),
  };
}

/** Returns the trust of `offlineTrustOptions`. It asks no signature store. */
export function offlineTrustOf(args: Omit<TrustArguments, 'signatureStore'>): VerifyTrust {
  return { ...trustOf({ ...args, signatureStore: undefined }), fetchFile: () => Promise.resolve(undefined) };
}

/** What the signatures of a bundle prove, as JSON. */
export type PlainSigned = ReturnType<typeof toPlainSigned>;

/** The result of an image policy for an image, as JSON. */
type PlainPolicy = ReturnType<typeof toPlainPolicies>[number];

/** Returns what the signatures of a bundle prove, as JSON. */
export function toPlainSigned({ release, releases, signatures, extraImages, policies }: SignedBundle) {
  const { version, arch, pullspec } = release;
  return {
    version,
    arch,
    release: pullspec,
    ...(releases.length > 1 && { versions: releases.map((each) => each.release.version) }),
    signatures: [...signatures.values()]
      .flat()
      .map(({ digest, fingerprint, userId: signer }) => ({ digest, fingerprint, signer })),
    extraImages,
    sigstore: toPlainPolicies(policies),
  };
}

/** Returns the versions of a bundle and its architecture, such as `4.19.4, 4.20.3 x86_64`. */
export function nameVersions({ version, versions = [version], arch }: PlainSigned): string {
  return `${versions.join(', ')} ${arch}`;
}

/** Returns the trusted signers of a release with the fingerprints of their keys, or `no trusted key`. */
export function nameSigners({ release, signatures }: Pick<PlainSigned, 'release' | 'signatures'>): string {
  const own = signatures.filter(({ digest }) => digest === digestIn(release));
  if (own.length === 0) return 'no trusted key';
  return own.map(({ signer, fingerprint }) => `${signer}, key ${fingerprint}`).join('; ');
}

/** Returns the results of image policies as JSON: one entry for each image and policy. */
export function toPlainPolicies(results: readonly NamedResult[], expected: ExpectedKeys = releaseKeys) {
  return results.map(({ name, image, policy, outcome, reasons }) => {
    const key = policy.trust.kind === 'key' ? policy.trust.key.fingerprint : undefined;
    const keyName = nameKey(policy, expected);
    const { name: policyName, source } = policy;
    const keys = { key, keyName, isExpectedKey: keyName !== undefined };
    return { name, digest: image.digest, policy: policyName, source, ...keys, outcome, reasons };
  });
}

/** Returns the signers of a release and the results of its image policies as rows of a summary. */
export function describeSigned(signed: PlainSigned): string[][] {
  return [['Signed by', nameSigners(signed)], ...describePolicies(signed.sigstore)];
}

/** Returns the results of image policies as rows of a summary; none if the release enforces no policy. */
export function describePolicies(results: readonly PlainPolicy[]): string[][] {
  const groups = Map.groupBy(results, ({ policy, source, key }) => [policy, source, key].join(' '));
  return [...groups.values()].flatMap((own, index) => {
    const [first] = own;
    if (!first) return [];
    const { policy, key, keyName = 'unknown key' } = first;
    const verified = own.filter(({ outcome }) => outcome === 'verified').length;
    const [unchecked] = own.flatMap(({ outcome, reasons }) => (outcome === 'unchecked' ? reasons : []));
    const by = key === undefined ? '' : `, ${keyName} SHA256:${key}`;
    const why = unchecked === undefined ? '' : `; not checked: ${unchecked}`;
    const words = `${verified} of ${own.length} images verified, policy ${policy}${by}${why}`;
    return [[index === 0 ? 'Sigstore' : '', words]];
  });
}

/** Returns the results of image policies as lines of text; none if the release enforces no policy. */
export function listPolicies(results: readonly PlainPolicy[]): string[] {
  return describePolicies(results).map(([, result = '']) => `Sigstore: ${result}`);
}

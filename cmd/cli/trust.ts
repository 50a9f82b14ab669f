import type { VerifyTrust } from '../../lib/bundle/signatureCheck.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import type { Arguments } from './command.ts';
import { trustOptions } from './options.ts';
import { nameKey, releaseKeys, type ExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import type { NamedResult } from '../../lib/release/sigstore/releaseCheck.ts';

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

/** Returns the trust for a bundle, from `offlineTrustOptions`. */
export function offlineTrustOf(args: Omit<TrustArguments, 'signatureStore'>): VerifyTrust {
  return { ...trustOf({ ...args, signatureStore: undefined }), fetchFile: () => Promise.resolve(undefined) };
}

/** Returns the signers of a release as text. */
export function nameSigners({ release, signatures }: SignedRelease): string {
  const own = signatures.get(release.digest) ?? [];
  if (own.length === 0) return 'no trusted key';
  return own.map(({ userId, fingerprint }) => `${userId}, key ${fingerprint}`).join('; ');
}

/** Returns the results of image policies as JSON: one entry for each image and policy. */
export function toPlainPolicies(
  results: readonly NamedResult[],
  expected: ExpectedKeys = releaseKeys,
): Record<string, unknown>[] {
  return results.map(({ name, image, policy, outcome, reasons }) => {
    const key = policy.trust.kind === 'key' ? policy.trust.key.fingerprint : undefined;
    const isExpectedKey = nameKey(policy, expected) !== undefined;
    const { name: policyName, source } = policy;
    return { name, digest: image.digest, policy: policyName, source, key, isExpectedKey, outcome, reasons };
  });
}

/** Returns the results of image policies as rows of a summary; none if the release enforces no policy. */
export function describePolicies(results: readonly NamedResult[], expected: ExpectedKeys = releaseKeys): string[][] {
  const groups = Map.groupBy(results, ({ policy }) => policy);
  return [...groups].map(([policy, own], index) => {
    const { name, trust } = policy;
    const verified = own.filter(({ outcome }) => outcome === 'verified').length;
    const [unchecked] = own.flatMap(({ outcome, reasons }) => (outcome === 'unchecked' ? reasons : []));
    const fingerprint = trust.kind === 'key' ? trust.key.fingerprint : undefined;
    const key = nameKey(policy, expected) ?? 'unknown key';
    const by = fingerprint === undefined ? '' : `, ${key} SHA256:${fingerprint}`;
    const why = unchecked === undefined ? '' : `; not checked: ${unchecked}`;
    return [index === 0 ? 'Sigstore' : '', `${verified} of ${own.length} images verified, policy ${name}${by}${why}`];
  });
}

/** Returns the results of image policies as lines of text; none if the release enforces no policy. */
export function listPolicies(results: readonly NamedResult[]): string[] {
  return describePolicies(results).map(([, result = '']) => `Sigstore: ${result}`);
}

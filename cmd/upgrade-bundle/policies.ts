import { nameKey, type ExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import type { NamedResult } from '../../lib/release/sigstore/releaseCheck.ts';

/** Returns the results of image policies as JSON: one entry for each image and policy. */
export function toPlainPolicies(results: readonly NamedResult[], expected: ExpectedKeys): Record<string, unknown>[] {
  return results.map(({ name, image, policy, outcome, reasons }) => {
    const key = policy.trust.kind === 'key' ? policy.trust.key.fingerprint : undefined;
    const isExpectedKey = nameKey(policy, expected) !== undefined;
    const { name: policyName, source } = policy;
    return { name, digest: image.digest, policy: policyName, source, key, isExpectedKey, outcome, reasons };
  });
}

/** Returns the results of image policies as rows of a summary; none if the release enforces no policy. */
export function describePolicies(results: readonly NamedResult[], expected: ExpectedKeys): string[][] {
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

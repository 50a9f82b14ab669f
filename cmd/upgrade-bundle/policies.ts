import { releaseKeyFingerprints } from '../../lib/release/sigstore/imagePolicy.ts';
import type { NamedResult } from '../../lib/release/sigstore/releaseCheck.ts';

/** Returns the results of image policies as JSON: one entry for each image and policy. */
export function toPlainPolicies(results: readonly NamedResult[]): Record<string, unknown>[] {
  return results.map(({ name, image, policy, outcome, reasons }) => {
    const key = policy.trust.kind === 'key' ? policy.trust.key.fingerprint : undefined;
    return { name, digest: image.digest, policy: policy.name, source: policy.source, key, outcome, reasons };
  });
}

/** Returns the results of image policies as rows of a summary; none if the release enforces no policy. */
export function describePolicies(results: readonly NamedResult[]): string[][] {
  const groups = Map.groupBy(results, ({ policy }) => policy);
  return [...groups].map(([{ name, trust }, own], index) => {
    const verified = own.filter(({ outcome }) => outcome === 'verified').length;
    const [unchecked] = own.flatMap(({ outcome, reasons }) => (outcome === 'unchecked' ? reasons : []));
    const fingerprint = trust.kind === 'key' ? trust.key.fingerprint : undefined;
    const owner =
      fingerprint !== undefined && releaseKeyFingerprints.includes(fingerprint) ? 'Red Hat release key 3' : 'key';
    const by = fingerprint === undefined ? '' : `, ${owner} SHA256:${fingerprint}`;
    const why = unchecked === undefined ? '' : `; not checked: ${unchecked}`;
    return [index === 0 ? 'Sigstore' : '', `${verified} of ${own.length} images verified, policy ${name}${by}${why}`];
  });
}

import { identityFields } from '../bundle/identity.ts';
import { digestIn } from '../content/oci/reference.ts';
import type { BundleFacts } from './bundleFacts.ts';
import type { UpgradeBundle } from './upgradeBundle.ts';

/**
 * Describes how verified facts differ from the bundle that an UpgradeBundle allows: by the digest of the bundle, the
 * version, or the digest of the release. Undefined if they differ in nothing that it states.
 */
export function describeMismatch(
  { spec: { bundle } }: Pick<UpgradeBundle, 'spec'>,
  facts: BundleFacts,
): string | undefined {
  // The facts about one of several releases have its version.
  const { metadata } = facts.hops?.at(-1) ?? facts;
  const own = { digest: facts.digest, version: metadata.version, releaseDigest: digestIn(metadata.release) };
  for (const [field, what] of identityFields) {
    const [allowed, actual] = [bundle[field], own[field]];
    if (allowed !== undefined && allowed !== actual)
      return `the bundle that was found has the ${what} ${actual}, and ${allowed} is allowed (spec.bundle.${field})`;
  }
  return undefined;
}

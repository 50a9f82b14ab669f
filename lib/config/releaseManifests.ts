import type { SignedRelease } from '../release/load.ts';
import type { ConfigManifest } from './manifest.ts';
import { mirrorSetManifests, type Mirrors } from './mirrorSets.ts';
import { signatureConfigMap } from './signatures.ts';
import { updateServiceManifests, type UpdateServiceOptions } from './updateService.ts';

/** The configuration of a release, without its images. */
export interface ReleaseConfiguration {
  /** The mirrors of the images; without sources there is no mirror set. */
  readonly mirrors?: Mirrors;
  readonly updateService?: UpdateServiceOptions;
}

/**
 * Returns the ConfigMaps with the signatures of a release; for a multi-architecture release, also those of its signed
 * images.
 */
export function signatureManifests({
  release,
  signatures,
}: Pick<SignedRelease, 'signatures'> & { readonly release: { readonly version: string } }): ConfigManifest[] {
  return [...signatures].map(([digest, good]) => {
    const bytes = good.map((signature) => signature.bytes);
    return signatureConfigMap(digest, bytes, { version: release.version, signer: good[0]?.fingerprint ?? '' });
  });
}

/** Returns all configuration manifests of a release. The same inputs give the same manifests. */
export function releaseManifests(
  signed: SignedRelease,
  { mirrors, updateService }: ReleaseConfiguration,
): ConfigManifest[] {
  return [
    ...signatureManifests(signed),
    ...(mirrors ? mirrorSetManifests(mirrors) : []),
    ...(updateService ? updateServiceManifests(updateService) : []),
  ];
}

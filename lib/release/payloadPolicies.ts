import type { Context } from '../context.ts';
import { makeManifestFilter } from './featureGates.ts';
import { exclusionOf } from './manifestFilter.ts';
import type { PayloadFiles } from './payload.ts';
import { readPayloadObjects } from './payloadObjects.ts';
import { isImagePolicy, readImagePolicy, type ImagePolicy } from './sigstore/imagePolicy.ts';

/**
 * Reads the image policies in the manifests of a payload, with the reason why a self-managed cluster with the default
 * feature set does not have one. Skips a file that cannot be read, with a warning.
 */
export function readPayloadPolicies(files: PayloadFiles, version: string, context: Context): ImagePolicy[] {
  const policies = readPayloadObjects(files, 'ImagePolicy', context).filter(({ object }) => isImagePolicy(object));
  if (policies.length === 0) return [];
  const filter = makeManifestFilter(files, version, context);
  return policies.map(({ file, object }) => ({
    ...readImagePolicy(object, `${file} of the release payload`),
    excluded: exclusionOf(object, filter),
  }));
}

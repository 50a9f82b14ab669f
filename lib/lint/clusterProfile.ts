import type { Fields } from '../fields.ts';
import { exclusionOf, releaseMarksOf, selfManaged, type ManifestFilter } from '../release/manifestFilter.ts';

/**
 * Returns whether the version operator creates an object in self-managed clusters. `filter` is for the objects of a
 * release, of which those without annotations are left out. Other objects count unless their annotations exclude them.
 */
export function isForClusters(object: Fields, filter: ManifestFilter | undefined): boolean {
  if (filter) return exclusionOf(object, filter) === undefined;
  const { any, profiles } = releaseMarksOf(object);
  const known = { featureSet: 'Default', ...(profiles && { profile: selfManaged }) };
  return !any || exclusionOf(object, known) === undefined;
}

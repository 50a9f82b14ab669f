import type { ReleaseInspection } from '../../../lib/bundle/inspect/release.ts';
import type { Provenance } from '../../../lib/release/provenance.ts';

/** The names of parts that administrators know. */
const partNames = new Map([
  ['kubernetes', 'Kubernetes'],
  ['machine-os', 'RHCOS'],
]);

/** Returns the parts of a release with their versions, by the names that administrators know. */
export function listVersions({ versions }: Pick<Provenance, 'versions'>): [part: string, version: string][] {
  return Object.entries(versions).map(([part, version]) => [partNames.get(part) ?? part, version]);
}

/** Returns facts about the origin of the releases of a bundle: the versions of their parts and the advisories. */
export function describeProvenance(inspection: Pick<ReleaseInspection, 'versions' | 'errata'>): [string, string][] {
  return [...listVersions(inspection), ...inspection.errata.map((url): [string, string] => ['Errata', url])];
}

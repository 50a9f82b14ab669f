import { type ObjectReference, formatObjectName } from '#cluster/objects';
import { agentNamespace } from '#update/record';
import { suffixOf, type DryRun } from '../cli/mirroring/applyReport.ts';

/**
 * Formats the line for an object, in the words of kubectl. Adds its namespace if it is not our own:
 * `role/oc-upgrade-bundle -n openshift-config-managed created`.
 */
export function formatObject(object: ObjectReference, outcome: string, dryRun: DryRun): string {
  const { namespace = agentNamespace } = object.metadata;
  const place = namespace === agentNamespace ? '' : ` -n ${namespace}`;
  return `${formatObjectName(object)}${place} ${outcome}${suffixOf(dryRun)}`;
}

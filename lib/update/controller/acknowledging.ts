import { readClusterVersion } from '../../kubernetes/clusterVersion.ts';
import { conditionsOf } from '../../kubernetes/fields.ts';
import { acknowledgements, listDueAcknowledgements } from '../../preflight/acknowledgements.ts';
import { describeGate, type RequiredGate } from '../../release/adminGates.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import { falseCondition, listNames, type BundleCondition } from '../conditions.ts';
import type { Observation } from './observation.ts';

/** The acknowledgements of the next update, and of the updates after it. */
export interface Acknowledging {
  /** Whether the next update requires an acknowledgement that `spec.acknowledge` does not have. */
  readonly lacks: boolean;
  /** The condition about all of them; empty if it stays as it is. */
  readonly conditions: readonly BundleCondition[];
}

/**
 * Gives the cluster the acknowledgements that the next update requires, if `spec.acknowledge` has the names of all of
 * them. Reports the names that it lacks, also for the later updates with the bundle.
 */
export async function acknowledge(
  { cluster, bundle, site }: Pick<Observation, 'cluster' | 'bundle' | 'site'>,
  facts: BundleFacts,
): Promise<Acknowledging> {
  const { version } = facts.metadata;
  const releases = (facts.hops ?? [facts]).map(({ metadata, gates = [] }) => ({ version: metadata.version, gates }));
  const due = await listDueAcknowledgements(cluster, readClusterVersion(site.clusterVersion).version, releases);
  const lacking = due.filter(({ name }) => !bundle.spec.acknowledge?.includes(name));
  const own = due.filter((each) => each.version === version);
  const lacks = own.some((each) => lacking.includes(each));
  if (!lacks && own.length > 0) {
    const data = Object.fromEntries(own.map(({ name }) => [name, 'true']));
    await cluster.patch(acknowledgements, { data }, { manager: 'controller' });
  }
  if (lacking.length > 0) return { lacks, conditions: [describeLacking(lacking)] };
  const isStale = conditionsOf(bundle).get('Acknowledged')?.status === 'False';
  if (own.length === 0 && !isStale) return { lacks, conditions: [] };
  const given = `written to the ConfigMap admin-acks, which the version operator reads: ${nameAll(own)}`;
  const message = own.length === 0 ? 'no acknowledgement is missing' : given;
  return { lacks, conditions: [{ type: 'Acknowledged', status: 'True', reason: 'Acknowledged', message }] };
}

function describeLacking(lacking: readonly RequiredGate[]): BundleCondition {
  const message = `${listNames(lacking.map(describeGate), '; ')}. To allow this, add to spec.acknowledge: ${nameAll(lacking)}`;
  return falseCondition('Acknowledged', 'AcknowledgementRequired', message);
}

function nameAll(acknowledged: readonly RequiredGate[]): string {
  return listNames(acknowledged.map(({ name }) => name));
}

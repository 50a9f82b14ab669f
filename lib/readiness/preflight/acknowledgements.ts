import { isPluginError } from '../../errors.ts';
import { fieldsOf } from '../../fields.ts';
import type { Cluster } from '../../cluster/client.ts';
import { subjectOf, type Finding } from '../../cluster/finding.ts';
import {
  describeGate,
  listGates,
  listRequiredGates,
  type AdminGate,
  type GatedRelease,
  type RequiredGate,
} from '../../release/adminGates.ts';
import { isSameMinor } from '../../release/version.ts';

/** The ConfigMap with the acknowledgements that administrators have given. */
export const acknowledgements = {
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'admin-acks', namespace: 'openshift-config' },
} as const;

/** The ConfigMap with the gates of the running release. */
export const adminGates = {
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'admin-gates', namespace: 'openshift-config-managed' },
} as const;

/**
 * Lists the acknowledgements that a cluster lacks for its updates to some releases, in their order. The gates for the
 * first update are those of the cluster. Throws the errors of reading the two ConfigMaps.
 */
export async function listDueAcknowledgements(
  cluster: Cluster,
  running: string,
  releases: readonly GatedRelease[],
): Promise<RequiredGate[]> {
  if (releases.every(({ version }) => isSameMinor(running, version))) return [];
  const { gates, data } = await readGates(cluster, running);
  return listRequiredGates({ version: running, gates }, releases).filter(({ name }) => data[name] !== 'true');
}

/**
 * Lists the acknowledgements that a cluster lacks for an update to the next minor version. Throws the errors of reading
 * the two ConfigMaps.
 */
export async function listOwnAcknowledgements(cluster: Cluster, running: string): Promise<AdminGate[]> {
  const { gates, data } = await readGates(cluster, running);
  return gates.filter(({ name }) => data[name] !== 'true');
}

async function readGates(cluster: Cluster, running: string) {
  const [gates, given] = await Promise.all([cluster.read(adminGates), cluster.read(acknowledgements)]);
  return { gates: listGates(gates?.['data'], running), data: fieldsOf(given?.['data']) };
}

/** Finds the acknowledgements that updates to some releases require. */
export async function checkAcknowledgements(...update: Parameters<typeof listDueAcknowledgements>): Promise<Finding[]> {
  const find = (message: string, advice: string): Finding => ({
    ...{ check: 'version', severity: 'warning', subject: subjectOf(acknowledgements), message, advice },
  });
  try {
    return (await listDueAcknowledgements(...update)).map((due) => find(describeGate(due), advice.acknowledge));
  } catch (error) {
    if (!isPluginError(error, 'denied')) throw error;
    return [find(`whether the updates require acknowledgements is unknown: ${error.message}`, advice.rights)];
  }
}

const advice = {
  acknowledge:
    'Follow its text. Then add its name to spec.acknowledge of the UpgradeBundle, or set it to "true" in the ConfigMap admin-acks.',
  rights: 'Run this as a user with the right: cluster-reader is enough.',
};

import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import { listServed, type StoredObject } from '#cluster/objects';
import { ignoring, isPluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import {
  describeGate,
  listGates,
  listRequiredGates,
  type AdminGate,
  type GatedRelease,
  type RequiredGate,
  type GateConditions,
} from '#release/payload';
import { isSameMinor } from '#release/version';
import { readNode } from '../nodes/node.ts';
import { surveyedKinds, type ClusterSurvey } from './survey.ts';

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
  const [{ gates, data }, site] = await Promise.all([readGates(cluster, running), readGateConditions(cluster)]);
  return listRequiredGates({ version: running, gates }, releases, site).filter(({ name }) => data[name] !== 'true');
}

/**
 * Reads what decides which gates operators add at run time. What the user may not read is unknown. `survey`: objects
 * that were read already.
 */
export async function readGateConditions(
  cluster: Cluster,
  survey?: Pick<ClusterSurvey, 'infrastructures' | 'digestMirrors' | 'contentPolicies' | 'nodes'>,
): Promise<GateConditions> {
  const list = (apiVersion: string, kind: string): Promise<StoredObject[] | undefined> =>
    listServed(cluster, apiVersion, kind).catch(ignoring('denied'));
  const [infrastructures, digestMirrors, contentPolicies, nodes, configurations, ...gateways] = await Promise.all([
    survey?.infrastructures ?? list(...surveyedKinds.infrastructures),
    survey?.digestMirrors ?? list(...surveyedKinds.digestMirrors),
    survey?.contentPolicies ?? list(...surveyedKinds.contentPolicies),
    survey?.nodes ?? list(...surveyedKinds.nodes),
    list('operator.openshift.io/v1', 'MachineConfiguration'),
    ...gatewayKinds.map(([apiVersion, kind]) => cluster.findKind(apiVersion, kind)),
  ]);
  const isKnown = digestMirrors !== undefined && contentPolicies !== undefined;
  const status = fieldsAt(infrastructures?.[0], 'status', 'platformStatus');
  const configuration = configurations?.find(({ metadata: { name } }) => name === 'cluster');
  const { machineManagers } = fieldsAt(configuration?.['spec'], 'managedBootImages');
  return {
    platform: textOf(status['type']),
    isAzureStack: infrastructures && fieldsAt(status, 'azure')['cloudName'] === 'AzureStackCloud',
    hasMirrorSets: isKnown ? digestMirrors.length + contentPolicies.length > 0 : undefined,
    hasArmNodes: nodes?.some((node) => readNode(node).architecture === 'arm64'),
    servesGateways: gateways.some((kind) => kind !== undefined),
    managedBootImages: configurations && listOf(machineManagers).flatMap(({ resource }) => textOf(resource) ?? []),
  };
}

// cluster-ingress-operator looks for any CRD of these two groups.
const gatewayKinds = [
  ['gateway.networking.k8s.io/v1', 'GatewayClass'],
  ['gateway.networking.x-k8s.io/v1alpha1', 'XListenerSet'],
] as const;

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
  const find = (message: string, advice: string, isPossible = false): Finding => ({
    check: 'version',
    severity: isPossible ? 'info' : 'warning',
    subject: subjectOf(acknowledgements),
    message,
    advice,
  });
  try {
    return (await listDueAcknowledgements(...update)).map((due) =>
      find(describeGate(due), advice.acknowledge, due.expected?.certain === false),
    );
  } catch (error) {
    if (!isPluginError(error, 'denied')) throw error;
    return [find(`whether the updates require acknowledgements is unknown: ${error.message}`, advice.rights)];
  }
}

const advice = {
  acknowledge:
    'Follow its text. Then add its name to spec.acknowledge of the UpgradeBundle, or set it to "true" in the ' +
    'ConfigMap admin-acks. A name that no gate has is not used.',
  rights: 'Run this as a user with the right: cluster-reader is enough.',
};

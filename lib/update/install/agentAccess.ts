import type { KubernetesObject } from '../../config/manifest.ts';
import { machineConfigDaemon } from '../../preflight/agentImage.ts';
import { agentNamespace, upgradeBundleApi } from '../upgradeBundle.ts';

/** The account of the agents, on every node, and that of the controller, on the control plane only. */
export type Account = 'agent' | 'controller';

const rbac = 'rbac.authorization.k8s.io';
const watching = ['list', 'watch'];

/** One right, and what it is needed for. */
interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

function rule(group: string, resources: readonly string[], verbs: readonly string[], names?: readonly string[]): Rule {
  return { apiGroups: [group], resources, verbs, ...(names && { resourceNames: names }) };
}

// Containers that see the node’s files and devices.
const privileged = rule('security.openshift.io', ['securitycontextconstraints'], ['use'], ['privileged']);

/** What an agent needs of the cluster as a whole: to read which bundle is allowed, and what the cluster runs. */
const agentEverywhere: readonly Rule[] = [
  rule(upgradeBundleApi.group, ['upgradebundles'], ['get', 'list']),
  rule('', ['nodes'], ['get']),
  rule('config.openshift.io', ['clusterversions'], ['get'], ['version']),
];

/** What it needs in its own namespace: a Lease in which it reports, and those of the others to find them. */
const agentAtHome: readonly Rule[] = [rule('coordination.k8s.io', ['leases'], ['list', 'create', 'patch']), privileged];

/** What the controller needs of the cluster as a whole. */
const controllerEverywhere: readonly Rule[] = [
  // The record of an update, made without permission for a bundle that an agent has found.
  rule(upgradeBundleApi.group, ['upgradebundles'], ['get', ...watching, 'create']),
  rule(upgradeBundleApi.group, ['upgradebundles/status'], ['patch']),
  // Guards before the update, and what becomes of it.
  rule('', ['nodes'], watching),
  rule('', ['events'], ['list']),
  rule('config.openshift.io', ['clusterversions'], ['get', ...watching]),
  rule('config.openshift.io', ['clusteroperators'], watching),
  rule('config.openshift.io', ['featuregates', 'imagedigestmirrorsets'], ['list']),
  rule('operator.openshift.io', ['imagecontentsourcepolicies'], ['list']),
  rule('machineconfiguration.openshift.io', ['machineconfigpools', 'machineconfignodes'], watching),
  // The update itself.
  rule('config.openshift.io', ['clusterversions'], ['patch'], ['version']),
  rule('machineconfiguration.openshift.io', ['pinnedimagesets'], [...watching, 'create', 'patch', 'delete']),
  // What would replace or add nodes meanwhile is paused, and restored; so are pools before their nodes can pin images.
  rule('machine.openshift.io', ['machinehealthchecks'], ['list', 'patch']),
  rule('autoscaling.openshift.io', ['clusterautoscalers'], ['list', 'patch']),
  rule('machineconfiguration.openshift.io', ['machineconfigpools'], ['patch']),
];

/** What it needs in its own namespace: the Lease that it holds, and the reports of the agents; those of nodes that are gone are removed. */
const controllerAtHome: readonly Rule[] = [
  rule('coordination.k8s.io', ['leases'], ['get', 'update'], ['controller']),
  rule('coordination.k8s.io', ['leases'], [...watching, 'create', 'delete']),
  // Agents and controllers follow the image of the machine config daemon.
  rule('apps', ['daemonsets'], ['get', 'patch'], ['agent', 'controller']),
  privileged,
];

const daemonImage: readonly Rule[] = [rule('apps', ['daemonsets'], ['get'], [machineConfigDaemon.metadata.name])];

/** Where the cluster looks for release signatures. A right to create cannot be bound to names: a policy does that. */
const signatures: readonly Rule[] = [rule('', ['configmaps'], ['create', 'patch'])];

/** Where events have to be that are about what is in no namespace. */
const telling: readonly Rule[] = [rule('', ['events'], ['create'])];

/** What an account is called in requests. */
export function userOf(account: Account): string {
  return `system:serviceaccount:${agentNamespace}:${account}`;
}

/** Makes the accounts of the agents and of the controller with their rights: no more than what each does. */
export function agentAccess(): KubernetesObject[] {
  return [
    ...accountObjects('agent', agentEverywhere, { [agentNamespace]: agentAtHome }),
    ...accountObjects('controller', controllerEverywhere, {
      [agentNamespace]: controllerAtHome,
      'openshift-config-managed': signatures,
      [machineConfigDaemon.metadata.namespace]: daemonImage,
      default: telling,
    }),
  ];
}

/** What installations before the controller had an account of its own gave to the agents; `install` removes it. */
export const formerAccess: readonly {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string };
}[] = [
  ...['ClusterRoleBinding', 'ClusterRole'].map((kind) => formerObject(kind, {})),
  ...[agentNamespace, 'openshift-config-managed', 'default'].flatMap((namespace) =>
    ['RoleBinding', 'Role'].map((kind) => formerObject(kind, { namespace })),
  ),
];

function formerObject(kind: string, place: { namespace?: string }) {
  return { apiVersion: `${rbac}/v1`, kind, metadata: { name: agentNamespace, ...place } };
}

function accountObjects(
  account: Account,
  everywhere: readonly Rule[],
  inNamespaces: Readonly<Record<string, readonly Rule[]>>,
): KubernetesObject[] {
  const name = `${agentNamespace}-${account}`;
  const bind = (kind: string, role: string, place: { namespace?: string }): KubernetesObject => ({
    apiVersion: `${rbac}/v1`,
    kind,
    metadata: { name, ...place },
    roleRef: { apiGroup: rbac, kind: role, name },
    subjects: [{ kind: 'ServiceAccount', name: account, namespace: agentNamespace }],
  });
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: account, namespace: agentNamespace } },
    { apiVersion: `${rbac}/v1`, kind: 'ClusterRole', metadata: { name }, rules: everywhere },
    bind('ClusterRoleBinding', 'ClusterRole', {}),
    ...Object.entries(inNamespaces).flatMap(([namespace, rules]) => [
      { apiVersion: `${rbac}/v1`, kind: 'Role', metadata: { name, namespace }, rules },
      bind('RoleBinding', 'Role', { namespace }),
    ]),
  ];
}

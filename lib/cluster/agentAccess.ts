import type { KubernetesObject } from '../config/manifest.ts';
import { upgradeBundleApi } from './upgradeBundle.ts';

/** The namespace of everything that belongs to the agents, and the name that most of it has. */
export const agentNamespace = 'oc-upgrade-bundle';

const account = 'agent';
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

/** What the agents need of the cluster as a whole. */
const everywhere: readonly Rule[] = [
  // The record of what they do, made by them where a medium appears of itself.
  rule(upgradeBundleApi.group, ['upgradebundles'], ['get', ...watching, 'create']),
  rule(upgradeBundleApi.group, ['upgradebundles/status'], ['patch']),
  // Guards before the update, and what becomes of it.
  rule('', ['nodes'], ['get', ...watching]),
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

/** What they need in their own namespace. */
const atHome: readonly Rule[] = [
  rule('coordination.k8s.io', ['leases'], ['get', 'update'], ['controller']),
  // What each says of its node, in a Lease of its own, and where the others find it. Those of nodes that are gone are removed.
  rule('coordination.k8s.io', ['leases'], [...watching, 'create', 'patch', 'delete']),
  // Containers that see the node’s files and devices.
  rule('security.openshift.io', ['securitycontextconstraints'], ['use'], ['privileged']),
];

/** Where the cluster looks for release signatures. A right to create cannot be bound to names. */
const signatures: readonly Rule[] = [rule('', ['configmaps'], ['create', 'patch'])];

/** Where events have to be that are about what is in no namespace. */
const telling: readonly Rule[] = [rule('', ['events'], ['create'])];

/** Makes the account of the agents and its rights: no more than what they do. */
export function agentAccess(): KubernetesObject[] {
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: account, namespace: agentNamespace } },
    { apiVersion: `${rbac}/v1`, kind: 'ClusterRole', metadata: { name: agentNamespace }, rules: everywhere },
    binding('ClusterRoleBinding', 'ClusterRole', {}),
    ...granted(agentNamespace, atHome),
    ...granted('openshift-config-managed', signatures),
    ...granted('default', telling),
  ];
}

function granted(namespace: string, rules: readonly Rule[]): KubernetesObject[] {
  const role = { apiVersion: `${rbac}/v1`, kind: 'Role', metadata: { name: agentNamespace, namespace }, rules };
  return [role, binding('RoleBinding', 'Role', { namespace })];
}

function binding(kind: string, role: string, place: { namespace?: string }): KubernetesObject {
  return {
    apiVersion: `${rbac}/v1`,
    kind,
    metadata: { name: agentNamespace, ...place },
    roleRef: { apiGroup: rbac, kind: role, name: agentNamespace },
    subjects: [{ kind: 'ServiceAccount', name: account, namespace: agentNamespace }],
  };
}

import type { KubernetesObject } from '../../config/manifest.ts';
import { machineConfigDaemon } from '../../readiness/preflight/agentImage.ts';
import { acknowledgements, adminGates } from '../../readiness/preflight/acknowledgements.ts';
import { agentNamespace, reportNamespace, upgradeBundleApi } from '../upgradeBundle.ts';

/** The account of the agents on every node, or of the controllers on the control plane. */
export type Account = 'agent' | 'controller';

const rbac = 'rbac.authorization.k8s.io';
const watching = ['list', 'watch'];

/** One rule of a role. */
interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

function rule(group: string, resources: readonly string[], verbs: readonly string[], names?: readonly string[]): Rule {
  return { apiGroups: [group], resources, verbs, ...(names && { resourceNames: names }) };
}

// Lets containers access the node’s files and devices.
const privileged = rule('security.openshift.io', ['securitycontextconstraints'], ['use'], ['privileged']);

/** The cluster-wide rules of an agent: to read the allowed bundle, and the versions that the cluster runs. */
const agentEverywhere: readonly Rule[] = [
  rule(upgradeBundleApi.group, ['upgradebundles'], ['get', 'list']),
  rule('', ['nodes'], ['get']),
  rule('config.openshift.io', ['clusterversions'], ['get'], ['version']),
];

/** The rules of an agent for reports: for the Lease with its own, and for those of other agents, to find them. */
const agentReports: readonly Rule[] = [rule('coordination.k8s.io', ['leases'], ['list', 'create', 'patch'])];

/** The cluster-wide rules of the controller. */
const controllerEverywhere: readonly Rule[] = [
  // To create the record of a bundle that an agent has found, without allowing it, and to delete it again.
  rule(upgradeBundleApi.group, ['upgradebundles'], ['get', ...watching, 'create', 'delete']),
  rule(upgradeBundleApi.group, ['upgradebundles/status'], ['patch']),
  // To check the cluster before the update, and to follow the update.
  rule('', ['nodes'], watching),
  rule('', ['events'], ['list']),
  rule('config.openshift.io', ['clusterversions'], ['get', ...watching]),
  rule('config.openshift.io', ['clusteroperators'], watching),
  rule('config.openshift.io', ['featuregates', 'imagedigestmirrorsets', 'infrastructures'], ['list']),
  rule('', ['namespaces', 'pods'], ['list']),
  rule('policy', ['poddisruptionbudgets'], ['list']),
  rule('operator.openshift.io', ['etcds'], ['list']),
  rule('admissionregistration.k8s.io', ['validatingwebhookconfigurations', 'mutatingwebhookconfigurations'], ['list']),
  rule('discovery.k8s.io', ['endpointslices'], ['list']),
  rule('operator.openshift.io', ['imagecontentsourcepolicies'], ['list']),
  rule('machineconfiguration.openshift.io', ['machineconfigpools', 'machineconfignodes'], watching),
  // The update itself.
  rule('config.openshift.io', ['clusterversions'], ['patch'], ['version']),
  rule('machineconfiguration.openshift.io', ['pinnedimagesets'], [...watching, 'create', 'patch', 'delete']),
  // To describe the operating system streams for machine-config-controller. A policy limits which.
  rule('machineconfiguration.openshift.io', ['osimagestreams'], [...watching, 'create']),
  rule('machineconfiguration.openshift.io', ['osimagestreams'], ['get', 'patch'], ['cluster']),
  rule('machineconfiguration.openshift.io', ['osimagestreams/status'], ['patch'], ['cluster']),
  rule('machineconfiguration.openshift.io', ['controllerconfigs'], ['get'], ['machine-config-controller']),
  // To pause and restore objects that replace or add nodes, and pools whose nodes cannot pin images yet.
  rule('machine.openshift.io', ['machinehealthchecks'], ['list', 'patch']),
  rule('autoscaling.openshift.io', ['clusterautoscalers'], ['list', 'patch']),
  rule('machineconfiguration.openshift.io', ['machineconfigpools'], ['patch']),
];

/** The rules of the controller for the reports of agents. It deletes reports of nodes that are gone. */
const controllerReports: readonly Rule[] = [rule('coordination.k8s.io', ['leases'], [...watching, 'delete'])];

/** The rules of the controller in its own namespace: for the Lease that it holds, and creates if it is missing. */
const controllerAtHome: readonly Rule[] = [
  rule('coordination.k8s.io', ['leases'], ['get', 'update'], ['controller']),
  rule('coordination.k8s.io', ['leases'], ['create']),
  // To keep agents and controllers on the image of the machine config daemon.
  rule('apps', ['daemonsets'], ['get', 'patch'], ['agent', 'controller']),
  privileged,
];

/** The rules for the namespace of the machine config operator: for the image of the agents, and for the log of its controller. */
const machineConfig: readonly Rule[] = [
  rule('apps', ['daemonsets'], ['get'], [machineConfigDaemon.metadata.name]),
  rule('', ['pods'], watching),
  rule('', ['pods/log'], ['get']),
  rule('coordination.k8s.io', ['leases'], ['get'], ['machine-config-controller']),
];

/**
 * The rules for the namespace in which the cluster looks for release signatures. RBAC cannot limit `create` to names; a
 * policy does.
 */
const signatures: readonly Rule[] = [rule('', ['configmaps'], ['create', 'patch'])];

/** The rules for the acknowledgements that updates to another minor version require, and for the gates that name them. */
const gates: readonly Rule[] = [rule('', ['configmaps'], ['get'], [adminGates.metadata.name])];
const acknowledging: readonly Rule[] = [rule('', ['configmaps'], ['get', 'patch'], [acknowledgements.metadata.name])];

/** The rules for the namespace of events about objects without a namespace. */
const telling: readonly Rule[] = [rule('', ['events'], ['create'])];

/** Returns the user name of an account in requests. */
export function userOf(account: Account): string {
  return `system:serviceaccount:${agentNamespace}:${account}`;
}

/** Returns the accounts of the agents and of the controller, with only the rights that they use. */
export function agentAccess(): KubernetesObject[] {
  return [
    ...accountObjects('agent', agentEverywhere, { [agentNamespace]: [privileged], [reportNamespace]: agentReports }),
    ...accountObjects('controller', controllerEverywhere, {
      [agentNamespace]: controllerAtHome,
      [reportNamespace]: controllerReports,
      [adminGates.metadata.namespace]: [...signatures, ...gates],
      [acknowledgements.metadata.namespace]: acknowledging,
      [machineConfigDaemon.metadata.namespace]: machineConfig,
      default: telling,
    }),
  ];
}

/**
 * The former access of agents, from versions in which the controller had no account of its own. `install` removes it.
 */
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

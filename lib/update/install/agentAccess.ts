import type { Written } from '#config/manifest';
import { machineConfigDaemon, acknowledgements, adminGates } from '#readiness/preflight';
import {
  grantAccess,
  allow,
  type AccessObject,
  type Account,
  type AccountRules,
  type AccessRule,
  userOf,
} from '../record/accountAccess.ts';
import { agentNamespace, reportNamespace, upgradeBundleApi } from '../record/upgradeBundle.ts';
import { reportMap } from '../report/reportKey.ts';

const watching = ['list', 'watch'];

// Lets containers access the node’s files and devices.
const privileged = allow('security.openshift.io', ['securitycontextconstraints'], ['use'], ['privileged']);

/** The cluster-wide rules of an agent: to read the allowed bundle, and the versions that the cluster runs. */
const agentEverywhere: readonly AccessRule[] = [
  allow(upgradeBundleApi.group, ['upgradebundles'], ['get', ...watching]),
  allow('', ['nodes'], ['get']),
  allow('config.openshift.io', ['clusterversions'], ['get'], ['version']),
];

/** The rules of an agent for reports: for the Lease with its own, and for those of other agents, to find them. */
const agentReports: readonly AccessRule[] = [allow('coordination.k8s.io', ['leases'], ['list', 'create', 'patch'])];

/** The cluster-wide rules of the controller. */
const controllerEverywhere: readonly AccessRule[] = [
  // To create the record of a bundle that an agent has found, without allowing it, and to delete it again.
  allow(upgradeBundleApi.group, ['upgradebundles'], ['get', ...watching, 'create', 'delete']),
  allow(upgradeBundleApi.group, ['upgradebundles/status'], ['patch']),
  // To check the cluster before the update, and to follow the update.
  allow('', ['nodes'], watching),
  allow('', ['events'], ['list']),
  allow('config.openshift.io', ['clusterversions'], ['get', ...watching]),
  allow('config.openshift.io', ['clusteroperators'], watching),
  allow('config.openshift.io', ['featuregates', 'imagedigestmirrorsets', 'infrastructures'], ['list']),
  allow('', ['namespaces', 'pods'], ['list']),
  allow('policy', ['poddisruptionbudgets'], ['list']),
  allow('kubevirt.io', ['virtualmachineinstances'], ['list']),
  allow('operator.openshift.io', ['etcds', 'machineconfigurations'], ['list']),
  allow('admissionregistration.k8s.io', ['validatingwebhookconfigurations', 'mutatingwebhookconfigurations'], ['list']),
  allow('discovery.k8s.io', ['endpointslices'], ['list']),
  allow('operator.openshift.io', ['imagecontentsourcepolicies'], ['list']),
  allow('machineconfiguration.openshift.io', ['machineconfigpools', 'machineconfignodes'], watching),
  // The update itself.
  allow('config.openshift.io', ['clusterversions'], ['patch'], ['version']),
  allow('machineconfiguration.openshift.io', ['pinnedimagesets'], [...watching, 'create', 'patch', 'delete']),
  // To describe the operating system streams for machine-config-controller. A policy limits which.
  allow('machineconfiguration.openshift.io', ['osimagestreams'], [...watching, 'create']),
  allow('machineconfiguration.openshift.io', ['osimagestreams'], ['get', 'patch'], ['cluster']),
  allow('machineconfiguration.openshift.io', ['osimagestreams/status'], ['patch'], ['cluster']),
  allow('machineconfiguration.openshift.io', ['controllerconfigs'], ['get'], ['machine-config-controller']),
  // To pause and restore objects that replace or add nodes, and pools whose nodes cannot pin images yet.
  allow('machine.openshift.io', ['machinehealthchecks'], ['list', 'patch']),
  allow('autoscaling.openshift.io', ['clusterautoscalers'], ['list', 'patch']),
  allow('machineconfiguration.openshift.io', ['machineconfigpools'], ['patch']),
];

/** The rules of the controller for the reports of agents. It deletes reports of nodes that are gone. */
const controllerReports: readonly AccessRule[] = [allow('coordination.k8s.io', ['leases'], [...watching, 'delete'])];

/** The rules of the controller in its own namespace: for the Lease that it holds, and creates if it is missing. */
const controllerAtHome: readonly AccessRule[] = [
  allow('coordination.k8s.io', ['leases'], ['get', 'update'], ['controller']),
  allow('coordination.k8s.io', ['leases'], ['create']),
  // To keep agents and controllers on the image of the machine config daemon.
  allow('apps', ['daemonsets'], ['get', 'patch'], ['agent', 'controller']),
  privileged,
];

/**
 * The rules for the namespace of the machine config operator: for the image of the agents, and for the log of its
 * controller.
 */
const machineConfig: readonly AccessRule[] = [
  allow('apps', ['daemonsets'], ['get'], [machineConfigDaemon.metadata.name]),
  allow('', ['pods'], watching),
  allow('', ['pods/log'], ['get']),
  allow('coordination.k8s.io', ['leases'], ['get'], ['machine-config-controller']),
];

/**
 * The rules for the namespace in which the cluster looks for release signatures. RBAC cannot limit `create` to names; a
 * policy does.
 */
const signatures: readonly AccessRule[] = [allow('', ['configmaps'], ['create', 'patch'])];

/**
 * The rules for the acknowledgements that updates to another minor version require, and for the gates that name them.
 */
const gates: readonly AccessRule[] = [allow('', ['configmaps'], ['get'], [adminGates.metadata.name])];
const acknowledging: readonly AccessRule[] = [
  allow('', ['configmaps'], ['get', 'patch'], [acknowledgements.metadata.name]),
];

/** The rules for the namespace of events about objects without a namespace. */
const telling: readonly AccessRule[] = [allow('', ['events'], ['create'])];

/** Returns the accounts of the agents and of the controller, with only the rights that they use. */
export function agentAccess(): AccountObject[] {
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

type AccountObject = AccessObject | Written<'ServiceAccount'>;

function accountObjects(account: Account, ...rules: AccountRules): AccountObject[] {
  const metadata = { name: account, namespace: agentNamespace };
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata },
    ...grantAccess(`${agentNamespace}-${account}`, account, ...rules),
  ];
}

/** The argument with which controllers make reports, and agents write them onto drives. */
export const reportsArgument = '--reports';

const name = (account: Account): string => `${agentNamespace}-${account}-reports`;
const [configMaps, logs] = [['configmaps'], ['pods/log']];
const own = [reportMap.metadata.name];

/**
 * Returns the access that reports need. The controller reads what `preflight` reads, by OpenShift’s own role for that,
 * which shows no Secrets. It changes one ConfigMap. Agents read that ConfigMap.
 */
export function reportAccess(): AccessObject[] {
  const [namespace, kind] = [agentNamespace, 'ServiceAccount'];
  return [
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: name('controller') },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-reader' },
      subjects: [{ kind, name: 'controller', namespace }],
    },
    ...grantAccess(name('controller'), 'controller', [], {
      [agentNamespace]: [allow('', configMaps, ['get', 'patch'], own), allow('', logs, ['get'])],
      'openshift-cluster-version': [allow('', logs, ['get'])],
    }),
    ...grantAccess(name('agent'), 'agent', [], { [agentNamespace]: [allow('', configMaps, ['get'], own)] }),
  ];
}

/** The CEL expression that is true for a write of the report by the controller. */
export const writesReport =
  `(request.userInfo.username == '${userOf('controller')}' && object.metadata.namespace == '${agentNamespace}' && ` +
  `object.metadata.name == '${reportMap.metadata.name}')`;

/** The objects that an installation without reports does not have. The key stays, because engineers know it. */
export const reportReferences = [
  ...reportAccess().map(({ apiVersion, kind, metadata: { name: own, namespace } }) => ({
    apiVersion,
    kind,
    metadata: { name: own, ...(namespace !== undefined && { namespace }) },
  })),
  reportMap,
];

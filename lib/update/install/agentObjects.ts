import { basename, dirname } from 'node:path/posix';
import type {
  V1Affinity,
  V1Container,
  V1ContainerPort,
  V1DownwardAPIVolumeFile,
  V1EnvVar,
  V1NetworkPolicyIngressRule,
  V1NetworkPolicyPeer,
  V1NetworkPolicyPort,
  V1NodeSelectorTerm,
  V1PodSpec,
  V1ServicePort,
} from '@kubernetes/client-node';
import type { KubernetesObject, Json, Written } from '#config/manifest';
import { type SignalKind, executablePath } from '#node/machine';
import { agentPlacement } from '#readiness/nodes';
import { readyPath } from '../agent/agentServer.ts';
import { servingSecret } from '../mirror/mirrorCertificates.ts';
import { mirrorSecretFolder } from '../mirror/mirrorUnit.ts';
import type { Account } from '../record/accountAccess.ts';
import { agentNamespace, reportNamespace } from '../record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../record/upgradeBundleDefinition.ts';
import { reportKeyFolder, reportKeySecret } from '../report/reportKey.ts';
import { accountPolicies } from './accountPolicies.ts';
import { agentAccess, reportAccess, reportsArgument } from './agentAccess.ts';
import {
  describeExecutables,
  executablePort,
  keyringPath,
  startScript,
  tokenPath,
  type ExecutableRecords,
} from './agentScript.ts';
import { describeTrust, keysAnnotation, noTrust, type AgentTrust } from './agentTrust.ts';
import { recordVersion } from './executable.ts';
import { agentLabels, metricsArgument, metricsIngress, metricsPort, metricsPortName } from './metricsObjects.ts';
import { pullPolicyAdmission, type AdmissionMode } from './pullPolicyAdmission.ts';

/** Settings of the objects of an installation. */
export interface AgentOptions {
  /** The image of the agents, by digest. Every node already has it, such as the image of the machine config daemon. */
  readonly image: string;
  /** The executables of the agents. An agent on a node of another architecture waits. */
  readonly executables: ExecutableRecords;
  /** The trust of the agents; by default only the Red Hat release key. */
  readonly trust?: AgentTrust;
  /** The policy for workloads that pull at every start; undefined for none. */
  readonly admission: AdmissionMode | undefined;
  /**
   * Whether the cluster has ValidatingAdmissionPolicies (Kubernetes 1.30), which limit the writes of the accounts;
   * default true.
   */
  readonly policies?: boolean;
  /** Whether the cluster evaluates the CEL rules of definitions (Kubernetes 1.25). */
  readonly rules: boolean;
  /** Whether a control plane node has the label `master` only; default false. */
  readonly masterLabel?: boolean;
  /** Whether agents serve metrics; default false. */
  readonly metrics?: boolean;
  /** What agents say to a person in front of a node; by default on the login screen only. */
  readonly screen?: { readonly console: boolean; readonly signal?: SignalKind | undefined } | undefined;
  /** Whether controllers make reports, and agents write them onto drives; default false. */
  readonly reports?: boolean;
  /** The version of this program, to record it; by default nothing is recorded. */
  readonly version?: string | undefined;
}

const controllerLabels = { 'app.kubernetes.io/name': `${agentNamespace}-controller` };

/**
 * The Secret with the shared token of the agents, under `token`. Each installation creates a random one, and it is in
 * no file.
 */
export const tokenSecret = { name: 'bundle-token', namespace: agentNamespace } as const;

const labels = agentLabels;
const ownPods: Json<V1NetworkPolicyPeer> = { podSelector: { matchLabels: labels } };
/** The port on which agents serve their bundle to each other, by TLS with a key from the token. */
const port = 8080;

/**
 * Returns the objects with which a cluster can update itself from bundles, in the order to apply them. They need no
 * registry: the image is on the nodes, and `install` uploads the executable.
 */
export function agentObjects(options: AgentOptions): KubernetesObject[] {
  const { admission, policies = true, rules, metrics = false, reports = false } = options;
  return [
    upgradeBundleDefinition({ rules }),
    namespace,
    // No pod runs there.
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: reportNamespace } } satisfies Written<'Namespace'>,
    ...agentAccess(),
    ...(reports ? reportAccess() : []),
    networkPolicy(metrics),
    service(metrics),
    controllerLease,
    ...(admission ? pullPolicyAdmission(admission) : []),
    ...(policies ? accountPolicies() : []),
    daemonSet('controller', options),
    daemonSet('agent', options),
  ];
}

function inNamespace(name: string) {
  return { name, namespace: agentNamespace, labels };
}

const controllerLease: Written<'Lease'> = {
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: inNamespace('controller'),
  spec: {},
};

const namespace: Written<'Namespace'> = {
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: {
    name: agentNamespace,
    labels: {
      ...Object.fromEntries(
        ['enforce', 'audit', 'warn'].map((mode) => [`pod-security.kubernetes.io/${mode}`, 'privileged']),
      ),
      'security.openshift.io/scc.podSecurityLabelSync': 'false',
    },
    // On every node, even if the cluster has a default node selector, and on the reserved processors.
    annotations: { 'openshift.io/node-selector': '', 'workload.openshift.io/allowed': 'management' },
  },
};

function networkPolicy(metrics: boolean): Written<'NetworkPolicy'> {
  const own: Json<V1NetworkPolicyIngressRule> = {
    from: [ownPods],
    ports: [port, executablePort].map((each): Json<V1NetworkPolicyPort> => ({ protocol: 'TCP', port: each })),
  };
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: inNamespace('agents-only'),
    spec: { podSelector: {}, policyTypes: ['Ingress'], ingress: metrics ? [own, metricsIngress] : [own] },
  };
}

/** The ports of an agent by their names. */
function portsOf(metrics: boolean): [name: string, port: number][] {
  return [
    ['bundle', port],
    ['executable', executablePort],
    ...(metrics ? [[metricsPortName, metricsPort] as [string, number]] : []),
  ];
}

// Headless: the name resolves to all agents, ready or not, because an agent that loads can serve already.
function service(metrics: boolean): Written<'Service'> {
  const ports = portsOf(metrics).map(([name, each]): Json<V1ServicePort> => ({
    name,
    port: each,
    protocol: 'TCP',
    targetPort: each,
  }));
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: inNamespace('bundle'),
    spec: { clusterIP: 'None', publishNotReadyAddresses: true, selector: labels, ports },
  };
}

/**
 * Returns the DaemonSet of an account: one controller on each control plane node, of which one leads, or one agent on
 * every node that may have one.
 */
function daemonSet(account: Account, options: AgentOptions): Written<'DaemonSet'> {
  const isAgent = account === 'agent';
  const { keys } = options.trust ?? noTrust;
  const own = isAgent ? labels : controllerLabels;
  const annotations = options.version === undefined ? undefined : recordVersion(options.version);
  const metadata = { ...inNamespace(account), labels: own, ...(annotations && { annotations }) };
  const ownPlace: Partial<Json<V1PodSpec>> = isAgent ? { hostPID: true } : { affinity: controlPlaneAffinity(options) };
  const spec: Written<'DaemonSet'>['spec'] = {
    selector: { matchLabels: own },
    updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '100%' } },
    template: {
      metadata: {
        labels: own,
        annotations: {
          'openshift.io/required-scc': 'privileged',
          'target.workload.openshift.io/management': '{"effect": "PreferredDuringScheduling"}',
          ...(keys !== '' && { [keysAnnotation]: keys }),
        },
      },
      spec: {
        serviceAccountName: account,
        priorityClassName: 'openshift-user-critical',
        ...agentPlacement,
        ...ownPlace,
        tolerations: [{ operator: 'Exists' }],
        terminationGracePeriodSeconds: 30,
        containers: [isAgent ? agentContainer(options) : controllerContainer(options)],
        volumes: [
          { name: 'host', hostPath: { path: '/', type: 'Directory' } },
          isAgent
            ? { name: 'token', secret: { secretName: tokenSecret.name } }
            : { name: 'mirror', secret: { secretName: servingSecret.name, optional: true } },
          ...(isAgent || options.reports !== true
            ? []
            : [{ name: 'report-key', secret: { secretName: reportKeySecret.metadata.name } }]),
          ...(keys !== '' ? [{ name: 'keys', downwardAPI: { items: [keysFile] } }] : []),
        ],
      },
    },
  };
  return { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata, spec };
}

// API servers warn of the label `master`. Nodes of clusters that were installed before 4.12 can have only that one.
function controlPlaneAffinity({ masterLabel = false }: AgentOptions): Json<V1Affinity> {
  const roles = ['control-plane', ...(masterLabel ? ['master'] : [])];
  const nodeSelectorTerms = roles.map((role): Json<V1NodeSelectorTerm> => ({
    matchExpressions: [{ key: `node-role.kubernetes.io/${role}`, operator: 'Exists' }],
  }));
  return { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } };
}

// An annotation of the pod template: if the keys change, the pods restart.
const keysFile: Json<V1DownwardAPIVolumeFile> = {
  path: basename(keyringPath),
  fieldRef: { fieldPath: `metadata.annotations['${keysAnnotation}']` },
};

function container(name: Account, { image, trust = noTrust, reports = false }: AgentOptions) {
  const args = [...describeTrust(trust), ...(reports ? [reportsArgument] : [])];
  return {
    name,
    image,
    imagePullPolicy: 'IfNotPresent',
    command: ['/bin/bash', '-c', startScript, name],
    ...(args.length > 0 && { args }),
    resources: { requests: { cpu: '10m', memory: '100Mi' } },
    securityContext: { privileged: true, readOnlyRootFilesystem: true },
    volumeMounts: [
      { name: 'host', mountPath: '/host', mountPropagation: 'HostToContainer' },
      ...(trust.keys !== '' ? [{ name: 'keys', mountPath: dirname(keyringPath), readOnly: true }] : []),
    ],
  } satisfies Json<V1Container>;
}

/** Returns the options of an agent for what it says to a person in front of its node. */
function describeScreenOptions(screen: AgentOptions['screen']): string[] {
  const { console = true, signal } = screen ?? {};
  return [...(console ? [] : ['--console=off']), ...(signal === undefined ? [] : [`--signal=${signal}`])];
}

const nodeName: Json<V1EnvVar> = { name: 'NODE_NAME', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } };

function controllerContainer(options: AgentOptions): Json<V1Container> {
  // The agent of its node fetches the executable. The controller is ready when it runs that.
  const isRunning = `[[ $(readlink /proc/1/exe) == *${basename(executablePath)}* ]]`;
  const { volumeMounts, ...rest } = container('controller', options);
  return {
    ...rest,
    env: [nodeName, ...describeExecutables(options.executables)],
    readinessProbe: { exec: { command: ['/bin/bash', '-c', isRunning] }, periodSeconds: 5 },
    volumeMounts: [
      ...volumeMounts,
      { name: 'mirror', mountPath: mirrorSecretFolder, readOnly: true },
      ...(options.reports ? [{ name: 'report-key', mountPath: reportKeyFolder, readOnly: true }] : []),
    ],
  };
}

function agentContainer(options: AgentOptions): Json<V1Container> {
  const { volumeMounts, args = [], ...rest } = container('agent', options);
  const { metrics = false, screen } = options;
  const own = [...args, ...(metrics ? [metricsArgument] : []), ...describeScreenOptions(screen)];
  return {
    ...rest,
    ...(own.length > 0 && { args: own }),
    env: [
      nodeName,
      { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
      { name: 'PEERS', value: `http://bundle:${executablePort}` },
      ...describeExecutables(options.executables),
    ],
    ports: portsOf(metrics).map(([name, each]): Json<V1ContainerPort> => ({
      name,
      containerPort: each,
      protocol: 'TCP',
    })),
    // Before an agent starts, it waits for its executable. It is ready if it reaches the API server.
    readinessProbe: { httpGet: { port: executablePort, path: readyPath }, periodSeconds: 5 },
    volumeMounts: [...volumeMounts, { name: 'token', mountPath: dirname(tokenPath), readOnly: true }],
  };
}

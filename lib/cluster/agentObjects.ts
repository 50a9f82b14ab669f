import { basename, dirname } from 'node:path/posix';
import type { KubernetesObject } from '../config/manifest.ts';
import { agentAccess, agentNamespace } from './agentAccess.ts';
import {
  describeExecutables,
  executablePort,
  keyringPath,
  startScript,
  tokenPath,
  type ExecutableDigests,
} from './agentStart.ts';
import { describeTrust, keysAnnotation, noTrust, type AgentTrust } from './agentTrust.ts';
import { pullPolicyAdmission, type AdmissionMode } from './pullPolicyAdmission.ts';
import { upgradeBundleDefinition } from './upgradeBundleDefinition.ts';

/** What the objects of an installation depend on. */
export interface AgentOptions {
  /** The image that the agents run in, by digest: one that is on every node already, as that of the machine config daemon is. */
  readonly image: string;
  /** What the agents run. Nodes of another architecture have agents that wait. */
  readonly executables: ExecutableDigests;
  /** Whom they believe; by default nobody but the Red Hat release key. */
  readonly trust?: AgentTrust;
  /** What to do about workloads that pull at every start; undefined for nothing. */
  readonly admission: AdmissionMode | undefined;
  /** The cluster evaluates the rules of definitions (Kubernetes 1.25). */
  readonly rules: boolean;
}

/** The label of all agents, and of what belongs to them. */
export const agentLabels = { 'app.kubernetes.io/name': agentNamespace };

/** The Secret with the token by which agents know each other, under `token`. It is in no file: whoever installs makes one of his own. */
export const tokenSecret = { name: 'bundle-token', namespace: agentNamespace } as const;

const labels = agentLabels;
const ownPods = { podSelector: { matchLabels: labels } };
/** Where agents serve their bundle to each other, by TLS with a key from the token. */
const port = 8080;

/**
 * Makes the objects by which a cluster can update itself from bundles, in the order in which they can be applied. Nothing of
 * it needs a registry: the image is on the nodes, and the executable comes to them by another way.
 */
export function agentObjects(options: AgentOptions): KubernetesObject[] {
  const { admission, rules } = options;
  return [
    upgradeBundleDefinition({ rules }),
    namespace,
    ...agentAccess(),
    networkPolicy,
    { apiVersion: 'v1', kind: 'Service', metadata: inNamespace('bundle'), spec: serviceSpec },
    { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: inNamespace('controller'), spec: {} },
    ...(admission ? pullPolicyAdmission(admission) : []),
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: inNamespace('agent'),
      spec: daemonSetSpec(options),
    },
  ];
}

function inNamespace(name: string) {
  return { name, namespace: agentNamespace, labels };
}

const namespace: KubernetesObject = {
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
    // On every node, whatever the default of the cluster; and on its reserved processors.
    annotations: { 'openshift.io/node-selector': '', 'workload.openshift.io/allowed': 'management' },
  },
};

const networkPolicy: KubernetesObject = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: inNamespace('agents-only'),
  spec: {
    podSelector: {},
    policyTypes: ['Ingress'],
    ingress: [{ from: [ownPods], ports: [port, executablePort].map((each) => ({ protocol: 'TCP', port: each })) }],
  },
};

// Without an address of its own: its name leads to all agents, ready or not, since one that loads can serve already.
const serviceSpec = {
  clusterIP: 'None',
  publishNotReadyAddresses: true,
  selector: labels,
  ports: [
    { name: 'bundle', port, protocol: 'TCP', targetPort: port },
    { name: 'executable', port: executablePort, protocol: 'TCP', targetPort: executablePort },
  ],
};

function daemonSetSpec(options: AgentOptions): object {
  const { keys } = options.trust ?? noTrust;
  return {
    selector: { matchLabels: labels },
    updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '100%' } },
    template: {
      metadata: {
        labels,
        annotations: {
          'openshift.io/required-scc': 'privileged',
          'target.workload.openshift.io/management': '{"effect": "PreferredDuringScheduling"}',
          ...(keys !== '' && { [keysAnnotation]: keys }),
        },
      },
      spec: {
        serviceAccountName: 'agent',
        priorityClassName: 'openshift-user-critical',
        hostPID: true,
        tolerations: [{ operator: 'Exists' }],
        terminationGracePeriodSeconds: 30,
        containers: [container(options)],
        volumes: [
          { name: 'host', hostPath: { path: '/', type: 'Directory' } },
          { name: 'token', secret: { secretName: tokenSecret.name } },
          ...(keys !== '' ? [{ name: 'keys', downwardAPI: { items: [keysFile] } }] : []),
        ],
      },
    },
  };
}

// With the keys in the pod itself, agents that have others are others, and are started anew.
const keysFile = {
  path: basename(keyringPath),
  fieldRef: { fieldPath: `metadata.annotations['${keysAnnotation}']` },
};

function container({ image, executables, trust = noTrust }: AgentOptions): object {
  const args = describeTrust(trust);
  return {
    name: 'agent',
    image,
    imagePullPolicy: 'IfNotPresent',
    command: ['/bin/bash', '-c', startScript, 'agent'],
    ...(args.length > 0 && { args }),
    env: [
      { name: 'NODE_NAME', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } },
      { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
      { name: 'PEERS', value: `http://bundle:${String(executablePort)}` },
      ...describeExecutables(executables),
    ],
    ports: [
      { name: 'bundle', containerPort: port, protocol: 'TCP' },
      { name: 'executable', containerPort: executablePort, protocol: 'TCP' },
    ],
    resources: { requests: { cpu: '10m', memory: '100Mi' } },
    securityContext: { privileged: true, readOnlyRootFilesystem: true },
    // An agent serves from its start on: one that does not is waiting for its executable.
    readinessProbe: { tcpSocket: { port }, periodSeconds: 5 },
    volumeMounts: [
      { name: 'host', mountPath: '/host', mountPropagation: 'HostToContainer' },
      { name: 'token', mountPath: dirname(tokenPath), readOnly: true },
      ...(trust.keys !== '' ? [{ name: 'keys', mountPath: dirname(keyringPath), readOnly: true }] : []),
    ],
  };
}

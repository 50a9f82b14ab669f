import type { V1NetworkPolicyIngressRule } from '@kubernetes/client-node';
import type { Json, WrittenAs } from '#config/manifest';
import { agentNamespace } from '../record/upgradeBundle.ts';

/** The label of the pods and objects of agents, by which Services and surveys select them. */
export const agentLabels = { 'app.kubernetes.io/name': agentNamespace };

/** The port on which agents serve metrics, if the installation asks for them. */
export const metricsPort = 8082;

/** The argument that lets an agent serve metrics. */
export const metricsArgument = `--metrics-port=${metricsPort}`;

/** The name of the port in the Service of the agents. */
export const metricsPortName = 'metrics';

/** The Secret with the bearer token of the metrics, under `token`. */
export const metricsSecret = { name: 'metrics-token', namespace: agentNamespace } as const;

/** The kind by which Prometheus finds what to scrape. OpenShift serves it. */
export const serviceMonitorKind = { apiVersion: 'monitoring.coreos.com/v1', kind: 'ServiceMonitor' } as const;

/** What a ServiceMonitor has here (prometheus-operator, monitoring.coreos.com/v1). */
interface ServiceMonitorContent {
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly endpoints: readonly {
      readonly port: string;
      readonly path: string;
      readonly interval: string;
      readonly authorization: {
        readonly type: 'Bearer';
        readonly credentials: { readonly name: string; readonly key: string };
      };
    }[];
  };
}

/** Tells Prometheus to read the metrics of all agents with the token of the Secret. */
export const serviceMonitor: WrittenAs<'monitoring.coreos.com/v1', 'ServiceMonitor', ServiceMonitorContent> = {
  ...serviceMonitorKind,
  metadata: { name: 'agents', namespace: agentNamespace, labels: agentLabels },
  spec: {
    selector: { matchLabels: agentLabels },
    endpoints: [
      {
        port: metricsPortName,
        path: '/metrics',
        interval: '30s',
        authorization: { type: 'Bearer', credentials: { name: metricsSecret.name, key: 'token' } },
      },
    ],
  },
};

/** Lets the monitoring of OpenShift, of the platform or of users, reach the metrics through the NetworkPolicy. */
export const metricsIngress: Json<V1NetworkPolicyIngressRule> = {
  from: [
    {
      namespaceSelector: {
        matchExpressions: [
          {
            key: 'kubernetes.io/metadata.name',
            operator: 'In',
            values: ['openshift-monitoring', 'openshift-user-workload-monitoring'],
          },
        ],
      },
    },
  ],
  ports: [{ protocol: 'TCP', port: metricsPort }],
};

/** The objects of an installation that only metrics need. */
export const metricsReferences = [
  { ...serviceMonitorKind, metadata: { name: 'agents', namespace: agentNamespace } },
  { apiVersion: 'v1', kind: 'Secret', metadata: metricsSecret },
];

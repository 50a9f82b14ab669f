import type { TestApiServer } from '../kubernetes/apiServer.ts';
import { infrastructure, node as makeNode, withConditions } from './site.ts';

/** A topology of the control plane that has fewer than three equal nodes. */
export interface Topology {
  readonly topology: string;
  /** The roles of the nodes, by their names. */
  readonly roles: Readonly<Record<string, readonly string[]>>;
}

const controlPlane = ['control-plane', 'master', 'worker'];

/** Two control plane nodes with fencing. */
export const dualReplica: Topology = {
  topology: 'DualReplica',
  roles: { 'master-0': controlPlane, 'master-1': controlPlane },
};

/** Two control plane nodes with an arbiter, which has a member of etcd only. */
export const withArbiter: Topology = {
  topology: 'HighlyAvailableArbiter',
  roles: { 'master-0': controlPlane, 'master-1': controlPlane, 'arbiter-0': ['arbiter'] },
};

/** Replaces the nodes of a furnished server by those of a topology, with its pools and members of etcd. */
export function furnishTopology({ topology, roles }: Topology, server: TestApiServer): void {
  const kind = server.kinds.find((each) => each.kind === 'Node');
  if (!kind) throw new Error('the server has no nodes');
  for (const name of ['worker-0', 'worker-1']) server.objects.delete({ kind, namespace: '', name }, {}, false);
  const names = Object.keys(roles);
  for (const [index, name] of names.entries()) {
    const own = roles[name] ?? [];
    const {
      spec: _,
      status,
      ...base
    } = makeNode(name, 'worker', {
      nodeInfo: { architecture: 'amd64', kubeletVersion: 'v1.35.6' },
      addresses: [{ type: 'InternalIP', address: `192.0.2.${index + 11}` }],
    });
    const labels = Object.fromEntries(own.map((role) => [`node-role.kubernetes.io/${role}`, '']));
    const isArbiter = own.includes('arbiter');
    const taints = isArbiter ? [{ key: 'node-role.kubernetes.io/arbiter', effect: 'NoSchedule' }] : [];
    const metadata = { name, labels: { 'kubernetes.io/os': 'linux', ...labels } };
    server.put({ ...base, metadata, spec: { taints }, status });
    if (isArbiter) {
      const pool = { Updated: 'True', Updating: 'False', Degraded: 'False' };
      server.put(withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'arbiter', pool));
    }
  }
  server.put(infrastructure(topology));
  const members = { EtcdMembersAvailable: `True because ${names.length} members are available` };
  server.put(withConditions('operator.openshift.io/v1', 'Etcd', 'cluster', members));
}

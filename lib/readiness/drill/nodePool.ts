import { fieldsAt, fieldsOf } from '../../fields.ts';
import { PluginError } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import { isPoolNode, readNode } from '../preflight/node.ts';

/** Returns the nodes of a pool, sorted. Throws `not-found` if it has none. */
export async function listPool(cluster: Cluster, pool: string): Promise<string[]> {
  const apiVersion = 'machineconfiguration.openshift.io/v1';
  const object = await cluster.read({ apiVersion, kind: 'MachineConfigPool', metadata: { name: pool } });
  const { matchLabels = { [`node-role.kubernetes.io/${pool}`]: '' } } = fieldsAt(object, 'spec', 'nodeSelector');
  const labels = Object.entries(fieldsOf(matchLabels));
  const nodes = object ? (await cluster.list('v1', 'Node')).map(readNode) : [];
  const own = nodes.filter((node) => isPoolNode(node) && labels.every(([key, value]) => node.labels[key] === value));
  if (own.length > 0) return own.map(({ name }) => name).sort();
  throw new PluginError('not-found', object ? `the pool ${pool} has no nodes` : `there is no pool ${pool}`, {
    hint: 'See “oc get machineconfigpool” and “oc get nodes”.',
  });
}

import type { Cluster } from '../kubernetes/client.ts';
import type { DrillRecord } from '../preflight/drillRecord.ts';

/** Creates an event about a drill of a node. Events of nodes are in `default`; the cluster deletes them after hours. */
export async function recordEvent(cluster: Cluster, node: string, record: DrillRecord): Promise<void> {
  const { result, ended, reboot, pods = 0, missing = 0, images = 0, message } = record;
  const time = ended.replace(/\.\d+/, '');
  const how = reboot ? 'a reboot' : 'a restart of the container runtime';
  const words = `${pods - missing} of ${pods} pods ran again after ${how} without a registry; ${images} images were asked for`;
  await cluster.create({
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name: `${node.slice(0, 200)}.drill-${Date.parse(ended).toString(16)}`, namespace: 'default' },
    // As in the events of kubelets, the uid of a node is its name.
    involvedObject: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    reason: `Drill${result.charAt(0).toUpperCase()}${result.slice(1)}`,
    message: (message === undefined ? words : `${message}; ${words}`).slice(0, 1000),
    type: result === 'passed' ? 'Normal' : 'Warning',
    ...{ firstTimestamp: time, lastTimestamp: time, count: 1 },
    source: { component: 'oc-upgrade-bundle' },
    ...{ reportingComponent: 'oc-upgrade-bundle', reportingInstance: node },
  });
}

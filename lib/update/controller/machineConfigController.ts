import { ignoreFailure } from '../../errors.ts';
import { fieldsOf, textOf } from '../../fields.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { controllerPods, runsRelease, type StreamImages } from '../osImageStreamWrite.ts';

/** A machine-config-controller that leads and does nothing, because it waits for its OSImageStream. */
export interface WaitingController {
  readonly pod: string;
  /** Since when it leads: `2026-11-25T10:00:00Z`. */
  readonly since: string;
  /** The commit that it compares, by the first line of its log; undefined if the log does not have it any more. */
  readonly commit: string | undefined;
  /** The last line of its log. */
  readonly lastLine: string;
}

const { namespace } = controllerPods;
const name = 'machine-config-controller';
const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } };
const config = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'ControllerConfig', metadata: { name } };

/** How long a controller may lead before it counts as waiting, in milliseconds. One try of it lasts 5 minutes. */
const patience = 10 * 60_000;

/**
 * Finds a machine-config-controller of this release that has led for 10 minutes, and has not rendered the present
 * ControllerConfig. It starts its other controllers only after its first OSImageStream (openshift
 * machine-config-operator d20efd9b9, cmd/machine-config-controller/start.go). Throws the errors of the cluster.
 */
export async function findWaitingController(
  cluster: Cluster,
  pods: readonly StoredObject[],
  images: StreamImages,
  now = Date.now(),
): Promise<WaitingController | undefined> {
  if (!pods.some((pod) => runsRelease(pod, images))) return undefined;
  const { holderIdentity, acquireTime } = fieldsOf((await cluster.read(lease))?.['spec']);
  // The identity is the host name of the pod, and a UUID.
  const holder = textOf(holderIdentity)?.split('_')[0];
  const leader = pods.find((pod) => pod.metadata.name === holder && runsRelease(pod, images));
  const since = Date.parse(textOf(acquireTime) ?? '');
  if (!leader || !(now - since >= patience)) return undefined;
  const rendered = await cluster.read(config);
  const { generation } = fieldsOf(rendered?.metadata);
  if (fieldsOf(rendered?.['status'])['observedGeneration'] === generation) return undefined;
  const pod = leader.metadata.name;
  // The kubelet of the pod may be unreachable. The wait is worth reporting without the log.
  const read = async (limit: { tailLines?: number; limitBytes?: number }): Promise<string> =>
    (await cluster.readLog({ name: pod, namespace }, { container: name, ...limit }).catch(ignoreFailure)) ?? '';
  const [head, tail] = [await read({ limitBytes: 4096 }), await read({ tailLines: 1, limitBytes: 4096 })];
  return {
    pod,
    since: new Date(since).toISOString().replace(/\.\d+/, ''),
    commit: /^.*\] Version: \S* \(([0-9a-f]{7,64})\)$/m.exec(head)?.[1],
    lastLine: tail.trim().slice(0, 500),
  };
}

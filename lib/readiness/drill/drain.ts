import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import type { Cluster } from '../../cluster/client.ts';
import { awaitDone, type WaitOptions } from '../../waiting.ts';
import type { DrillPod } from './drillPods.ts';

/**
 * Evicts pods and waits until they are gone. A PodDisruptionBudget delays an eviction. Throws `not-ready` with the pods
 * that are left after the timeout.
 */
export async function evictPods(
  cluster: Cluster,
  pods: readonly DrillPod[],
  options: WaitOptions,
  context: Context,
): Promise<void> {
  const asked = new Set<string>();
  const check = async (): Promise<PluginError | undefined> => {
    const present = new Set((await cluster.list('v1', 'Pod')).map(({ metadata }) => metadata.uid));
    const remainingPods = pods.filter(({ uid }) => present.has(uid));
    const reasons = await Promise.all(
      remainingPods.filter(({ uid }) => !asked.has(uid)).map((pod) => evict(cluster, pod, asked)),
    );
    const [first] = remainingPods;
    if (!first) return undefined;
    const why = reasons.find((reason) => reason !== undefined);
    const names = nameSome(remainingPods.map(({ namespace, name }) => `${namespace}/${name}`));
    const message = `these pods did not leave the node: ${names}${why === undefined ? '' : ` (${why})`}`;
    const hint =
      'See “oc get poddisruptionbudget -A” and “oc describe pod”. The drill changed nothing on the node that stays.';
    return new PluginError('not-ready', message, { hint, settings: ['timeout'] });
  };
  await awaitDone(check, options, context);
}

async function evict(
  cluster: Cluster,
  { namespace, name, uid }: DrillPod,
  asked: Set<string>,
): Promise<string | undefined> {
  try {
    await cluster.evict({ name, namespace, uid });
    asked.add(uid);
    return undefined;
  } catch (error) {
    if (isPluginError(error, 'rate-limited')) return error.message;
    throw error;
  }
}

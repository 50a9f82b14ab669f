import { fieldsOf, listOf, textOf } from '../../fields.ts';
import type { Context } from '../../context.ts';
import type { ApplyOptions } from '../../kubernetes/apply.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { conditionsOf } from '../../kubernetes/fields.ts';
import type { ObjectReference } from '../../kubernetes/discovery.ts';
import { deleteObjects, applyObjects, type AppliedObject } from '../../kubernetes/serverSideApply.ts';
import { isAdditional, listStoreObjects, planStore, policyFiles, storeConfigName } from './storeObjects.ts';
import { isSelected, poolRoles, roleLabel, selectorOf } from '../../preflight/pinnedImageSets.ts';
import type { WaitOptions } from '../../waiting.ts';
import {
  awaitThat,
  describeUnhealthy,
  disruptionPolicy,
  findMissingPolicy,
  listPools,
  notReady,
} from '../poolRollout.ts';

const policyPaths = policyFiles.map(({ path }) => path);

/** The changes to the nodes, and the time to wait for them. */
export interface StoreChoice extends WaitOptions {
  /** Whether to add an additional store; by default only the setting that keeps images after a power failure. */
  readonly additional: boolean;
}

/**
 * Makes the nodes keep their images and, if requested, use an additional store. The order avoids reboots: first the
 * policy, which must be in force, then the files, for which every pool must be up to date. Logs the pool that it waits
 * for. Throws the errors of planStore, and `not-ready` with the pool or the policy that is not ready.
 */
export async function installStore(
  cluster: Cluster,
  options: ApplyOptions,
  wait: StoreChoice,
  context: Context,
): Promise<readonly AppliedObject[]> {
  // A store that is in use stays.
  const additional = wait.additional || isAdditional(await listStoreObjects(cluster));
  const { policy, configs } = await planStore(cluster, { additional });
  if (!options.dryRun) {
    const [first] = (await listPools(cluster)).flatMap((pool) => describeUnhealthy(pool) ?? []);
    if (first !== undefined) throw notReady(`The files of nodes are not changed while a problem exists: ${first}`);
  }
  const stated = await applyObjects(cluster, [policy], options, context);
  if (!options.dryRun) await awaitThat(() => findMissingPolicy(cluster, policyPaths), wait, context);
  const files = await applyObjects(cluster, configs, options, context);
  if (!options.dryRun) await awaitThat(() => findLatePool(cluster, true), wait, context);
  return [...stated, ...files];
}

/**
 * Removes an additional store from the configuration of the nodes, while the policy keeps them from rebooting. The
 * folder of the store stays on the nodes, because containers may run from it. The policy and the setting that keeps
 * images stay unless `removePins`; the policy also without timeouts. Returns the removed objects. Throws `not-ready`
 * with the pool that is not ready.
 */
export async function removeStore(
  cluster: Cluster,
  { dryRun, removePins }: Pick<ApplyOptions, 'dryRun'> & { readonly removePins: boolean },
  wait: WaitOptions | undefined,
  context: Context,
): Promise<readonly ObjectReference[]> {
  const objects = await listStoreObjects(cluster);
  const kept = removePins || !isAdditional(objects) ? [] : (await planStore(cluster, { additional: false })).configs;
  const going = objects.filter(
    ({ kind, metadata }) =>
      (removePins || isAdditional(objects)) &&
      !kept.some((each) => each.kind === kind && each.metadata.name === metadata.name),
  );
  const references = going.map(({ apiVersion, kind, metadata: { name } }) => ({
    apiVersion,
    kind,
    metadata: { name },
  }));
  const gone = await deleteObjects(cluster, references, { dryRun }, context);
  if (!dryRun) await applyObjects(cluster, kept, { overwrite: true }, context);
  if (gone.length + kept.length === 0 || dryRun || !wait) return gone;
  await awaitThat(() => findLatePool(cluster, kept.length > 0), wait, context);
  // An empty spec removes the fields that we applied. Fields of other managers stay.
  if (kept.length === 0) await cluster.apply({ ...disruptionPolicy, spec: {} });
  return gone;
}

/** Returns the pool that does not have the files yet, or still has them; undefined if all pools are up to date. */
async function findLatePool(cluster: Cluster, wanted: boolean): Promise<string | undefined> {
  const pools = await listPools(cluster);
  const roles = poolRoles(pools);
  for (const pool of pools) {
    const problem = describeUnhealthy(pool);
    if (problem !== undefined) return problem;
    const { name } = pool.metadata;
    const status = fieldsOf(pool['status']);
    const count = (field: string): number => Number(status[field] ?? 0);
    const sources = listOf(fieldsOf(status['configuration'])['source']).map((source) => textOf(source['name']));
    const role = roles.find((each) => isSelected({ [roleLabel]: each }, selectorOf(pool)));
    const own = role === undefined ? undefined : storeConfigName(role);
    const updated = conditionsOf(pool).get('Updated')?.status === 'True';
    if (updated && sources.includes(own) === wanted) continue;
    return `the pool ${name}: ${count('updatedMachineCount')} of ${count('machineCount')} nodes are up to date`;
  }
  return undefined;
}

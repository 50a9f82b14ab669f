import type { Cluster } from '#cluster/client';
import { conditionsOf, type StoredObject } from '#cluster/objects';
import type { WrittenAs } from '#config/manifest';
import { type Context, awaitDone, type WaitOptions } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { describeDegraded } from '#readiness/preflight';
import { isOlder } from '#release/version';

/** The object with the node disruption policies: the effect of a changed file on a node. */
export const disruptionPolicy = {
  apiVersion: 'operator.openshift.io/v1',
  kind: 'MachineConfiguration',
  metadata: { name: 'cluster' },
} as const;

/** The policies about files in the MachineConfiguration (openshift/api, operator/v1, NodeDisruptionPolicySpecFile). */
export type DisruptionPolicy = WrittenAs<
  'operator.openshift.io/v1',
  'MachineConfiguration',
  { readonly spec: { readonly nodeDisruptionPolicy?: { readonly files: readonly FilePolicy[] } } }
>;

/** A file on nodes, and what its change does there. */
export interface FilePolicy {
  readonly path: string;
  readonly actions: readonly FileAction[];
}

/** An action after a file has changed. */
export type FileAction =
  | { readonly type: 'None' }
  | { readonly type: 'Reload'; readonly reload: { readonly serviceName: string } }
  | { readonly type: 'Restart'; readonly restart: { readonly serviceName: string } };

/** A MachineConfig (openshift/api, machineconfiguration/v1) with files for the nodes, in the format of Ignition. */
export type FilesConfig = WrittenAs<
  'machineconfiguration.openshift.io/v1',
  'MachineConfig',
  {
    readonly spec: {
      readonly config: {
        readonly ignition: { readonly version: '3.2.0' };
        readonly storage: { readonly files: readonly IgnitionFile[] };
      };
    };
  }
>;

/** A file in a MachineConfig (Ignition 3.2). `source` is a data URL with the content. */
export interface IgnitionFile {
  readonly path: string;
  readonly mode: number;
  readonly overwrite: boolean;
  readonly contents: { readonly source: string };
}

/** The first OpenShift version that obeys node disruption policies by default. */
const firstWithPolicies = '4.17.0-0';

/** Returns whether files can change on the nodes of a cluster without a reboot or a drain. */
export async function obeysPolicies(cluster: Cluster, version: string): Promise<boolean> {
  if (version === '' || isOlder(version, firstWithPolicies)) return false;
  if (!(await cluster.findKind(disruptionPolicy.apiVersion, disruptionPolicy.kind))) return false;
  return (await cluster.read(disruptionPolicy)) !== undefined;
}

/** Lists the machine config pools. Throws `not-served` on a cluster without the kind. */
export async function listPools(cluster: Cluster): Promise<StoredObject[]> {
  return await cluster.list('machineconfiguration.openshift.io/v1', 'MachineConfigPool');
}

/** Returns the name of the machine config that all updated nodes of a pool have, from its status; empty if unknown. */
export function readRendered(status: unknown): string {
  return textOf(fieldsAt(status, 'configuration')['name']) ?? '';
}

/** Returns why a pool does not update its nodes; undefined if it does. */
function describeUnhealthy(pool: StoredObject): string | undefined {
  const { name } = pool.metadata;
  const degraded = describeDegraded(pool);
  if (fieldsOf(pool['spec'])['paused'] === true) return `the pool ${name} is paused`;
  return degraded === undefined ? undefined : `the pool ${name} is degraded: ${degraded || 'see its conditions'}`;
}

/** Returns whether a healthy pool has updated all its nodes. */
export function hasUpdatedNodes(pool: StoredObject): boolean {
  return describeUnhealthy(pool) === undefined && conditionsOf(pool).get('Updated')?.status === 'True';
}

/** Checks all pools before the files of nodes are changed. Throws `not-ready` with the first problem. */
export async function requireHealthyPools(cluster: Cluster): Promise<void> {
  const [problem] = (await listPools(cluster)).flatMap((pool) => describeUnhealthy(pool) ?? []);
  if (problem !== undefined) throw notReady(`The files of nodes are not changed while a problem exists: ${problem}`);
}

/** Returns the pool that is not up to date, or whose nodes are not as `isDone` wants; undefined if there is none. */
export async function findLatePool(
  cluster: Cluster,
  isDone: (pool: StoredObject, pools: readonly StoredObject[]) => boolean | Promise<boolean>,
): Promise<string | undefined> {
  const pools = await listPools(cluster);
  for (const pool of pools) {
    const problem = describeUnhealthy(pool);
    if (problem !== undefined) return problem;
    if (hasUpdatedNodes(pool) && (await isDone(pool, pools))) continue;
    const { updatedMachineCount: done = 0, machineCount: all = 0 } = fieldsOf(pool['status']);
    const isAll = Number(done) === Number(all);
    const counts = `${Number(done)} of ${Number(all)} nodes are up to date`;
    return (
      'the pool ' +
      `${pool.metadata.name}: ${isAll ? 'the machine config operator has not begun with the change' : counts}`
    );
  }
  return undefined;
}

/** Returns why the node disruption policy is not in force for some paths; undefined if it is. */
export async function findMissingPolicy(cluster: Cluster, neededPaths: readonly string[]): Promise<string | undefined> {
  const object = await cluster.read(disruptionPolicy);
  const { observedGeneration, nodeDisruptionPolicyStatus } = fieldsOf(object?.['status']);
  const { files } = fieldsAt(nodeDisruptionPolicyStatus, 'clusterPolicies');
  const paths = listOf(files).map(({ path }) => path);
  const isSeen = Number(observedGeneration ?? 0) >= Number(object?.metadata['generation'] ?? 0);
  if (isSeen && neededPaths.every((path) => paths.includes(path))) return undefined;
  return 'the machine config operator has not taken the node disruption policy yet (machineconfiguration/cluster)';
}

/**
 * Waits until `find` returns no reason to wait, and logs each reason, also every minute. Throws `not-ready` with the
 * last reason, and with a hint, by default the one for pools.
 */
export async function awaitThat(
  find: () => Promise<string | undefined>,
  { timeout, interval = 5000 }: WaitOptions,
  context: Context,
  hint?: string,
): Promise<void> {
  let logged = '';
  let loggedAt = 0;
  const check = async (): Promise<PluginError | undefined> => {
    const reason = await find();
    if (reason === undefined) return undefined;
    if (reason !== logged || Date.now() - loggedAt >= minute) {
      context.log('info', `waiting: ${reason}`);
      [logged, loggedAt] = [reason, Date.now()];
    }
    return notReady(`After ${Math.round(timeout / 1000)} s it is not ready: ${reason}`, hint);
  };
  await awaitDone(check, { timeout, interval }, context);
}

const minute = 60_000;

/** Returns the error for what is not ready, by default pools or a policy. */
export function notReady(
  message: string,
  hint = 'See oc get machineconfigpool, and oc describe it. Run this again when it is healthy.',
): PluginError {
  return new PluginError('not-ready', message, { hint });
}

import { type ApplyOptions, deleteObjects, applyObjects, type AppliedObject } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { isSelected, type StoredObject, referenceOf, type ObjectReference, readMatching } from '#cluster/objects';
import type { Context, WaitOptions } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, listOf, textOf } from '#fields';
import { retention, poolRoles, roleLabel, selectorOf } from '#readiness/nodes';
import {
  awaitThat,
  disruptionPolicy,
  type IgnitionFile,
  type DisruptionPolicy,
  type FileAction,
  type FilePolicy,
  type FilesConfig,
  findLatePool,
  findMissingPolicy,
  listPools,
  obeysPolicies,
  requireHealthyPools,
} from '../record/poolRollout.ts';

const machines = 'machineconfiguration.openshift.io/v1';

const configName = /^98-.+-oc-upgrade-bundle-store$/;

const restartRuntime: readonly FileAction[] = [{ type: 'Restart', restart: { serviceName: 'crio.service' } }];

/** The files that change on nodes without a reboot or a drain. */
const policyFiles: readonly FilePolicy[] = [{ path: retention.path, actions: restartRuntime }];

/** The objects that make nodes keep their images. The policy must be in force before the others are applied. */
export interface RetentionObjects {
  readonly policy: DisruptionPolicy;
  readonly configs: readonly FilesConfig[];
}

/**
 * Returns the objects with the CRI-O setting that keeps images, for each role of pools. Throws `unsupported` before
 * OpenShift 4.17, where a change of this file reboots every node.
 */
export async function planRetention(cluster: Cluster): Promise<RetentionObjects> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  if (!(await obeysPolicies(cluster, version))) {
    throw new PluginError(
      'unsupported',
      `${cluster.name} (${version || 'no OpenShift'}) cannot change the container runtime of nodes without ` +
        'rebooting each of them',
      {
        hint: 'Node disruption policies came with OpenShift 4.17. Before it, install without the retention of images.',
      },
    );
  }
  return {
    policy: { ...disruptionPolicy, spec: { nodeDisruptionPolicy: { files: policyFiles } } },
    configs: poolRoles(await listPools(cluster)).map((role) => describeConfig(role)),
  };
}

function describeConfig(role: string): FilesConfig {
  const source = `data:text/plain;charset=utf-8;base64,${Buffer.from(retention.content).toString('base64')}`;
  const files: IgnitionFile[] = [{ path: retention.path, mode: 0o644, overwrite: true, contents: { source } }];
  return {
    apiVersion: machines,
    kind: 'MachineConfig',
    metadata: { name: nameConfig(role), labels: { [roleLabel]: role } },
    spec: { config: { ignition: { version: '3.2.0' }, storage: { files } } },
  };
}

function nameConfig(role: string): string {
  return `98-${role}-oc-upgrade-bundle-store`;
}

/**
 * Makes the nodes keep their images after a power failure. The order avoids reboots: first the policy, which must be in
 * force, then the files, for which every pool must be up to date. Logs the pool that it waits for. Throws the errors of
 * planRetention, and `not-ready` with the pool or the policy that is not ready.
 */
export async function installRetention(
  cluster: Cluster,
  options: ApplyOptions,
  wait: WaitOptions,
  context: Context,
): Promise<readonly AppliedObject[]> {
  const { policy, configs } = await planRetention(cluster);
  if (!options.dryRun) await requireHealthyPools(cluster);
  const stated = await applyObjects(cluster, [policy], options, context);
  const paths = policyFiles.map(({ path }) => path);
  if (!options.dryRun) await awaitThat(() => findMissingPolicy(cluster, paths), wait, context);
  const files = await applyObjects(cluster, configs, options, context);
  if (!options.dryRun) await awaitThat(() => findLatePool(cluster, hasFiles), wait, context);
  return [...stated, ...files];
}

/**
 * Removes the setting that keeps images from the nodes, while the policy keeps them from rebooting, and then the
 * policy. Without `wait`, the policy stays. Returns the removed MachineConfigs. Throws `not-ready` with the pool that
 * is not ready.
 */
export async function removeRetention(
  cluster: Cluster,
  { dryRun }: Pick<ApplyOptions, 'dryRun'>,
  wait: WaitOptions | undefined,
  context: Context,
): Promise<readonly ObjectReference[]> {
  // Also for pools that no longer exist. By their metadata, because each rendered MachineConfig has megabytes.
  const own = await readMatching(cluster, machines, 'MachineConfig', ({ metadata }) => configName.test(metadata.name));
  const gone = await deleteObjects(cluster, own.map(referenceOf), { dryRun }, context);
  if (gone.length === 0 || dryRun || !wait) return gone;
  const isDone: typeof hasFiles = (...of) => !hasFiles(...of);
  await awaitThat(() => findLatePool(cluster, isDone), wait, context);
  // An empty spec removes the fields that we applied. Fields of other managers stay.
  await cluster.apply({ ...disruptionPolicy, spec: {} } satisfies DisruptionPolicy);
  return gone;
}

function hasFiles(pool: StoredObject, pools: readonly StoredObject[]): boolean {
  const sources = listOf(fieldsAt(pool['status'], 'configuration')['source']).map((source) => textOf(source['name']));
  const role = poolRoles(pools).find((each) => isSelected({ [roleLabel]: each }, selectorOf(pool)));
  return role !== undefined && sources.includes(nameConfig(role));
}

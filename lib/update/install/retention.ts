import { type ApplyOptions, deleteObjects, applyObjects, type AppliedObject } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { isSelected, type StoredObject, referenceOf, type ObjectReference, readMatching } from '#cluster/objects';
import type { KubernetesObject } from '#config/manifest';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { fieldsAt, listOf, textOf } from '#fields';
import { formerStorePath, storageFile } from '#node/machine';
import { readConfigFile, retention, poolRoles, roleLabel, selectorOf } from '#readiness/nodes';
import type { WaitOptions } from '#waiting';
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

/** The file with which earlier versions made the machine config operator create an additional store. */
const markerPath = `${formerStorePath}/.managed`;

const configName = /^98-(.+)-oc-upgrade-bundle-store$/;

const restartRuntime: readonly FileAction[] = [{ type: 'Restart', restart: { serviceName: 'crio.service' } }];

/**
 * The files that change on nodes without a reboot or a drain. The first two are those of an additional store of an
 * earlier version, which uninstallation removes.
 */
const policyFiles: readonly FilePolicy[] = [
  { path: markerPath, actions: [{ type: 'None' }] },
  { path: storageFile, actions: restartRuntime },
  { path: retention.path, actions: restartRuntime },
];

/** The objects that make nodes keep their images. The policy must be in force before the others are applied. */
export interface RetentionObjects {
  readonly policy: DisruptionPolicy;
  readonly configs: readonly FilesConfig[];
}

/** Returns whether an object adds an additional store to nodes, as earlier versions did. */
function addsStore(object: KubernetesObject): boolean {
  return object.kind !== 'MachineConfig' || readConfigFile(object, markerPath) !== undefined;
}

/** Returns whether an earlier version added an additional store to the nodes. */
export async function hasStore(cluster: Cluster): Promise<boolean> {
  return (await listOwn(cluster)).some(addsStore);
}

/**
 * Reads the MachineConfigs and ContainerRuntimeConfigs of installations, also for pools that no longer exist. Finds them
 * by their metadata, because each rendered MachineConfig has megabytes.
 */
async function listOwn(cluster: Cluster): Promise<StoredObject[]> {
  const objects = await Promise.all([
    readMatching(cluster, machines, 'ContainerRuntimeConfig', ({ metadata }) =>
      metadata.name.startsWith('oc-upgrade-bundle-store-'),
    ),
    readMatching(cluster, machines, 'MachineConfig', ({ metadata }) => configName.test(metadata.name)),
  ]);
  return objects.flat();
}

/**
 * Returns the objects with the CRI-O setting that keeps images, for each role of pools. Leaves out roles with an
 * additional store of an earlier version: their objects have the setting too. Throws `unsupported` before OpenShift
 * 4.17, where a change of this file reboots every node.
 */
export async function planRetention(cluster: Cluster): Promise<RetentionObjects> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  if (!(await obeysPolicies(cluster, version))) {
    throw new PluginError(
      'unsupported',
      `${cluster.name} (${version || 'no OpenShift'}) cannot change the container runtime of nodes without rebooting each of them`,
      {
        hint: 'Node disruption policies came with OpenShift 4.17. Before it, install without the retention of images.',
      },
    );
  }
  const stores = (await listOwn(cluster)).filter(addsStore).map(({ metadata }) => metadata.name);
  const configs = poolRoles(await listPools(cluster)).map((role) => describeConfig(role));
  return {
    policy: { ...disruptionPolicy, spec: { nodeDisruptionPolicy: { files: policyFiles } } },
    configs: configs.filter(({ metadata }) => !stores.includes(metadata.name)),
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
 * Removes an additional store of an earlier version from the configuration of the nodes, while the policy keeps them
 * from rebooting. The folder of the store stays on the nodes, because containers may run from it. The policy and the
 * setting that keeps images stay unless `removePins`; the policy also without timeouts. Returns the removed objects.
 * Throws `not-ready` with the pool that is not ready.
 */
export async function removeStore(
  cluster: Cluster,
  { dryRun, removePins }: Pick<ApplyOptions, 'dryRun'> & { readonly removePins: boolean },
  wait: WaitOptions | undefined,
  context: Context,
): Promise<readonly ObjectReference[]> {
  const objects = await listOwn(cluster);
  const changed = removePins ? [] : objects.filter((each) => each.kind === 'MachineConfig' && addsStore(each));
  const kept = changed.map(({ metadata }) => describeConfig(metadata.name.replace(configName, '$1')));
  const going = objects.filter(({ kind }) => removePins || kind !== 'MachineConfig').map(referenceOf);
  const gone = await deleteObjects(cluster, going, { dryRun }, context);
  if (!dryRun) await applyObjects(cluster, kept, { overwrite: true }, context);
  if (gone.length + kept.length === 0 || dryRun || !wait) return gone;
  const isDone: typeof hasFiles = (...of) => hasFiles(...of) === kept.length > 0;
  await awaitThat(() => findLatePool(cluster, isDone), wait, context);
  // An empty spec removes the fields that we applied. Fields of other managers stay.
  if (kept.length === 0) await cluster.apply({ ...disruptionPolicy, spec: {} } satisfies DisruptionPolicy);
  return gone;
}

function hasFiles(pool: StoredObject, pools: readonly StoredObject[]): boolean {
  const sources = listOf(fieldsAt(pool['status'], 'configuration')['source']).map((source) => textOf(source['name']));
  const role = poolRoles(pools).find((each) => isSelected({ [roleLabel]: each }, selectorOf(pool)));
  return role !== undefined && sources.includes(nameConfig(role));
}

import { fieldsAt, listOf, textOf } from '../../fields.ts';
import type { KubernetesObject } from '../../config/manifest.ts';
import { PluginError } from '../../errors.ts';
import { addStore, storeMarker, storesIn } from '../../node/runtime/storeConfig.ts';
import { readConfigFile, retention } from '../../preflight/imageRetention.ts';
import { isSelected, poolRoles, roleLabel, selectorOf } from '../../preflight/pinnedImageSets.ts';
import { isOlder } from '../../release/version.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import { listServed } from '../../kubernetes/servedObjects.ts';
import { defaultStorePath, storageFile } from '../../machine/paths.ts';
import { disruptionPolicy } from '../poolRollout.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const runtimeKind = 'ContainerRuntimeConfig';

/**
 * The first OpenShift version that obeys node disruption policies by default, and the first whose
 * ContainerRuntimeConfig has additional stores.
 */
const [firstWithPolicies, firstWithStores] = ['4.17.0-0', '4.23.0-0'];

/** The file that makes the machine config operator create the folder of the store, also on nodes that join later. */
const markerPath = `${defaultStorePath}/${storeMarker.name}`;

/** The objects that change the nodes without a reboot. The policy must be in force before the others are applied. */
export interface StoreObjects {
  readonly policy: KubernetesObject;
  readonly configs: readonly KubernetesObject[];
}

const restartRuntime = [{ type: 'Restart', restart: { serviceName: 'crio.service' } }];

/**
 * The files of the policy. The marker has no effect; a change of the container runtime’s own files restarts it without
 * a drain.
 */
export const policyFiles = [
  { path: markerPath, actions: [{ type: 'None' }] },
  { path: storageFile, actions: restartRuntime },
  { path: retention.path, actions: restartRuntime },
] as const;

/** The node disruption policy. */
export const storePolicy: KubernetesObject = {
  ...disruptionPolicy,
  spec: { nodeDisruptionPolicy: { files: policyFiles } },
};

/** Returns the name of the MachineConfig for the pools of a role. */
export function storeConfigName(role: string): string {
  return `98-${role}-oc-upgrade-bundle-store`;
}

/** Lists the store’s objects that an installation created in a cluster, also for pools that no longer exist. */
export async function listStoreObjects(cluster: Cluster): Promise<StoredObject[]> {
  const [runtimes, configs] = await Promise.all([
    listServed(cluster, machines, runtimeKind),
    listServed(cluster, machines, 'MachineConfig'),
  ]);
  return [
    ...runtimes.filter(isOwnRuntime),
    ...configs.filter(({ metadata }) => /^98-.+-oc-upgrade-bundle-store$/.test(metadata.name)),
  ];
}

/** Returns whether the objects of an installation add an additional store, in addition to keeping images. */
export function isAdditional(objects: readonly KubernetesObject[]): boolean {
  return objects.some((each) => each.kind === runtimeKind || readConfigFile(each, markerPath) !== undefined);
}

/**
 * Returns the objects for each role of pools: the CRI-O setting that keeps images and, for an additional store, each
 * pool’s own storage.conf with the store. Throws `unsupported` before OpenShift 4.17, where a change of these files
 * reboots every node, and for a storage.conf that cannot be extended. Throws `conflict` if a MachineConfig or
 * ContainerRuntimeConfig of another user overrides ours.
 */
export async function planStore(
  cluster: Cluster,
  { additional }: { readonly additional: boolean },
): Promise<StoreObjects> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  if (version === '' || isOlder(version, firstWithPolicies) || !(await hasPolicies(cluster))) {
    throw new PluginError(
      'unsupported',
      `${cluster.name} (${version || 'no OpenShift'}) cannot change the container runtime of nodes without rebooting each of them`,
      {
        hint: 'Node disruption policies came with OpenShift 4.17. Before it, install without an additional store and without the retention of images.',
      },
    );
  }
  const [pools, configs] = await Promise.all([
    cluster.list(machines, 'MachineConfigPool'),
    cluster.list(machines, 'MachineConfig'),
  ]);
  const roles = poolRoles(pools);
  const keeping = file(retention.path, retention.content);
  if (!additional) return { policy: storePolicy, configs: roles.map((role) => machineConfig(role, [keeping])) };
  const marker = file(markerPath, storeMarker.content);
  if (!isOlder(version, firstWithStores)) {
    const runtimes = await cluster.list(machines, runtimeKind);
    const own = roles.map((role) => machineConfig(role, [keeping, marker]));
    const lacking = roles.filter((role) => !hasRuntimeConfig(role, pools, runtimes));
    return { policy: storePolicy, configs: [...own, ...lacking.map(runtimeConfig)] };
  }
  return {
    policy: storePolicy,
    configs: roles.map((role) => {
      const text = readStorage(role, pools, configs);
      return machineConfig(role, [keeping, marker, ...(text === undefined ? [] : [file(storageFile, text)])]);
    }),
  };
}

async function hasPolicies(cluster: Cluster): Promise<boolean> {
  if (!(await cluster.findKind(disruptionPolicy.apiVersion, disruptionPolicy.kind))) return false;
  return (await cluster.read(disruptionPolicy)) !== undefined;
}

/**
 * Returns the present storage.conf of the pools of a role with the store added; undefined if the configuration of
 * another user already has the store.
 */
function readStorage(
  role: string,
  pools: readonly StoredObject[],
  configs: readonly StoredObject[],
): string | undefined {
  const name = storeConfigName(role);
  const own = pools.filter((pool) => isSelected({ [roleLabel]: role }, selectorOf(pool)));
  const later = configs.filter(
    ({ metadata }) => metadata.name > name && own.some((pool) => isSelected(metadata.labels, selectorOf(pool))),
  );
  const hiding = later.flatMap((config) => {
    const text = readConfigFile(config, storageFile);
    return text === undefined ? [] : [{ config, hasStore: storesIn(text)?.includes(defaultStorePath) === true }];
  });
  const [other] = hiding.filter(({ hasStore }) => !hasStore);
  if (other) {
    throw new PluginError(
      'conflict',
      `MachineConfig ${other.config.metadata.name} has a ${storageFile} of its own, which would hide ours`,
      {
        hint:
          `It may come from a ContainerRuntimeConfig (overlaySize, additionalImageStores): add the store ${defaultStorePath} there. ` +
          `Without an additional store ${storageFile} stays unchanged.`,
      },
    );
  }
  if (hiding.length > 0) return undefined;
  const texts = own.map((pool) => {
    const text = readRendered(pool, configs);
    return addStore(text, storesIn(text) ?? [], defaultStorePath);
  });
  const [first] = texts;
  if (first === undefined) throw new PluginError('internal', `no pool has the role ${role}`);
  const odd = texts.findIndex((text) => text !== first);
  if (odd < 0) return first;
  throw new PluginError(
    'conflict',
    `The pools ${own[0]?.metadata.name ?? role} and ${own[odd]?.metadata.name ?? ''} have different files ${storageFile}`,
    { hint: `One MachineConfig serves both pools. Without an additional store ${storageFile} stays unchanged.` },
  );
}

function readRendered(pool: StoredObject, configs: readonly StoredObject[]): string {
  const rendered = textOf(fieldsAt(pool, 'status', 'configuration')['name']);
  const config = configs.find(({ metadata }) => metadata.name === rendered);
  const text = config && readConfigFile(config, storageFile);
  if (text !== undefined) return text;
  throw new PluginError(
    'unsupported',
    `The pool ${pool.metadata.name} has no ${storageFile} in its rendered MachineConfig`,
    {
      hint: 'Check the machine config operator: oc get machineconfigpool.',
    },
  );
}

/**
 * Returns whether another user’s ContainerRuntimeConfig adds the store to the pools of a role. Throws `conflict` for
 * one without the store, because a pool obeys only one.
 */
function hasRuntimeConfig(role: string, pools: readonly StoredObject[], runtimes: readonly StoredObject[]): boolean {
  const own = pools.filter((pool) => isSelected({ [roleLabel]: role }, selectorOf(pool)));
  const theirs = runtimes.find(
    (runtime) =>
      !isOwnRuntime(runtime) &&
      own.some(({ metadata }) => isSelected(metadata.labels, fieldsAt(runtime, 'spec', 'machineConfigPoolSelector'))),
  );
  if (!theirs) return false;
  const stores = listOf(fieldsAt(theirs, 'spec', 'containerRuntimeConfig')['additionalImageStores']);
  if (stores.some(({ path }) => path === defaultStorePath)) return true;
  throw new PluginError(
    'conflict',
    `ContainerRuntimeConfig ${theirs.metadata.name} configures the pools of the role ${role}, and a pool obeys only one`,
    {
      hint: `Add the store to it: spec.containerRuntimeConfig.additionalImageStores, path ${defaultStorePath}. Then run this again.`,
    },
  );
}

function isOwnRuntime({ kind, metadata }: KubernetesObject): boolean {
  return kind === runtimeKind && metadata.name.startsWith('oc-upgrade-bundle-store-');
}

function file(path: string, content: string): object {
  const source = `data:text/plain;charset=utf-8;base64,${Buffer.from(content).toString('base64')}`;
  return { path, mode: 0o644, overwrite: true, contents: { source } };
}

function machineConfig(role: string, files: readonly object[]): KubernetesObject {
  return {
    apiVersion: machines,
    kind: 'MachineConfig',
    metadata: { name: storeConfigName(role), labels: { [roleLabel]: role } },
    spec: { config: { ignition: { version: '3.2.0' }, storage: { files } } },
  };
}

function runtimeConfig(role: string): KubernetesObject {
  return {
    apiVersion: machines,
    kind: runtimeKind,
    metadata: { name: `oc-upgrade-bundle-store-${role}` },
    spec: {
      machineConfigPoolSelector: { matchLabels: { [`pools.operator.machineconfiguration.openshift.io/${role}`]: '' } },
      containerRuntimeConfig: { additionalImageStores: [{ path: defaultStorePath }] },
    },
  };
}

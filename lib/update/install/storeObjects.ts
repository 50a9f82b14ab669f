import { gunzipSync } from 'node:zlib';
import type { KubernetesObject } from '../../config/manifest.ts';
import { PluginError } from '../../errors.ts';
import { addStore, storeMarker, storesIn } from '../../node/runtime/storeConfig.ts';
import { isOlder } from '../../release/version.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import { fieldsOf, listOf, textOf } from '../../kubernetes/fields.ts';
import { defaultStorePath, storageFile } from '../../machine/paths.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const roleLabel = 'machineconfiguration.openshift.io/role';
const roles = ['master', 'worker'] as const;

/** The object that says what a change of which file asks of a node. */
export const disruptionPolicy = {
  apiVersion: 'operator.openshift.io/v1',
  kind: 'MachineConfiguration',
  metadata: { name: 'cluster' },
} as const;

/** The first OpenShift that obeys node disruption policies without being told to, and the first whose container runtime configuration knows additional stores. */
const [firstWithPolicies, firstWithStores] = ['4.17.0-0', '4.23.0-0'];

/** The file that makes the machine config operator make the folder of the store, also on nodes that join later. */
export const markerPath = `${defaultStorePath}/${storeMarker.name}`;

/** What makes nodes know an additional store, without a reboot: first the policy, then the rest. */
export interface StoreObjects {
  readonly policy: KubernetesObject;
  readonly configs: readonly KubernetesObject[];
}

/** The policy: nothing happens for the marker, and the container runtime is restarted, with nothing drained, for storage.conf. */
export const storePolicy: KubernetesObject = {
  ...disruptionPolicy,
  spec: {
    nodeDisruptionPolicy: {
      files: [
        { path: markerPath, actions: [{ type: 'None' }] },
        { path: storageFile, actions: [{ type: 'Restart', restart: { serviceName: 'crio.service' } }] },
      ],
    },
  },
};

/** The names of the MachineConfigs, by the roles of their pools. */
export function storeConfigName(role: string): string {
  return `98-${role}-oc-upgrade-bundle-store`;
}

/** What an installation of the store may have made, for whoever removes it. */
export const storeReferences: readonly KubernetesObject[] = roles.flatMap((role) => [
  { apiVersion: machines, kind: 'ContainerRuntimeConfig', metadata: { name: `oc-upgrade-bundle-store-${role}` } },
  { apiVersion: machines, kind: 'MachineConfig', metadata: { name: storeConfigName(role) } },
]);

/**
 * Makes the objects for the additional store, each pool’s own storage.conf with the store added. Throws `unsupported` before OpenShift 4.17, where a change of that
 * file reboots every node, and for a storage.conf that cannot be added to; `conflict` where a later MachineConfig would hide ours.
 */
export async function planStore(cluster: Cluster): Promise<StoreObjects> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  if (version === '' || isOlder(version, firstWithPolicies) || !(await hasPolicies(cluster))) {
    throw new PluginError(
      'unsupported',
      `${cluster.name} (${version || 'no OpenShift'}) cannot get an additional store without rebooting every node`,
      {
        hint: 'Node disruption policies came with OpenShift 4.17. Without --store=additional the images go into the nodes’ own stores.',
      },
    );
  }
  const configs = await cluster.list(machines, 'MachineConfig');
  const own = roles.map((role) => machineConfig(role, [file(markerPath, storeMarker.content)]));
  if (!isOlder(version, firstWithStores)) {
    return { policy: storePolicy, configs: [...own, ...roles.map((role) => runtimeConfig(role))] };
  }
  const pools = await cluster.list(machines, 'MachineConfigPool');
  return {
    policy: storePolicy,
    configs: roles.map((role) => {
      const text = readStorage(role, pools, configs);
      return machineConfig(role, [file(markerPath, storeMarker.content), file(storageFile, text)]);
    }),
  };
}

async function hasPolicies(cluster: Cluster): Promise<boolean> {
  if (!(await cluster.findKind(disruptionPolicy.apiVersion, disruptionPolicy.kind))) return false;
  return (await cluster.read(disruptionPolicy)) !== undefined;
}

/** The storage.conf of a pool as it is rendered now, with the store in it. */
function readStorage(role: string, pools: readonly StoredObject[], configs: readonly StoredObject[]): string {
  const name = storeConfigName(role);
  const later = configs.find(
    (config) =>
      config.metadata.labels?.[roleLabel] === role && config.metadata.name > name && findFile(config) !== undefined,
  );
  if (later) {
    throw new PluginError(
      'conflict',
      `MachineConfig ${later.metadata.name} has a ${storageFile} of its own, which would hide ours`,
      {
        hint: `It is that of a ContainerRuntimeConfig with overlaySize, perhaps. Without --store=additional ${storageFile} stays as it is.`,
      },
    );
  }
  const pool = pools.find(({ metadata }) => metadata.name === role);
  const rendered = textOf(fieldsOf(fieldsOf(pool?.['status'])['configuration'])['name']);
  const config = configs.find(({ metadata }) => metadata.name === rendered);
  const text = config && findFile(config);
  if (text === undefined) {
    throw new PluginError('unsupported', `The pool ${role} has no ${storageFile} in its rendered MachineConfig`, {
      hint: 'Is the machine config operator well? See oc get machineconfigpool.',
    });
  }
  return addStore(text, storesIn(text) ?? [], defaultStorePath);
}

function findFile(config: KubernetesObject): string | undefined {
  const { storage } = fieldsOf(fieldsOf(config['spec'])['config']);
  const found = listOf(fieldsOf(storage)['files']).find(({ path }) => path === storageFile);
  const { source, compression } = fieldsOf(found?.['contents']);
  const [, encoding, data = ''] = /^data:[^,]*?(;base64)?,(.*)$/s.exec(textOf(source) ?? '') ?? [];
  if (found === undefined || textOf(source) === undefined) return undefined;
  const bytes = encoding === undefined ? Buffer.from(decodeURIComponent(data)) : Buffer.from(data, 'base64');
  return (compression === 'gzip' ? gunzipSync(bytes) : bytes).toString();
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
    kind: 'ContainerRuntimeConfig',
    metadata: { name: `oc-upgrade-bundle-store-${role}` },
    spec: {
      machineConfigPoolSelector: { matchLabels: { [`pools.operator.machineconfiguration.openshift.io/${role}`]: '' } },
      containerRuntimeConfig: { additionalImageStores: [{ path: defaultStorePath }] },
    },
  };
}

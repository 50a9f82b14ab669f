import type { Cluster } from '../../kubernetes/client.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import { type Fields, fieldsAt, fieldsOf, textOf } from '../../kubernetes/fields.ts';
import { parseJson } from '../../oci/syntax.ts';

/** On what we paused: for which UpgradeBundle, and how it was before, as JSON of a merge patch. */
const pausedFor = 'upgrade-bundle.openshift.io/paused-for';
const before = 'upgrade-bundle.openshift.io/before';

/** What can be paused: what replaces, removes or adds nodes by itself, and what updates them. */
type Scope = 'nodes' | 'pools';

/** Something that would come in between, and how it is kept from doing so. */
interface Pausable {
  readonly scope: Scope;
  readonly apiVersion: string;
  readonly kind: string;
  /** The patch that pauses an object, and the one that takes that back; undefined for one that does nothing now. */
  readonly pause: (
    object: StoredObject,
    nodes: number,
  ) => { readonly patch: Fields; readonly undo: Fields } | undefined;
}

const healthPause = 'cluster.x-k8s.io/paused';

const pausables: readonly Pausable[] = [
  {
    ...{ scope: 'nodes', apiVersion: 'machine.openshift.io/v1beta1', kind: 'MachineHealthCheck' },
    pause: ({ metadata: { annotations = {} } }) => {
      if (healthPause in annotations) return undefined;
      const patch = { metadata: { annotations: { [healthPause]: 'true' } } };
      return { patch, undo: { metadata: { annotations: { [healthPause]: null } } } };
    },
  },
  {
    ...{ scope: 'nodes', apiVersion: 'autoscaling.openshift.io/v1', kind: 'ClusterAutoscaler' },
    // It has no pause: no node more than there are, and none less.
    pause: ({ spec }, nodes) => {
      const { scaleDown, resourceLimits } = fieldsOf(spec);
      const { enabled } = fieldsOf(scaleDown);
      const { maxNodesTotal } = fieldsOf(resourceLimits);
      const limits = (most: unknown, down: unknown) => ({
        resourceLimits: resourceLimits === undefined && most === null ? null : { maxNodesTotal: most },
        scaleDown: scaleDown === undefined && down === null ? null : { enabled: down },
      });
      return {
        patch: { spec: limits(nodes, false) },
        undo: { spec: limits(maxNodesTotal ?? null, enabled ?? null) },
      };
    },
  },
  {
    ...{ scope: 'pools', apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'MachineConfigPool' },
    pause: ({ spec }) => {
      const { paused } = fieldsOf(spec);
      return paused === true
        ? undefined
        : { patch: { spec: { paused: true } }, undo: { spec: { paused: paused ?? null } } };
    },
  },
];

/**
 * Pauses whatever replaces, removes or adds nodes by itself, and notes on each object how it was. What is paused already stays as it
 * is: what we did not pause is not ours to restore. `nodes` is how many there are.
 */
export async function pauseNodeChanges(cluster: Cluster, bundle: string, nodes: number): Promise<void> {
  await pauseAll(cluster, 'nodes', bundle, nodes);
}

/** Pauses the pools of nodes in the same way: none of them is updated before images are pinned there. */
export async function pausePools(cluster: Cluster, bundle: string): Promise<void> {
  await pauseAll(cluster, 'pools', bundle, 0);
}

async function pauseAll(cluster: Cluster, scope: Scope, bundle: string, nodes: number): Promise<void> {
  for (const { kind, object, pause } of await listPausables(cluster, [scope])) {
    if (isPaused(object)) continue;
    const change = pause(object, nodes);
    if (!change) continue;
    const annotations = { [pausedFor]: bundle, [before]: JSON.stringify(change.undo) };
    await patchWith(cluster, kind, object, change.patch, annotations);
  }
}

/** Whether something is paused by us. */
export function isPaused(object: StoredObject): boolean {
  return noteOf(object, pausedFor) !== undefined;
}

/**
 * Restores what was paused, but for what was paused for one UpgradeBundle that goes on, and gives the objects. Whatever has been changed since is
 * restored too.
 */
export async function restoreNodeChanges(cluster: Cluster, except?: string): Promise<readonly StoredObject[]> {
  return await restoreAll(cluster, ['nodes', 'pools'], except);
}

/** Restores the pools alone. */
export async function restorePools(cluster: Cluster): Promise<void> {
  await restoreAll(cluster, ['pools'], undefined);
}

async function restoreAll(
  cluster: Cluster,
  scopes: readonly Scope[],
  except: string | undefined,
): Promise<StoredObject[]> {
  const restored: StoredObject[] = [];
  for (const { kind, object } of await listPausables(cluster, scopes)) {
    const owner = noteOf(object, pausedFor);
    if (owner === undefined || owner === except) continue;
    const undo = fieldsOf(parseJson(noteOf(object, before) ?? '{}'));
    await patchWith(cluster, kind, object, undo, { [pausedFor]: null, [before]: null });
    restored.push(object);
  }
  return restored;
}

async function listPausables(cluster: Cluster, scopes: readonly Scope[]) {
  const meant = pausables.filter(({ scope }) => scopes.includes(scope));
  const lists = await Promise.all(
    meant.map(async ({ apiVersion, kind, pause }) => {
      if (!(await cluster.findKind(apiVersion, kind))) return [];
      const objects = await cluster.list(apiVersion, kind);
      return objects.map((object) => ({ kind: { apiVersion, kind }, object, pause }));
    }),
  );
  return lists.flat();
}

/** The change and its note are one write: no crash comes between them. */
async function patchWith(
  cluster: Cluster,
  kind: { apiVersion: string; kind: string },
  { metadata }: StoredObject,
  patch: Fields,
  notes: Readonly<Record<string, string | null>>,
): Promise<void> {
  const { name, namespace, resourceVersion } = metadata;
  const own = fieldsAt(patch, 'metadata', 'annotations');
  await cluster.patch(
    { ...kind, metadata: { name, namespace } },
    { ...patch, metadata: { resourceVersion, annotations: { ...own, ...notes } } },
  );
}

function noteOf({ metadata }: StoredObject, key: string): string | undefined {
  return textOf(metadata.annotations?.[key]);
}

import type { Cluster } from '#cluster/client';
import { type StoredObject, listServed } from '#cluster/objects';
import type { MergePatch, WrittenAs } from '#config/manifest';
import { parseJson } from '#content/oci';
import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, textOf, type Fields } from '#fields';

/**
 * The annotations of a paused object: the UpgradeBundle for which it is paused, and its state before, as JSON of a
 * merge patch.
 */
const pausedFor = 'upgrade-bundle.openshift.io/paused-for';
const previousStateAnnotation = 'upgrade-bundle.openshift.io/before';

/**
 * The groups of objects that can be paused: `nodes` for objects that replace, remove or add nodes, and `pools` for the
 * pools that update them.
 */
type Scope = 'nodes' | 'pools';

/** A kind of object that can be paused. */
interface Pausable {
  readonly scope: Scope;
  readonly apiVersion: string;
  readonly kind: string;
  /**
   * Returns the patch that pauses an object, and the patch that restores it; undefined if the object needs no pause.
   */
  readonly pause: (
    object: StoredObject,
    nodes: number,
  ) => { readonly patch: Change; readonly undo: Change } | undefined;
}

/**
 * What is changed of the kinds (openshift/api, machine/v1beta1 and machineconfiguration/v1;
 * cluster-autoscaler-operator).
 */
type Change = MergePatch<
  | WrittenAs<'machine.openshift.io/v1beta1', 'MachineHealthCheck', unknown>
  | WrittenAs<'autoscaling.openshift.io/v1', 'ClusterAutoscaler', { readonly spec: AutoscalerLimits }>
  | WrittenAs<
      'machineconfiguration.openshift.io/v1',
      'MachineConfigPool',
      { readonly spec: { readonly paused: unknown } }
    >
>;

/** The values are unknown, because they may be those of the stored object. */
interface AutoscalerLimits {
  readonly resourceLimits: { readonly maxNodesTotal: unknown };
  readonly scaleDown: { readonly enabled: unknown };
}

const healthPause = 'cluster.x-k8s.io/paused';

const pausables: readonly Pausable[] = [
  {
    scope: 'nodes',
    apiVersion: 'machine.openshift.io/v1beta1',
    kind: 'MachineHealthCheck',
    pause: ({ metadata: { annotations = {} } }) => {
      if (healthPause in annotations) return undefined;
      const patch = { metadata: { annotations: { [healthPause]: 'true' } } };
      return { patch, undo: { metadata: { annotations: { [healthPause]: null } } } };
    },
  },
  {
    scope: 'nodes',
    apiVersion: 'autoscaling.openshift.io/v1',
    kind: 'ClusterAutoscaler',
    // A ClusterAutoscaler has no pause. These limits keep the number of nodes.
    pause: ({ spec }, nodes) => {
      const { scaleDown, resourceLimits } = fieldsOf(spec);
      const { enabled } = fieldsOf(scaleDown);
      const { maxNodesTotal } = fieldsOf(resourceLimits);
      const limits = (most: unknown, down: unknown): MergePatch<AutoscalerLimits> => ({
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
    scope: 'pools',
    apiVersion: 'machineconfiguration.openshift.io/v1',
    kind: 'MachineConfigPool',
    pause: ({ spec }) => {
      const { paused } = fieldsOf(spec);
      return paused === true
        ? undefined
        : { patch: { spec: { paused: true } }, undo: { spec: { paused: paused ?? null } } };
    },
  },
];

/**
 * Pauses objects that replace, remove or add nodes, and records on each object its state before. Skips objects that are
 * already paused, because they are not ours to restore. `nodes` is the present number of nodes.
 */
export async function pauseNodeChanges(cluster: Cluster, bundle: string, nodes: number): Promise<void> {
  await pauseAll(cluster, 'nodes', bundle, nodes);
}

/** Pauses pools of nodes in the same way, so that no node of theirs is updated yet. */
export async function pausePools(
  cluster: Cluster,
  bundle: string,
  isSelected: (pool: StoredObject) => boolean,
): Promise<void> {
  await pauseAll(cluster, 'pools', bundle, 0, isSelected);
}

async function pauseAll(
  cluster: Cluster,
  scope: Scope,
  bundle: string,
  nodes: number,
  isSelected: (object: StoredObject) => boolean = () => true,
): Promise<void> {
  for (const { kind, object, pause } of await listPausables(cluster, scope)) {
    if (isPaused(object) || !isSelected(object)) continue;
    const change = pause(object, nodes);
    if (!change) continue;
    const annotations = { [pausedFor]: bundle, [previousStateAnnotation]: JSON.stringify(change.undo) };
    await patchWith(cluster, kind, object, change.patch, annotations);
  }
}

/** Returns whether we paused an object. */
export function isPaused(object: StoredObject): boolean {
  return noteOf(object, pausedFor) !== undefined;
}

/**
 * Restores all paused objects except pools and the objects of one UpgradeBundle that continues, and returns them. Also
 * overwrites changes made since the pause.
 */
export async function restoreNodeChanges(cluster: Cluster, except?: string): Promise<readonly StoredObject[]> {
  return await restoreAll(cluster, 'nodes', (_, owner) => owner !== except);
}

/** Restores pools in the same way. `isSelected` gets the name of the UpgradeBundle that has paused a pool. */
export async function restorePools(
  cluster: Cluster,
  isSelected: (pool: StoredObject, owner: string) => boolean = () => true,
): Promise<readonly StoredObject[]> {
  return await restoreAll(cluster, 'pools', isSelected);
}

async function restoreAll(
  cluster: Cluster,
  scope: Scope,
  isSelected: (object: StoredObject, owner: string) => boolean,
): Promise<StoredObject[]> {
  const restored: StoredObject[] = [];
  for (const { kind, object } of await listPausables(cluster, scope)) {
    const owner = noteOf(object, pausedFor);
    if (owner === undefined || !isSelected(object, owner)) continue;
    const undo = readUndo(object, kind.kind);
    await patchWith(cluster, kind, object, undo, { [pausedFor]: null, [previousStateAnnotation]: null });
    restored.push(object);
  }
  return restored;
}

/** Reads the state of an object before its pause. Any account that may edit the object may have changed it. */
function readUndo(object: StoredObject, kind: string): Fields {
  try {
    return fieldsOf(parseJson(noteOf(object, previousStateAnnotation) ?? '{}'));
  } catch (cause) {
    const { name } = object.metadata;
    throw new PluginError(
      'invalid-object',
      `the annotation ${previousStateAnnotation} of the ${kind} ${name} is not JSON`,
      {
        hint: `Resume the ${kind} by hand, and remove the annotations ${previousStateAnnotation} and ${pausedFor}.`,
        cause,
      },
    );
  }
}

async function listPausables(cluster: Cluster, chosenScope: Scope) {
  const inScope = pausables.filter(({ scope }) => scope === chosenScope);
  const lists = await Promise.all(
    inScope.map(async ({ apiVersion, kind, pause }) => {
      const objects = await listServed(cluster, apiVersion, kind);
      return objects.map((object) => ({ kind: { apiVersion, kind }, object, pause }));
    }),
  );
  return lists.flat();
}

/** Writes the change and its annotations in one request, so that a crash cannot separate them. */
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

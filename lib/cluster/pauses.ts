import type { Cluster, StoredObject } from './client.ts';
import { fieldsOf, textOf, type Fields } from './fields.ts';

/** On what we paused: for which UpgradeBundle, and how it was before, as JSON of a merge patch. */
const pausedFor = 'upgrade-bundle.openshift.io/paused-for';
const before = 'upgrade-bundle.openshift.io/before';

/** Something that replaces, removes or adds nodes, and how it is kept from doing so. */
interface Pausable {
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
    ...{ apiVersion: 'machine.openshift.io/v1beta1', kind: 'MachineHealthCheck' },
    pause: ({ metadata: { annotations = {} } }) => {
      if (healthPause in annotations) return undefined;
      const patch = { metadata: { annotations: { [healthPause]: 'true' } } };
      return { patch, undo: { metadata: { annotations: { [healthPause]: null } } } };
    },
  },
  {
    ...{ apiVersion: 'autoscaling.openshift.io/v1', kind: 'ClusterAutoscaler' },
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
];

/**
 * Pauses whatever replaces, removes or adds nodes by itself, and notes on each object how it was. What is paused already stays as it
 * is: what we did not pause is not ours to restore. `nodes` is how many there are.
 */
export async function pauseOthers(cluster: Cluster, bundle: string, nodes: number): Promise<void> {
  for (const { kind, object, pause } of await listPausables(cluster)) {
    if (noteOf(object, pausedFor) !== undefined) continue;
    const change = pause(object, nodes);
    if (!change) continue;
    const annotations = { [pausedFor]: bundle, [before]: JSON.stringify(change.undo) };
    await patchWith(cluster, kind, object, change.patch, annotations);
  }
}

/** Restores what was paused, but for what was paused for one UpgradeBundle that goes on. Whatever has been changed since is restored too. */
export async function restoreOthers(cluster: Cluster, except?: string): Promise<void> {
  for (const { kind, object } of await listPausables(cluster)) {
    const owner = noteOf(object, pausedFor);
    if (owner === undefined || owner === except) continue;
    const undo = fieldsOf(JSON.parse(noteOf(object, before) ?? '{}'));
    await patchWith(cluster, kind, object, undo, { [pausedFor]: null, [before]: null });
  }
}

async function listPausables(cluster: Cluster) {
  const lists = await Promise.all(
    pausables.map(async ({ apiVersion, kind, pause }) => {
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
  const own = fieldsOf(fieldsOf(patch['metadata'])['annotations']);
  await cluster.patch(
    { ...kind, metadata: { name, namespace } },
    { ...patch, metadata: { resourceVersion, annotations: { ...own, ...notes } } },
  );
}

function noteOf({ metadata }: StoredObject, key: string): string | undefined {
  return textOf(metadata.annotations?.[key]);
}

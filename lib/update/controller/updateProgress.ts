import { fieldsOf } from '../../fields.ts';
import { isInstalled } from '../releaseState.ts';
import { conditionsOf, type StoredObject } from '../../cluster/storedObject.ts';
import { isPoolNode, readNode } from '../../readiness/preflight/node.ts';
import { describeDegraded } from '../../readiness/preflight/operatorCheck.ts';

/** The progress of the cluster itself in an update. */
export interface UpdateProgress {
  readonly done: boolean;
  readonly reason: string;
  readonly message: string;
}

/** Reads the progress of an update: first of the version operator, then of the pools, then of the nodes. */
export function readProgress(
  clusterVersion: StoredObject,
  release: string,
  pools: readonly StoredObject[],
  nodes: readonly StoredObject[],
): UpdateProgress {
  const conditions = conditionsOf(clusterVersion);
  const troubles = [
    ['Failing', 'True', 'Failing'],
    ['ReleaseAccepted', 'False', 'NotAccepted'],
  ] as const;
  const trouble = troubles.find(([type, status]) => conditions.get(type)?.status === status);
  const words = [
    ...(trouble ? [conditions.get(trouble[0])?.message ?? ''] : []),
    ...(isInstalled(clusterVersion, release) ? [] : [conditions.get('Progressing')?.message ?? '']),
    ...pools.flatMap(describePool),
    ...nodes.map(readNode).flatMap((node) => {
      return node.ready || !isPoolNode(node) ? [] : [`node ${node.name} is not ready`];
    }),
  ].filter((text) => text !== '');
  if (!isInstalled(clusterVersion, release)) {
    return { done: false, reason: trouble?.[2] ?? 'Updating', message: words.join('; ') || 'the update has begun' };
  }
  if (words.length > 0) return { done: false, reason: 'WaitingForNodes', message: words.join('; ') };
  return { done: true, reason: 'Updated', message: 'the cluster, its pools and nodes are updated' };
}

function describePool(pool: StoredObject): string[] {
  const { name } = pool.metadata;
  const [all, updated] = ['machineCount', 'updatedMachineCount'].map((field) =>
    countOf(fieldsOf(pool['status'])[field]),
  );
  const degraded = describeDegraded(pool);
  if (degraded !== undefined) return [`pool ${name} is degraded: ${degraded || 'see its conditions'}`];
  if (conditionsOf(pool).get('Updated')?.status === 'True') return [];
  if (fieldsOf(pool['spec'])['paused'] === true) return [`pool ${name} is paused`];
  return [`pool ${name} has updated ${updated ?? ''} of ${all ?? ''} nodes`];
}

function countOf(value: unknown): string {
  return typeof value === 'number' ? String(value) : '?';
}

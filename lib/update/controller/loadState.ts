import { isIgnored } from '#cluster/finding';
import type { KubernetesObject } from '#config/manifest';
import { mayHaveAgent, nameWithoutAgent, readNode, type ClusterNode, isControlPlane } from '#readiness/nodes';
import { listNames, type BundleCondition } from '../record/conditions.ts';
import type { BaseState } from '../record/nodeReport.ts';
import type { NodeProgress, UpgradeBundle } from '../record/upgradeBundle.ts';
import type { KnownProgress } from './nodeReports.ts';

/** The progress of all nodes of a cluster in loading images. */
export interface LoadState {
  /** An entry for each node that may have an agent. A node without a report waits. */
  readonly nodes: readonly NodeProgress[];
  /** The entries of nodes that have reported. */
  readonly known: readonly NodeProgress[];
  /** Whether every node has all images. */
  readonly done: boolean;
  /** The nodes that cannot complete a delta bundle; none if a node offers the base blobs to the others. */
  readonly base: BaseGaps;
  /** The control plane node that may load now. */
  readonly turn: string | undefined;
  readonly condition: BundleCondition;
}

/** The names of nodes that lack base blobs of a delta bundle, and of nodes that have not reported it yet. */
export interface BaseGaps {
  readonly missing: readonly string[];
  readonly unknown: readonly string[];
  /** Whether every node has the base blobs in its image store, so that they take no more space. */
  readonly isStored: boolean;
}

/**
 * Combines the reports of nodes with the nodes of the cluster. Ignores reports of nodes that the cluster no longer has.
 * Does not wait for a node that is not ready, if an administrator has overruled that by its name.
 */
export function readLoadState(
  { status, spec }: Pick<UpgradeBundle, 'status' | 'spec'>,
  objects: readonly KubernetesObject[],
  reports: ReadonlyMap<string, KnownProgress>,
): LoadState {
  const { ignore = [] } = spec;
  const isOverruled = ({ ready, name }: ClusterNode): boolean =>
    !ready && isIgnored({ check: 'nodes', subject: { kind: 'Node', name } }, ignore);
  const all = objects.map(readNode);
  const nodes = all.filter((node) => mayHaveAgent(node) && !isOverruled(node));
  const waiting = { phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
  const entries = nodes.map(({ name }) => reports.get(name)?.progress ?? { name, ...waiting });
  // A node that has everything may be silent, for example while it boots.
  const silent = entries
    .filter((entry) => !hasAll(entry) && !reports.get(entry.name)?.isRecent)
    .map(({ name }) => name);
  const control = entries.filter((_, index) => nodes[index] && isControlPlane(nodes[index]));
  const done = entries.length > 0 && entries.every(hasAll);
  return {
    nodes: entries,
    known: entries.filter(({ name }) => reports.has(name)),
    done,
    base: findBaseGaps(entries, reports),
    turn: nextTurn(control, new Set(silent), status?.turn),
    condition: { type: 'Loaded', ...describeLoad(entries, silent, done, nameWithoutAgent(all)) },
  };
}

function findBaseGaps(entries: readonly NodeProgress[], reports: ReadonlyMap<string, KnownProgress>): BaseGaps {
  const stateOf = ({ name }: NodeProgress): BaseState | undefined => reports.get(name)?.base;
  const isOffered = entries.some((entry) => stateOf(entry) === 'offered' && reports.get(entry.name)?.isRecent);
  const needy = entries.filter((entry) => !hasAll(entry) && stateOf(entry) !== 'stored');
  const namesOf = (state: BaseState | undefined): string[] =>
    needy.filter((entry) => !isOffered && stateOf(entry) === state).map(({ name }) => name);
  return { missing: namesOf('missing'), unknown: namesOf(undefined), isStored: needy.length === 0 };
}

function hasAll({ phase }: NodeProgress): boolean {
  return phase === 'Loaded' || phase === 'Pinned';
}

/**
 * Returns the control plane node that may load next. The present one keeps its turn until it has all images, fails or
 * becomes silent. Failed nodes come after the others, and silent nodes last.
 */
function nextTurn(
  control: readonly NodeProgress[],
  silent: ReadonlySet<string>,
  present: string | undefined,
): string | undefined {
  const unloadedNodes = control.filter((entry) => !hasAll(entry));
  const holder = unloadedNodes.find(({ name }) => name === present);
  if (holder && holder.phase !== 'Failed' && !silent.has(holder.name)) return holder.name;
  const rank = ({ name, phase }: NodeProgress): string => {
    const order = silent.has(name) ? 2 : phase === 'Failed' ? 1 : 0;
    // Failed nodes take turns.
    return `${order}${present !== undefined && name <= present ? '1' : '0'}${name}`;
  };
  return unloadedNodes.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1))[0]?.name;
}

function describeLoad(
  entries: readonly NodeProgress[],
  silent: readonly string[],
  done: boolean,
  withoutAgent: string | undefined,
) {
  const but = withoutAgent === undefined ? [] : [`no agent runs on ${withoutAgent}`];
  if (done)
    return { status: 'True', reason: 'Loaded', message: ['all nodes have all images', ...but].join('; ') } as const;
  const failed = entries.filter(({ phase }) => phase === 'Failed');
  const unloadedNodes = entries.filter((entry) => !hasAll(entry)).map(({ name }) => name);
  const words = [
    ...failed.slice(0, 10).map(({ name, message = 'failed' }) => `${name}: ${message}`),
    ...(silent.length > 0 ? [`no report from ${listNames(silent)}`] : []),
    `${listNames(unloadedNodes)} ${unloadedNodes.length === 1 ? 'does' : 'do'} not have all images yet`,
    ...but,
  ];
  const reason = failed.length > 0 ? 'NodesFailed' : silent.length > 0 ? 'NodesMissing' : 'Loading';
  return { status: 'False', reason, message: words.join('; ') } as const;
}

import type { KubernetesObject } from '../../config/manifest.ts';
import { listNames, type BundleCondition } from '../conditions.ts';
import { readNode } from '../../preflight/node.ts';
import { isControlPlane } from '../../preflight/nodeCheck.ts';
import type { KnownProgress } from './nodeReports.ts';
import type { NodeProgress, UpgradeBundle } from '../upgradeBundle.ts';

/** How far the nodes of a cluster are with loading. */
export interface LoadState {
  /** An entry for every node that the cluster has; those that said nothing yet wait. */
  readonly nodes: readonly NodeProgress[];
  /** Those of them that something is known of. */
  readonly known: readonly NodeProgress[];
  /** Every node has all images. */
  readonly done: boolean;
  /** Whose turn it is among the control plane. */
  readonly turn: string | undefined;
  readonly condition: BundleCondition;
}

/** Puts together what nodes report, and what they do not: nodes that the cluster no longer has do not count. */
export function readLoadState(
  { status }: Pick<UpgradeBundle, 'status'>,
  objects: readonly KubernetesObject[],
  reports: ReadonlyMap<string, KnownProgress>,
): LoadState {
  const nodes = objects.map(readNode).filter(({ labels }) => labels['kubernetes.io/os'] !== 'windows');
  const waiting = { phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
  const entries = nodes.map(({ name }) => reports.get(name)?.progress ?? { name, ...waiting });
  // Who has everything may be silent: it boots, for instance.
  const silent = entries.filter((entry) => !hasAll(entry) && !reports.get(entry.name)?.heard).map(({ name }) => name);
  const control = entries.filter((_, index) => nodes[index] && isControlPlane(nodes[index]));
  const done = entries.length > 0 && entries.every(hasAll);
  return {
    nodes: entries,
    known: entries.filter(({ name }) => reports.has(name)),
    done,
    turn: nextTurn(control, new Set(silent), status?.turn),
    condition: { type: 'Loaded', ...describe(entries, silent, done) },
  };
}

function hasAll({ phase }: NodeProgress): boolean {
  return phase === 'Loaded' || phase === 'Pinned';
}

/**
 * Whose turn it is: whoever has it keeps it until everything is loaded or something failed. Those that failed come again after the
 * others, and those that say nothing last.
 */
function nextTurn(
  control: readonly NodeProgress[],
  silent: ReadonlySet<string>,
  present: string | undefined,
): string | undefined {
  const left = control.filter((entry) => !hasAll(entry));
  const holder = left.find(({ name }) => name === present);
  if (holder && holder.phase !== 'Failed' && !silent.has(holder.name)) return holder.name;
  const rank = ({ name, phase }: NodeProgress): string => {
    const order = silent.has(name) ? 2 : phase === 'Failed' ? 1 : 0;
    // Among several that failed, the turn goes round.
    return `${order}${present !== undefined && name <= present ? '1' : '0'}${name}`;
  };
  return left.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1))[0]?.name;
}

function describe(entries: readonly NodeProgress[], silent: readonly string[], done: boolean) {
  if (done) return { status: 'True', reason: 'Loaded', message: 'all nodes have all images' } as const;
  const failed = entries.filter(({ phase }) => phase === 'Failed');
  const left = entries.filter((entry) => !hasAll(entry)).map(({ name }) => name);
  const words = [
    ...failed.slice(0, 10).map(({ name, message = 'failed' }) => `${name}: ${message}`),
    ...(silent.length > 0 ? [`nothing was heard of ${listNames(silent)}`] : []),
    `${listNames(left)} ${left.length === 1 ? 'does' : 'do'} not have all images yet`,
  ];
  const reason = failed.length > 0 ? 'NodesFailed' : silent.length > 0 ? 'NodesMissing' : 'Loading';
  return { status: 'False', reason, message: words.join('; ') } as const;
}

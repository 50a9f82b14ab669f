import { listOf } from '../../../lib/fields.ts';
import {
  hasEnded,
  phaseOf,
  summarizeNodes,
  type NodeProgress,
  type UpgradeBundle,
} from '../../../lib/update/upgradeBundle.ts';
import { formatDuration } from '../../cli/format.ts';

/** The status of an update, as it is shown. */
export interface StatusView {
  /** The name, the phase and the progress. */
  readonly title: string;
  readonly phase: string;
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** Type, status, reason and message of each condition. */
  readonly conditions: readonly (readonly string[])[];
  readonly nodes: readonly NodeProgress[];
}

/** Describes the status of an UpgradeBundle. `elapsed` is the time of the version operator in seconds. */
export function viewStatus(bundle: UpgradeBundle, elapsed: number | undefined): StatusView {
  const { version, release, hops, nodes = [], conditions } = bundle.status ?? {};
  const { digest, file } = bundle.spec.bundle;
  const isHeld = (bundle.spec.hold && !hasEnded(bundle)) || phaseOf(bundle) === 'Held';
  const facts: [string, string | undefined][] = [
    ['Version', version],
    ['Updates', hops?.map((hop) => `${hop.version} ${hop.phase}`).join(', ')],
    ['Release', release],
    ['Bundle', digest ?? 'no digest is allowed: oc adm-upgrade-bundle apply does that'],
    ['Place', file],
    ['Held', isHeld ? 'until oc adm-upgrade-bundle resume' : undefined],
  ];
  return {
    title: formatTitle(bundle, elapsed),
    phase: phaseOf(bundle),
    facts: facts.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])),
    conditions: listOf(conditions).map(({ type, status, reason, message }) =>
      [type, status, reason, message].map(String),
    ),
    nodes,
  };
}

/** Returns the name, the phase and the progress of an update in one line. */
export function formatTitle(bundle: UpgradeBundle, elapsed?: number): string {
  const facts = phaseOf(bundle) === 'Upgrading' ? describeUpdate(bundle, elapsed) : describeLoading(bundle);
  return `${bundle.metadata.name}: ${[phaseOf(bundle), ...facts].join(', ')}`;
}

/** The work of the version operator, with the time that is left if it continues at its pace. `elapsed`: seconds. */
function describeUpdate({ status }: UpgradeBundle, elapsed: number | undefined): string[] {
  const progress = status?.progress === undefined ? [] : [status.progress];
  if (elapsed === undefined) return progress;
  const percent = Number.parseInt(status?.progress ?? '', 10);
  const left =
    percent >= 5 && percent < 100 ? [`about ${formatDuration((elapsed * (100 - percent)) / percent)} left`] : [];
  return [...progress, `${formatDuration(elapsed)} elapsed`, ...left];
}

function describeLoading({ status }: UpgradeBundle): string[] {
  const { nodes = [] } = status ?? {};
  if (nodes.length === 0) return [];
  // The controller also counts nodes that have not reported yet.
  const { nodesReady, progress } = { ...summarizeNodes(nodes), ...status };
  const isCounted = nodes.some(({ imagesTotal }) => imagesTotal > 0);
  return [`${nodesReady.replace('/', ' of ')} nodes ready`, ...(isCounted ? [progress] : [])];
}

/** Returns the number of loaded images of a node in words. */
export function describeImages({ imagesLoaded, imagesTotal }: NodeProgress): string {
  return imagesTotal === 0 ? 'not counted yet' : `${imagesLoaded} of ${imagesTotal}`;
}

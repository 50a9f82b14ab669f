import { conditionsOf } from '#cluster/objects';
import { messageOf, nameSome } from '#errors';
import {
  findWindow,
  formatWindowTime,
  usualNeeds,
  type NodeMirror,
  hasEnded,
  isAbortRequested,
  isAtLeast,
  isWaitingForWindow,
  phaseOf,
  summarizeNodes,
  type NodePhase,
  type NodeProgress,
  type UpgradeBundle,
  withdrawAbort,
} from '#update/record';
import type { OptionRecord } from '../../cli/command.ts';
import { formatCount, formatDuration } from '../../cli/format.ts';
import type { Accent, Accents } from '../../cli/terminal.ts';

/** What `status` reads from a cluster. All its outputs are made from it. */
export interface ClusterStatus {
  /** Undefined before a bundle is detected or applied. */
  readonly bundle: UpgradeBundle | undefined;
  /** The time of the version operator in seconds; undefined if it has not begun. */
  readonly elapsed: number | undefined;
  /** The mirrors on control plane nodes, which serve nodes without an update too. */
  readonly mirrors: readonly NodeMirror[];
  /** The time by the clock of the API server, in milliseconds since 1970; by default that of this machine. */
  readonly now?: number;
}

/** A row of a table, and the accent that gives its color. */
export interface StatusRow {
  readonly cells: readonly string[];
  readonly accent: Accent;
}

/** The status of an update, as it is shown. */
interface StatusView {
  /** The name, the phase and the progress. */
  readonly title: string;
  /** The severity of the title. */
  readonly accent: Accent | undefined;
  /** What keeps the update from progress, and what to do. */
  readonly problem: readonly Fact[];
  readonly facts: readonly Fact[];
  /** Type, status, reason and message of each condition. */
  readonly conditions: readonly StatusRow[];
  /** The nodes, failed ones first. */
  readonly nodes: readonly NodeProgress[];
  /** Name, served versions, number of images given, and message of each mirror. */
  readonly mirrors: readonly StatusRow[];
}

type Fact = readonly [name: string, value: string];

/** The phases of nodes in the order in which they are shown. */
const nodeOrder: readonly NodePhase[] = ['Failed', 'Waiting', 'Loading', 'Loaded', 'Pinned'];
const mendNodes = 'fix what the failed nodes name; their agents try again';
/** The reasons of conditions that wait for the name of an acknowledgement or of a known risk. */
const decisions = ['AcknowledgementRequired', 'RiskNotAccepted'];
/** Conditions that name a problem if they are true. */
const problems: Readonly<Record<string, Accent>> = { Stalled: 'bad', ImagesMissing: 'bad', PoolsPaused: 'doubtful' };

/** Returns the status of an update as titles, rows and cells, for the terminal and for the page. */
export function viewStatus({ bundle, elapsed, mirrors: states, now = Date.now() }: ClusterStatus): StatusView {
  const mirrors = states.map(describeMirror);
  if (!bundle) {
    const title = 'Waiting for a bundle to be detected or applied';
    return { title, accent: undefined, problem: [], facts: [], conditions: [], nodes: [], mirrors };
  }
  const { version, release, hops, nodes = [] } = bundle.status ?? {};
  const problem = describeProblem(bundle);
  const { digest, file } = bundle.spec.bundle;
  const waitsForWindow = isWaitingForWindow(bundle);
  const isHeld = (bundle.spec.hold && !hasEnded(bundle)) || (phaseOf(bundle) === 'Held' && !waitsForWindow);
  const facts: [string, string | undefined][] = [
    ['Version', version],
    ['Updates', hops?.map((hop) => `${hop.version} ${hop.phase}`).join(', ')],
    ['Release', release],
    ['Bundle', digest ?? 'no digest is allowed: oc adm-upgrade-bundle apply does that'],
    ['Place', file],
    ['Held', isHeld ? 'until oc adm-upgrade-bundle resume' : undefined],
    ['Window', waitsForWindow ? conditionsOf(bundle).get('Updated')?.message : describeWindow(bundle, now)],
  ];
  return {
    title: formatTitle(bundle, elapsed),
    accent: problem.length > 0 ? 'bad' : accentOf(phaseOf(bundle)),
    problem,
    facts: facts.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])),
    conditions: [...conditionsOf(bundle)].map(([type, { status, reason, message }]) => ({
      cells: [type, status, reason, message],
      accent: severityOf(type, status),
    })),
    nodes: nodes.toSorted((a, b) => nodeOrder.indexOf(a.phase) - nodeOrder.indexOf(b.phase)),
    mirrors,
  };
}

/**
 * Says when the next update may begin; undefined without maintenance windows, and after it has begun. `now`:
 * milliseconds.
 */
export function describeWindow(bundle: UpgradeBundle, now: number): string | undefined {
  const { windows = [], windowNeeds = usualNeeds } = bundle.spec;
  if (windows.length === 0 || hasEnded(bundle) || isAtLeast(bundle, 'Upgrading')) return undefined;
  try {
    const { open, next } = findWindow(windows, windowNeeds, now);
    if (open) return `open until ${formatWindowTime(open.ends, open)}`;
    return next ? `the update begins from ${formatWindowTime(next.begins, next)} on` : `none has ${windowNeeds}`;
  } catch (error) {
    return messageOf(error);
  }
}

function describeMirror({ node, versions, content, requests, lacking }: NodeMirror): StatusRow {
  const lack = lacking.length === 0 ? '' : `lacks ${nameSome(lacking, 2)}`;
  const accent = versions.length === 0 || lack !== '' ? 'doubtful' : 'good';
  const served = `${versions.join(', ') || 'nothing'}${content === 'metadata' ? ' (metadata)' : ''}`;
  return { cells: [node, served, String(requests), lack], accent };
}

/** Returns the color of a phase of an update or of a node. */
export function accentOf(phase: string): Accent | undefined {
  return Object.entries(phaseAccents).find(([name]) => name === phase)?.[1];
}

function severityOf(type: string, status: string): Accent {
  const accent = problems[type];
  if (accent !== undefined) return status === 'False' ? 'good' : accent;
  return status === 'True' ? 'good' : 'doubtful';
}

/** Returns the name, the phase, the problems and the progress of an update in one line. */
export function formatTitle(bundle: UpgradeBundle, elapsed?: number): string {
  const facts = phaseOf(bundle) === 'Upgrading' ? describeUpdate(bundle, elapsed) : describeLoading(bundle);
  return `${bundle.metadata.name}: ${[phaseOf(bundle), ...problemsOf(bundle), ...facts].join(', ')}`;
}

/** Returns the problems of an update that has not ended, in a few words. */
export function problemsOf(bundle: UpgradeBundle): string[] {
  const failed = hasEnded(bundle) ? 0 : failedNodes(bundle).length;
  return [
    ...(isAbortRequested(bundle) ? ['abort requested'] : []),
    ...(isStalled(bundle) ? ['stalled'] : []),
    ...(findDecision(bundle) === undefined ? [] : ['a decision is needed']),
    ...(failed > 0 ? [`${formatCount(failed, 'node')} failed`] : []),
  ];
}

/** Returns what is wrong or to be decided, and the next step. Empty if the update progresses, or is held. */
function describeProblem(bundle: UpgradeBundle): Fact[] {
  const conditions = conditionsOf(bundle);
  if (phaseOf(bundle) === 'Failed')
    return [
      ['Problem', conditions.get('Updated')?.message ?? 'the update has failed'],
      ['Next', 'fix the cause; to start over: oc adm-upgrade-bundle clean, then apply'],
    ];
  const [first, ...more] = failedNodes(bundle).map(({ name, message = 'failed' }) => `${name}: ${message}`);
  const decision = findDecision(bundle);
  const others = more.length === 0 ? '' : `; ${formatCount(more.length, 'more node')}`;
  return [
    ...(isAbortRequested(bundle)
      ? [['Abort', `the controller aborts the update; to withdraw the request: ${withdrawAbort(bundle)}`] as const]
      : []),
    ...(first === undefined
      ? []
      : ([
          ['Problem', first + others],
          ['Next', mendNodes],
        ] as const)),
    // The messages of the controller end with what to do.
    ...(decision === undefined ? [] : [['Decision', decision] as const]),
    ...(isStalled(bundle) ? [['Stalled', conditions.get('Stalled')?.message ?? ''] as const] : []),
  ];
}

function failedNodes({ status }: UpgradeBundle): NodeProgress[] {
  return (status?.nodes ?? []).filter(({ phase }) => phase === 'Failed');
}

/** Returns what the administrator must decide before the update continues, and how: a gate or a known risk. */
function findDecision(bundle: UpgradeBundle): string | undefined {
  if (hasEnded(bundle)) return undefined;
  const conditions = conditionsOf(bundle);
  return ['Ready', 'Updated']
    .flatMap((type) => conditions.get(type) ?? [])
    .find(({ status, reason }) => status === 'False' && decisions.includes(reason))?.message;
}

function isStalled(bundle: UpgradeBundle): boolean {
  return !hasEnded(bundle) && conditionsOf(bundle).get('Stalled')?.status === 'True';
}

/** The work of the version operator, with the time that is left if it continues at its pace. `elapsed`: seconds. */
function describeUpdate({ status }: UpgradeBundle, elapsed: number | undefined): string[] {
  const progress = status?.progress === undefined ? [] : [status.progress];
  if (elapsed === undefined) return progress;
  const percent = Number.parseInt(status?.progress ?? '', 10);
  const estimate =
    percent >= 5 && percent < 100 ? [`about ${formatDuration((elapsed * (100 - percent)) / percent)} left`] : [];
  return [...progress, `${formatDuration(elapsed)} elapsed`, ...estimate];
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

/** The argument of every command about an UpgradeBundle of the cluster. */
export const recordArgument = {
  name: {
    type: 'string',
    describe: 'Name of an UpgradeBundle (default: the one in progress)',
    suggest: 'upgrade-bundles',
  },
} as const satisfies OptionRecord;

/** The colors of the phases of an UpgradeBundle and of its nodes. */
export const phaseAccents = {
  Verified: 'busy',
  Loading: 'busy',
  Loaded: 'busy',
  Pinned: 'busy',
  Upgrading: 'busy',
  Held: 'doubtful',
  Completed: 'good',
  Failed: 'bad',
} as const satisfies Accents;

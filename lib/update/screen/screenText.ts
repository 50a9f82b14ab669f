import { isAtLeast, type Phase, type UpgradeBundle } from '../record/upgradeBundle.ts';
import { codeOf, type ScreenReason } from './screenCode.ts';

/** The largest text on a screen: lines, and columns of a console of 80×24. */
export const screenSize = { lines: 6, columns: 79 } as const;

/** A share of some work, and the time that is left, in seconds; undefined until it can be estimated. */
export interface Share {
  readonly percent: number;
  readonly secondsLeft?: number | undefined;
}

/**
 * Where the report of the end of an update is. `wanted`: its drive is to be inserted again. `writing`: the drive is
 * inserted, and lacks it.
 */
export type ReportState = 'wanted' | 'writing' | 'written';

/** What a person in front of a node must know. Only texts of this program, versions and numbers are in it. */
export interface ScreenFacts {
  /** The version of the update, as `plainVersion` returns it. */
  readonly version?: string | undefined;
  /** The phase of the update; undefined if none is active or was completed. */
  readonly phase?: Phase | undefined;
  /** The number of nodes that have all images, and of all nodes: `2/3`. */
  readonly nodesReady?: string | undefined;
  /** The USB drive of this node with the bundle. */
  readonly drive: 'none' | 'needed' | 'removable';
  /** What the node does with the bundle. */
  readonly work?: { readonly kind: 'check' | 'copy'; readonly share?: Share | undefined } | undefined;
  /** The report of how the update ended, if the drive has a place for it: see `ReportState`. */
  readonly report?: ReportState | undefined;
  /** What stops the update or waits for a person, on this node or in the cluster. */
  readonly reason?: ScreenReason | undefined;
}

/** What the screen of a node says. */
export interface Screen {
  /** Lines of printable ASCII, within `screenSize`. */
  readonly lines: readonly string[];
  /** What a signal without a screen says. */
  readonly signal: 'busy' | 'removable' | 'stopped' | 'quiet';
  /** Whether it says what the agent does now, so that it is false once the agent has ended. */
  readonly isMomentary: boolean;
}

const keepPower = 'Do not switch off.';

/** The words for a reason. `version` is a noun phrase: `update 4.20.3`, or `the update`. */
const words: Readonly<Record<ScreenReason, (update: string) => readonly string[]>> = {
  completed: () => [],
  aborted: () => ['The administrator cancelled the update. The cluster is unchanged.'],
  superseded: () => ['Stopped: another update was started instead.'],
  notAllowed: (update) => [`${capitalize(update)} was found on the USB drive.`, 'It waits for the administrator.'],
  held: (update) => [`${capitalize(update)} is on all nodes. It waits for the administrator.`],
  outsideWindow: (update) => [`${capitalize(update)} is on all nodes.`, 'It starts by itself at the agreed time.'],
  clockNotTrusted: (update) => [`${capitalize(update)} waits: the clock of this cluster may be wrong.`],
  decisionNeeded: (update) => [`${capitalize(update)} needs a decision of the administrator.`],
  blocked: (update) => [`Stopped: this cluster is not ready for ${update}.`],
  severalBundles: () => ['Stopped: more than one update is planned.'],
  baseMissing: () => ['Stopped: one USB drive is not enough. A second one is needed.'],
  otherBundle: () => ['Stopped: the USB drive holds another update than the administrator allowed.'],
  driveUnreadable: () => ['Stopped: the USB drive cannot be read to its end. It may be damaged.'],
  driveRemoved: () => ['Stopped: the USB drive was removed too early. Insert it again.'],
  driveAwaited: (update) => [`This node waits for ${update}, from a USB drive`, 'or from a node that reads one.'],
  driveNeeded: (update) => [`Stopped: no node has ${update} any more.`, 'Insert its USB drive again.'],
  notTrusted: () => ['Stopped: the update on the USB drive has no valid signature.'],
  diskFull: () => ['Stopped: this node has too little disk space.'],
  driveEmpty: () => ['This USB drive holds no update.'],
  driveFormat: () => ['This USB drive has a format that this node cannot read.'],
  driveSilent: () => ['This USB drive does not answer.'],
  driveDamaged: () => ['The update on this USB drive is incomplete or damaged.'],
  driveFolder: () => ['The update on this USB drive is in a folder, where it is not found.'],
  nodesFailed: (update) => [`Stopped: a node of this cluster could not take ${update}.`],
  pinningFailed: () => ['Stopped: a node of this cluster does not keep the update.'],
  backupFailed: () => ['Stopped: the backup before the update failed.'],
  notAccepted: () => ['Stopped: the cluster refuses the update.'],
  noProgress: () => ['The update makes no progress.'],
  controllerFailing: () => ['Stopped: the cluster cannot continue the update.'],
  imagesLost: () => ['A node of this cluster lost a part of the update.'],
  imageDamaged: () => ['Stopped: the update on this node is damaged.'],
  nodeFailed: () => ['Stopped: this node has a problem. It tries again.'],
  unreachable: () => [`This node does not reach its cluster. ${keepPower}`],
};

/** Reasons that ask for nothing. */
const quiet: readonly ScreenReason[] = ['completed', 'aborted', 'outsideWindow', 'driveAwaited'];
const mustRead = 'Call your administrator and read the code:';
const keepDrive = 'Do not remove the USB drive.';
const mayRemove = 'You can remove the USB drive now.';
const reportWords: Readonly<Record<ReportState, string>> = {
  wanted: 'Insert the USB drive again to take the report with you.',
  writing: `Writing the report. ${keepDrive}`,
  written: 'The report is on the USB drive. You can remove it now.',
};
/** Reasons that ask for a drive themselves, or are about another one. */
const ownDrive: readonly ScreenReason[] = ['driveRemoved', 'driveNeeded', 'baseMissing', 'notAllowed'];

/** Says on the screen of a node what a person there must know; undefined if there is nothing to say. */
export function describeScreen(facts: ScreenFacts): Screen | undefined {
  const { phase, reason, drive, work } = facts;
  const update = facts.version === undefined ? 'the update' : `update ${facts.version}`;
  const isUpdating = phase === 'Upgrading';
  const isFree = !isUpdating && drive !== 'needed' && !(reason && ownDrive.includes(reason));
  const report = isFree ? facts.report : undefined;
  const driveWords = report ? [reportWords[report]] : wordsOf(drive);
  if (phase === 'Completed' && reason === undefined) {
    const runs = facts.version === undefined ? 'The update is complete' : `This cluster runs ${facts.version}`;
    return screen([`${runs} (code ${codeOf('completed')}).`, ...driveWords], signalOf(drive, report), isBusy(report));
  }
  if (reason !== undefined) {
    const code = codeOf(reason);
    const powerWords = isUpdating ? [`Updating. ${keepPower}`] : [];
    const rules = [...powerWords, ...driveWords].join(' ');
    const said = [...words[reason](update), ...(rules === '' ? [] : [rules])];
    if (quiet.includes(reason)) return screen([...said, `Code ${code}.`], signalOf(drive, report), isBusy(report));
    return screen([...said, `${mustRead} ${code}`], 'stopped');
  }
  // A drive of an update that the cluster has left behind.
  if (phase === undefined && report && report !== 'wanted')
    return screen(driveWords, signalOf(drive, report), isBusy(report));
  if (isUpdating) {
    const to = facts.version === undefined ? 'Updating this cluster' : `Updating this cluster to ${facts.version}`;
    return screen([`${to}. Nodes restart by themselves.`, keepPower, ...driveWords], signalOf(drive));
  }
  if (work?.kind === 'check')
    return screen(
      [`${capitalize(update)} was found on the USB drive.`, `Checking it${describeShare(work.share)}.`, keepDrive],
      'busy',
      true,
    );
  if (drive === 'removable')
    return screen(
      [`All nodes of this cluster have ${update}.`, mayRemove, `It starts soon. ${keepPower}`],
      'removable',
    );
  if (drive === 'needed' && (phase === 'Detected' || phase === 'Verified'))
    return screen([`${capitalize(update)} on the USB drive is in order.`, keepDrive], 'busy', true);
  if (phase === undefined || phase === 'Detected' || phase === 'Failed') return undefined;
  const isReady = isAtLeast({ status: { phase } } as UpgradeBundle, 'Loaded');
  if (isReady && drive === 'none')
    return screen([`All nodes of this cluster have ${update}.`, `It starts soon. ${keepPower}`], 'quiet');
  if (work?.kind === 'copy')
    return screen(
      [`Copying ${update} to this node${describeShare(work.share)}.`, ...orElse(driveWords, keepPower)],
      'busy',
      true,
    );
  if (drive === 'none' && phase === 'Verified') return undefined;
  const [ready, all] = (facts.nodesReady ?? '').split('/');
  const count = all === undefined ? '' : `: ${ready} of ${all} have it`;
  return screen([`Copying ${update} to the nodes${count}.`, ...orElse(driveWords, keepPower)], 'busy', true);
}

function orElse(lines: readonly string[], other: string): readonly string[] {
  return lines.length > 0 ? lines : [other];
}

function wordsOf(drive: ScreenFacts['drive']): readonly string[] {
  return drive === 'needed' ? [keepDrive] : drive === 'removable' ? [mayRemove] : [];
}

/** Returns whether a text is false once the agent has ended. */
function isBusy(report: ReportState | undefined): boolean {
  return report === 'writing';
}

function signalOf(drive: ScreenFacts['drive'], report?: ReportState): Screen['signal'] {
  if (report) return ({ wanted: 'quiet', writing: 'busy', written: 'removable' } as const)[report];
  return drive === 'needed' ? 'busy' : drive === 'removable' ? 'removable' : 'quiet';
}

function screen(lines: readonly string[], signal: Screen['signal'], isMomentary = false): Screen {
  return { lines: lines.map(plainLine), signal, isMomentary };
}

/** Describes a share after other words: `: 34 %, about 4 minutes left`. */
function describeShare(share: Share | undefined): string {
  if (!share) return '';
  const { percent, secondsLeft } = share;
  return `: ${Math.floor(percent)} %${secondsLeft === undefined ? '' : `, ${describeTime(secondsLeft)} left`}`;
}

function describeTime(seconds: number): string {
  if (seconds < 60) return 'less than a minute';
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `about ${minutes === 1 ? '1 minute' : `${minutes} minutes`}`;
  return `about ${Math.round(minutes / 60)} hours`;
}

function capitalize(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** Versions as OpenShift numbers its releases. A version that a USB drive states must not carry a message. */
const versions = /^\d{1,2}\.\d{1,3}\.\d{1,3}(?:-(?:ec|rc|fc)\.\d{1,3})?$/;

/** Returns a version for a screen; undefined for one in another form, whose text stays off the screen. */
export function plainVersion(version: string | undefined): string | undefined {
  return version !== undefined && versions.test(version) ? version : undefined;
}

/**
 * Returns a text that a console shows as it is: agetty gives a backslash a meaning (agetty(8), “Issue escapes”), and
 * consoles of VGA have no UTF-8.
 */
function plainLine(text: string): string {
  return text.replace(/[^\x20-\x7e]|\\/g, '?').slice(0, screenSize.columns);
}

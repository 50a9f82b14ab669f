import { nameSome } from '#errors';
import { listOf, textOf, type Fields } from '#fields';

/** The types of conditions, in the order in which they become true. */
export const conditionTypes = [
  'Verified',
  'Acknowledged',
  'Ready',
  'Loaded',
  'Pinned',
  'BackedUp',
  'StreamsDescribed',
  'Updated',
  'RisksAccepted',
  'BlockersIgnored',
  'PoolsPaused',
  'NodesNotReady',
  'ImagesMissing',
  'ExtraImagesAllowed',
  'Stalled',
] as const;

/** A condition of an UpgradeBundle, in the form of Kubernetes conditions. */
export interface BundleCondition {
  readonly type: (typeof conditionTypes)[number];
  readonly status: 'True' | 'False' | 'Unknown';
  /** One word in CamelCase, for programs. */
  readonly reason: string;
  readonly message: string;
}

const longest = 8000;

/** Merges conditions into the present ones. A condition with the same status keeps its transition time. */
export function mergeConditions(
  presentConditions: readonly object[] | undefined,
  conditions: readonly BundleCondition[],
  observedGeneration: number,
): object[] {
  const before = new Map(listOf(presentConditions).map((each) => [String(each['type']), each]));
  const now = new Date().toISOString().replace(/\.\d+/, '');
  const merged = new Map<string, Fields>(before);
  for (const { message, ...condition } of conditions) {
    const last = before.get(condition.type);
    const lastTransitionTime = last?.['status'] === condition.status ? textOf(last['lastTransitionTime']) : undefined;
    merged.set(condition.type, {
      ...condition,
      message: message.slice(0, longest),
      lastTransitionTime: lastTransitionTime ?? now,
      observedGeneration,
    });
  }
  // A fixed order, so that the writer detects changes.
  return conditionTypes.map((type) => merged.get(type)).filter((each) => each !== undefined);
}

/** Conditions for which an update waits, in the order in which it waits for them. */
const waits: readonly BundleCondition['type'][] = ['Verified', 'Ready', 'Loaded', 'Pinned', 'BackedUp', 'Updated'];

/** The reasons of waits that end without a person, unless they last too long. */
export const ordinaryReasons: readonly string[] = [
  'BaseUnknown',
  'Loading',
  'Pinning',
  'BackingUp',
  'Updating',
  'WaitingForNodes',
  'MirrorNotReady',
  // The version operator reports failures of operators that end by themselves.
  'Failing',
  'ResumingPools',
  'NextRelease',
  'OutsideWindow',
];

/**
 * Returns the reason of the condition that an update waits for, or with which it ended. If it does not need a person,
 * but lasts too long, `NoProgress`; and `Stalled` if the controller itself fails. Undefined if it waits for nothing.
 */
export function findReason(conditions: readonly object[]): string | undefined {
  const reasons = new Map(listOf(conditions).map(({ type, status, reason }) => [type, { status, reason }]));
  const last = waits
    .map((type) => reasons.get(type))
    // An update without a backup waits for none.
    .findLast((condition) => condition?.status === 'False' && condition.reason !== 'Off');
  const stalled = reasons.get('Stalled');
  const own = textOf(last?.reason);
  // Operators of the cluster can be failing too.
  const stall = stalled?.status !== 'True' ? undefined : stalled.reason === 'NoProgress' ? 'NoProgress' : 'Stalled';
  return own === undefined || ordinaryReasons.includes(own) ? (stall ?? own) : own;
}

/** Returns a condition that is not true, or not yet. */
export function falseCondition(type: BundleCondition['type'], reason: string, message: string): BundleCondition {
  return { type, status: 'False', reason, message };
}

/** Returns the condition that a problem is over, if the status has a condition of that type. */
export function clearCondition(
  status: { readonly conditions?: readonly object[] } | undefined,
  type: BundleCondition['type'],
  reason: string,
  message: string,
): BundleCondition[] {
  const isKnown = listOf(status?.conditions).some((each) => each['type'] === type);
  return isKnown ? [falseCondition(type, reason, message)] : [];
}

/** Lists the first ten of many names for the message of a condition. */
export function listNames(names: readonly string[], separator = ', '): string {
  return nameSome(names, 10, separator);
}

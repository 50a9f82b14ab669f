import { listOf, textOf, type Fields } from '../kubernetes/fields.ts';
import { nameSome } from '../failures.ts';

/** In the order in which they come to hold. */
const types = [
  'Verified',
  'Ready',
  'Loaded',
  'Pinned',
  'Updated',
  'ImagesMissing',
  'ExtraImagesAllowed',
  'Stalled',
] as const;

/** A condition of an UpgradeBundle, in the form that conditions have everywhere. */
export interface BundleCondition {
  readonly type: (typeof types)[number];
  readonly status: 'True' | 'False' | 'Unknown';
  /** One word in CamelCase, for programs. */
  readonly reason: string;
  readonly message: string;
}

const longest = 8000;

/** Lays conditions over those that are there; one whose status stays the same keeps the time at which it became so. */
export function mergeConditions(
  known: readonly object[] | undefined,
  conditions: readonly BundleCondition[],
  observedGeneration: number,
): object[] {
  const before = new Map(listOf(known).map((each) => [String(each['type']), each]));
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
  // Always in the same order: whoever writes them sees whether something is another than before.
  return types.map((type) => merged.get(type)).filter((each) => each !== undefined);
}

/** Lists the first ten of many names for the message of a condition. */
export function listNames(names: readonly string[], separator = ', '): string {
  return nameSome(names, 10, separator);
}

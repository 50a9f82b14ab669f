import { screenCodes, type ScreenReason } from '../../../lib/update/screen/screenCode.ts';
import type { ScreenFacts } from '../../../lib/update/screen/screenText.ts';

const version = '4.20.3';
const work = (kind: 'check' | 'copy', percent: number, minutes: number): ScreenFacts['work'] => ({
  kind,
  share: { percent, secondsLeft: minutes * 60 },
});

/** What a node with the USB drive knows in each step of an update that succeeds, in their order. */
export const goodSteps: readonly (readonly [step: string, facts: ScreenFacts])[] = [
  ['The drive is checked', { version, phase: 'Verified', drive: 'needed', work: work('check', 34, 4) }],
  ['The update is copied', { version, phase: 'Loading', drive: 'needed', work: work('copy', 60, 12) }],
  ['Other nodes still copy it', { version, phase: 'Loading', drive: 'needed', nodesReady: '2/3' }],
  ['The drive is free', { version, phase: 'Loaded', drive: 'removable' }],
  ['The cluster is updated', { version, phase: 'Upgrading', drive: 'none' }],
  ['It is complete', { version, phase: 'Completed', drive: 'none' }],
];

/** What the node knows at the end, if the drive has a place for the report of the cluster. */
export const reportSteps: readonly (readonly [step: string, facts: ScreenFacts])[] = [
  ['It is complete, and the drive is wanted again', { version, phase: 'Completed', drive: 'none', report: 'wanted' }],
  ['The report is written', { version, phase: 'Completed', drive: 'removable', report: 'writing' }],
  ['The drive has the report', { version, phase: 'Completed', drive: 'removable', report: 'written' }],
];

/** What a node without the USB drive knows meanwhile. */
export const otherSteps: readonly (readonly [step: string, facts: ScreenFacts])[] = [
  ['It copies the update', { version, phase: 'Loading', drive: 'none', work: work('copy', 5, 90) }],
  ['Other nodes still copy it', { version, phase: 'Loading', drive: 'none', nodesReady: '2/3' }],
  ['All nodes have it', { version, phase: 'Loaded', drive: 'none' }],
];

/** The reasons for which a screen asks for a call, or shows a code. */
export const screenReasons = Object.keys(screenCodes) as readonly ScreenReason[];

/** What a node knows that shows a reason; the end of an update has its own phase. */
export function factsWith(reason: ScreenReason, more: Partial<ScreenFacts> = {}): ScreenFacts {
  if (reason === 'completed') return { version, phase: 'Completed', drive: 'none', ...more };
  return { version, phase: 'Loading', drive: 'none', reason, ...more };
}

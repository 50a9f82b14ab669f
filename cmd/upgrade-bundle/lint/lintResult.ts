import type { JudgedFindings } from '../../../lib/lint/baseline.ts';
import type { LintReport } from '../../../lib/lint/lint.ts';

/** What `lint` prints: the report, judged by the options. */
export interface LintResult extends LintReport, JudgedFindings {
  readonly findings: JudgedFindings['findings'];
  /** The target that the findings are compared with. */
  readonly against?: string;
  readonly failOn: 'blocker' | 'warning';
  /** No finding fails. */
  readonly passed: boolean;
  /** The number of findings of at least the severity `failOn` that the baseline does not accept. */
  readonly failing: number;
}

/** Returns whether a finding makes `lint` fail. */
export function fails({ failOn }: LintResult, { severity, status }: LintResult['findings'][number]): boolean {
  return status !== 'known' && (severity === 'blocker' || severity === failOn);
}

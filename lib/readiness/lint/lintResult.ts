import { judgeFindings, type BaselineEntry, type JudgedFindings } from './baseline.ts';
import { atLeast, withoutKnown, type LintReport } from './lint.ts';

/** A report, judged by a baseline and by the report of an earlier release. */
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

/** Judges a report today. Leaves out the findings that the report `against` has too. */
export function judgeReport(
  report: LintReport,
  against: LintReport | undefined,
  entries: readonly BaselineEntry[],
  failOn: LintResult['failOn'],
): LintResult {
  const judged = judgeFindings(report.findings, entries, new Date().toISOString().slice(0, 10));
  const findings = against ? withoutKnown(judged.findings, against.findings) : judged.findings;
  const failing = atLeast(findings, failOn).filter(({ status }) => status !== 'known').length;
  return {
    ...report,
    ...(against && { against: against.target }),
    ...{ passed: failing === 0, failing, failOn, findings, unused: judged.unused },
  };
}

/** Returns whether a finding makes the result fail. */
export function fails({ failOn }: LintResult, { severity, status }: LintResult['findings'][number]): boolean {
  return status !== 'known' && (severity === 'blocker' || severity === failOn);
}

import { formatSubject } from '../../../lib/cluster/finding.ts';
import { allRules } from '../../../lib/readiness/lint/rules.ts';
import { fails, type LintResult } from '../../../lib/readiness/lint/lintResult.ts';
import { formatJunit, type JunitCase } from '../../cli/junit.ts';

type Finding = LintResult['findings'][number];

/** Formats a result as JUnit XML: a suite for each rule, a case for each finding, and one for each rule that found nothing. */
export function toJunit(result: LintResult): string {
  const suites = allRules.map(({ id }) => {
    const findings = result.findings.filter(({ rule }) => rule === id);
    const skipped = findings.filter(({ status }) => status === 'known').length;
    const cases = findings.map((finding) => toCase(finding, fails(result, finding)));
    const passed = { classname: id, name: 'no finding', time: 0 };
    return { name: id, skipped, time: 0, cases: cases.length > 0 ? cases : [passed] };
  });
  return formatJunit(`lint ${result.target}`, suites);
}

function toCase(finding: Finding, isFailure: boolean): JunitCase {
  const { rule, severity, component, object, file, line, field, message, why, remedy, status, reason = '' } = finding;
  const test = { classname: `${rule}.${component}`, name: `${formatSubject(object)} ${field}`.trim(), time: 0 };
  if (status === 'known') return { ...test, skipped: reason };
  const details = [`${component}: ${file}:${line}`, field, why, remedy].filter((line) => line !== '').join('\n');
  if (isFailure) return { ...test, failure: { type: severity, message, details } };
  return { ...test, output: `${severity}: ${message}\n${details}` };
}

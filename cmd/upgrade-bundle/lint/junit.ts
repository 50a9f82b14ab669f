import { formatSubject } from '../../../lib/cluster/finding.ts';
import { allRules } from '../../../lib/readiness/lint/rules.ts';
import { escapeXml, tag, xmlDocument } from '../../cli/xml.ts';
import { fails, type LintResult } from '../../../lib/readiness/lint/lintResult.ts';

type Finding = LintResult['findings'][number];

/** Formats a result as JUnit XML: a suite for each rule, a case for each finding, and one for each rule that found nothing. */
export function toJunit(result: LintResult): string {
  const suites = allRules.map(({ id }) => {
    const findings = result.findings.filter(({ rule }) => rule === id);
    return { id, findings, failures: findings.filter((finding) => fails(result, finding)).length };
  });
  const lines = suites.flatMap(({ id, findings, failures }) => {
    const skipped = findings.filter(({ status }) => status === 'known').length;
    const counts = { tests: Math.max(1, findings.length), failures, errors: 0, skipped, time: 0 };
    const cases = findings.map((finding) => formatCase(finding, fails(result, finding)));
    const passed = tag('testcase', { classname: id, name: 'no finding', time: 0 });
    return [tag('testsuite', { name: id, ...counts }, ['', ...(cases.length > 0 ? cases : [passed]), ''].join('\n'))];
  });
  const totals = {
    name: `lint ${result.target}`,
    tests: suites.reduce((sum, { findings }) => sum + Math.max(1, findings.length), 0),
    failures: result.failing,
  };
  return xmlDocument(tag('testsuites', totals, ['', ...lines, ''].join('\n')));
}

function formatCase(finding: Finding, isFailure: boolean): string {
  const { rule, severity, component, object, file, line, field, message, why, remedy, status, reason = '' } = finding;
  const name = `${formatSubject(object)} ${field}`.trim();
  const details = escapeXml(
    [`${component}: ${file}:${line}`, field, why, remedy].filter((line) => line !== '').join('\n'),
  );
  const content =
    status === 'known'
      ? tag('skipped', { message: reason })
      : isFailure
        ? tag('failure', { type: severity, message }, details)
        : tag('system-out', {}, escapeXml(`${severity}: ${message}\n`) + details);
  return tag('testcase', { classname: `${rule}.${component}`, name, time: 0 }, content);
}

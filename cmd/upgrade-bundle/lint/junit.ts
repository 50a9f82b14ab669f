import { formatSubject } from '../../../lib/kubernetes/finding.ts';
import { allRules } from '../../../lib/lint/rules.ts';
import { fails, type LintResult } from './lintResult.ts';

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
  return `<?xml version="1.0" encoding="UTF-8"?>\n${tag('testsuites', totals, ['', ...lines, ''].join('\n'))}\n`;
}

function formatCase(finding: Finding, isFailure: boolean): string {
  const { rule, severity, component, object, file, line, field, message, why, remedy, status, reason = '' } = finding;
  const name = `${formatSubject(object)} ${field}`.trim();
  const details = escape(
    [`${component}: ${file}:${line}`, field, why, remedy].filter((line) => line !== '').join('\n'),
  );
  const content =
    status === 'known'
      ? tag('skipped', { message: reason })
      : isFailure
        ? tag('failure', { type: severity, message }, details)
        : tag('system-out', {}, escape(`${severity}: ${message}\n`) + details);
  return tag('testcase', { classname: `${rule}.${component}`, name, time: 0 }, content);
}

function tag(name: string, attributes: Readonly<Record<string, string | number>>, content = ''): string {
  const pairs = Object.entries(attributes).map(([key, value]) => ` ${key}="${escape(String(value))}"`);
  return content === '' ? `<${name}${pairs.join('')}/>` : `<${name}${pairs.join('')}>${content}</${name}>`;
}

/** Escapes a text for XML, which has no control characters at all. */
function escape(text: string): string {
  const entities: Readonly<Record<string, string>> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    '\n': '&#10;',
  };

  const plain = text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g, '\ufffd');
  return plain.replace(/[&<>"\n]/g, (char) => entities[char] ?? char);
}

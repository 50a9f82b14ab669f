import { formatSubject } from '../../../lib/cluster/finding.ts';
import { formatCount } from '../../cli/format.ts';
import { fails, type LintResult } from '../../../lib/readiness/lint/lintResult.ts';
import { allRules } from '../../../lib/readiness/lint/rules.ts';
import { formatJunit, type JunitCase } from '../../cli/junit.ts';
import { Lines } from '../../../lib/lines.ts';

type Finding = LintResult['findings'][number];

/** How many findings of a rule are shown. */
const shown = 20;

/** Formats a result as plain words: the findings by severity and rule, each rule with its remedy and reason. */
export function toWords(result: LintResult): Lines {
  const { target, version, against, files, objects, excluded, knowsImages, findings, unused } = result;
  const name = version === undefined || version === target ? target : `${target}: OpenShift ${version}`;
  const title = `${name}; ${formatCount(objects, 'object')} in ${formatCount(files, 'file')} checked`;
  const notes = [
    ...(excluded > 0 ? [`${formatCount(excluded, 'object')} left out: not for self-managed clusters by default.`] : []),
    ...(knowsImages ? [] : ['Images are not compared with a release, because there is no image-references.']),
    ...unused.map(({ rule, object }) => `The baseline has an entry without a finding: ${rule} of ${object}.`),
  ];
  const what = against === undefined ? 'Nothing' : `Nothing that ${against} does not have`;
  const groups = [...Map.groupBy(findings, ({ rule }) => rule).values()].flatMap(describeGroup);
  return new Lines(title, ...notes, ...(findings.length === 0 ? [`${what} was found that needs a registry.`] : groups));
}

function describeGroup(findings: readonly Finding[]): string[] {
  const [first] = findings;
  if (!first) return [];
  const rest = findings.length - shown;
  return [
    '',
    `${first.severity} ${first.rule} (${findings.length})`,
    `  ${first.why}`,
    `  ${first.remedy}`,
    ...findings.slice(0, shown).flatMap(describeFinding),
    ...(rest > 0 ? [`  - … and ${rest} more: -o json lists them all`] : []),
  ];
}

function describeFinding({ component, object, file, line, field, message, status, until = '' }: Finding): string[] {
  const statusNote = {
    new: '',
    known: ` (known until ${until})`,
    expired: ` (the baseline entry ended on ${until})`,
    incomplete: ' (the baseline entry lacks a reason or an end date)',
  }[status];
  const subject = object.kind === 'File' ? '' : `${formatSubject(object)} of ${component}, `;
  return [`  - ${message}${statusNote}`, `    ${subject}${file}:${line}${field === '' ? '' : ` ${field}`}`];
}

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

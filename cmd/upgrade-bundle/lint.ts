import { createHash } from 'node:crypto';
import { isAbsolute, join, sep } from 'node:path';
import { formatSubject, type Severity } from '#cluster/finding';
import { writeAtomically } from '#content/files';
import { PluginError } from '#errors';
import {
  atLeast,
  lintSets,
  type LintReport,
  evaluateReport,
  type LintResult,
  fails,
  makeBaseline,
  readBaseline,
  readManifestSets,
  allRules,
  keyOfFinding,
} from '#readiness/lint';
import { parseArchitecture, usualRepository } from '#release/version';
import { Lines } from '#text';
import manifest from '../../package.json' with { type: 'json' };
import { tool, openRegistries } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatCount, formatYaml } from '../cli/format.ts';
import { formatJunit, type JunitCase } from '../cli/junit.ts';
import { outputOption, registryOptions, releaseOptions } from '../cli/options.ts';
import { formatLintPage } from './report/findingsPage.ts';

const options = {
  against: {
    type: 'string',
    describe: 'An earlier release, bundle or folder: report only the findings that it does not have',
    suggest: 'paths',
  },
  baseline: {
    type: 'string',
    describe: 'File with known findings that do not fail, each with a reason and an end date',
    suggest: 'files',
  },
  'write-baseline': {
    type: 'string',
    describe: 'File to write the findings that fail to, as a baseline without reasons and dates',
    suggest: 'paths',
  },
  'fail-on': {
    type: 'string',
    choices: ['blocker', 'warning'],
    default: 'blocker',
    describe: 'Lowest severity that makes the exit code 1',
  },
  ...outputOption('junit', 'sarif', 'html'),
  arch: {
    ...releaseOptions.arch,
    describe: 'Architecture of a release named by its version (default: x86_64)',
  },
  'release-repository': {
    ...releaseOptions['release-repository'],
    describe: `Repository to look up versions in (default: ${usualRepository})`,
  },
  ...registryOptions,
} as const;

const positionals = {
  target: {
    type: 'string',
    required: true,
    describe: 'A version, a release image, a bundle, a mirror directory, a folder of manifests, a file, or - for stdin',
    suggest: 'paths',
  },
} as const;

/** `lint`: finds what needs a registry in the manifests of a release. */
export const command = defineCommand({
  details:
    'Reads the manifests of a release, without a cluster. Finds workloads that always pull, images that the release ' +
    'does not have, catalogs and image streams that poll, and scripts and units that contact a registry. Manifests ' +
    'within ConfigMaps and MachineConfigs are read too. Checks no signature, and changes nothing. The page ' +
    'docs/lint-rules.md describes each rule.',
  positionals,
  options,
  examples: [
    ['4.20.3', 'Show what needs a registry in a release'],
    [
      'upgrade-4.20.3-x86_64.tar --against=upgrade-4.20.2-x86_64.tar',
      'Show only what the previous bundle does not have',
    ],
    ['manifests/ --baseline=baseline.yaml --fail-on=warning -o sarif > lint.sarif', 'Gate a change of an operator'],
    ['-', 'Check a manifest from the standard input'],
  ],
  async run(args, { context, terminal, environment, stdin }) {
    const entries = args.baseline === undefined ? [] : await readBaseline(args.baseline);
    await using registries = await openRegistries(args, environment, context);
    const access = {
      arch: parseArchitecture(args.arch ?? 'x86_64'),
      repository: args.releaseRepository ?? usualRepository,
      sourceOf: registries.sourceOf.bind(registries),
      stdin,
    };
    const read = async (target: string): Promise<LintReport> =>
      lintSets(await readManifestSets(target, access, context), context);
    const report = await read(args.target);
    const against = args.against === undefined ? undefined : await read(args.against);
    const result = evaluateReport(report, against, entries, args.failOn);
    await terminal.printResult(args.output, result, {
      words: () => toWords(result),
      junit: () => Lines.split(toJunit(result)),
      sarif: () => Lines.split(JSON.stringify(toSarif(result), null, 2)),
      html: () => Lines.split(formatLintPage(result, { date: new Date(), tool })),
    });
    if (args.writeBaseline !== undefined) {
      const findings = makeBaseline(atLeast(result.findings, args.failOn), entries);
      await writeAtomically(args.writeBaseline, await formatYaml({ findings }));
    } else if (!result.passed) throw failureOf(result);
  },
});

function failureOf({ target, version, failing }: LintResult): PluginError {
  const what = formatCount(failing, 'finding');
  const message = `${version ?? target} needs a registry: ${what} that ${failing === 1 ? 'is' : 'are'} not in a baseline`;
  const hint = 'Follow the advice above. Accept a finding with an entry in a baseline, with a reason and an end date.';
  return new PluginError('needs-registry', message, { hint, settings: ['baseline', 'writeBaseline'] });
}

type Finding = LintResult['findings'][number];

/** How many findings of a rule are shown. */
const shown = 20;

/** Formats a result as plain words: the findings by severity and rule, each rule with its remedy and reason. */
function toWords(result: LintResult): Lines {
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

/**
 * Formats a result as JUnit XML: a suite for each rule, a case for each finding, and one for each rule that found
 * nothing.
 */
function toJunit(result: LintResult): string {
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

const levels: Readonly<Record<Severity, string>> = { blocker: 'error', warning: 'warning', info: 'note' };

/** Makes SARIF 2.1.0 of a result. Findings that the baseline accepts are suppressed, with the reason. */
function toSarif({ root, findings }: LintResult): object {
  const order = new Map(allRules.map(({ id }, index) => [id, index]));
  return {
    $schema: 'https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: {
          driver: {
            name: 'oc adm-upgrade-bundle lint',
            semanticVersion: manifest.version,
            informationUri: manifest.homepage,
            rules: allRules.map(({ id, severity, why, remedy, problem }) => ({
              id,
              shortDescription: { text: problem.replace(/(?::| every)? \(?%\)?,?/, '') },
              fullDescription: { text: why },
              help: { text: remedy },
              defaultConfiguration: { level: levels[severity] },
            })),
          },
        },
        results: findings.map((finding) => ({
          ruleId: finding.rule,
          ruleIndex: order.get(finding.rule) ?? -1,
          level: levels[finding.severity],
          message: { text: `${formatSubject(finding.object)}: ${finding.message}. ${finding.remedy}` },
          locations: [locationOf(finding, root)],
          partialFingerprints: { finding: createHash('sha256').update(keyOfFinding(finding)).digest('hex') },
          ...(finding.status === 'known' && {
            suppressions: [{ kind: 'external', justification: finding.reason ?? '' }],
          }),
          properties: { component: finding.component },
        })),
      },
    ],
  };
}

function locationOf({ file, line, object, field }: LintResult['findings'][number], root: string | undefined): object {
  // Relative to the working directory, so that a report fits the repository that it is made in.
  const path = root === undefined ? file : join(root, file).replaceAll(sep, '/');
  const uri = path.split('/').map(encodeURIComponent).join('/');
  return {
    physicalLocation: {
      artifactLocation: { uri: isAbsolute(path) ? `file://${uri}` : uri },
      region: { startLine: line },
    },
    logicalLocations: [{ fullyQualifiedName: `${formatSubject(object)} ${field}`.trim(), kind: 'member' }],
  };
}

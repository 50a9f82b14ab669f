import { createHash } from 'node:crypto';
import { isAbsolute, join, sep } from 'node:path';
import { formatSubject, type Severity } from '#cluster/finding';
import { keyOfFinding, allRules, type LintResult } from '#readiness/lint';
import manifest from '../../../package.json' with { type: 'json' };

const levels: Readonly<Record<Severity, string>> = { blocker: 'error', warning: 'warning', info: 'note' };

/** Makes SARIF 2.1.0 of a result. Findings that the baseline accepts are suppressed, with the reason. */
export function toSarif({ root, findings }: LintResult): object {
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

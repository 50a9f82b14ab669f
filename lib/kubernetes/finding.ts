import type { KubernetesObject } from '../config/manifest.ts';

/** A blocker keeps the cluster from updating or booting, a warning may cause harm, an info is worth knowing. */
export type Severity = 'blocker' | 'warning' | 'info';

/** The kinds of subjects, in the order of the report. */
const checks = [
  ...(['bundle', 'version', 'operators', 'pools', 'nodes', 'space', 'images'] as const),
  ...(['pull-policy', 'tags', 'catalogs', 'rights'] as const),
];

/** The number of checked subjects. */
export type Check = (typeof checks)[number];

/** Which object a finding is about. */
export interface Subject {
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

/** A result of a check of the cluster. */
export interface Finding {
  readonly check: Check;
  readonly severity: Severity;
  readonly subject: Subject;
  /** The problem, in lower case; the subject is a column of its own. */
  readonly message: string;
  /** What to do; the same words for the same problem. */
  readonly advice: string;
}

const severities: readonly Severity[] = ['blocker', 'warning', 'info'];

/** Returns the subject for an object. */
export function subjectOf({ kind, metadata: { name, namespace } }: KubernetesObject): Subject {
  return { kind, name, ...(namespace !== undefined && namespace !== '' && { namespace }) };
}

/** Returns a subject as arguments of oc: `deployment/router -n openshift-ingress`. */
export function formatSubject({ kind, name, namespace }: Subject): string {
  return `${kind.toLowerCase()}/${name}${namespace === undefined ? '' : ` -n ${namespace}`}`;
}

/** Sorts findings by severity, then by subject. */
export function sortFindings(findings: readonly Finding[]): Finding[] {
  const key = ({ severity, check, subject }: Finding): (number | string)[] => [
    severities.indexOf(severity),
    checks.indexOf(check),
    subject.namespace ?? '',
    subject.name,
    subject.kind,
  ];
  return findings
    .map((finding) => ({ finding, key: key(finding) }))
    .sort((a, b) => compareKeys(a.key, b.key))
    .map(({ finding }) => finding);
}

function compareKeys(a: readonly (number | string)[], b: readonly (number | string)[]): number {
  const at = a.findIndex((part, index) => part !== b[index]);
  if (at < 0) return 0;
  return (a[at] ?? '') < (b[at] ?? '') ? -1 : 1;
}

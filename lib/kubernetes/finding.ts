import type { KubernetesObject } from '../config/manifest.ts';

/** A blocker keeps the cluster from updating or booting, a warning may cause harm, an info is worth knowing. */
export type Severity = 'blocker' | 'warning' | 'info';

/** What is looked at, in the order in which it matters. */
const checks = [
  ...(['bundle', 'version', 'operators', 'pools', 'nodes', 'space', 'images'] as const),
  ...(['pull-policy', 'tags', 'catalogs', 'rights'] as const),
];

/** What was looked at. */
export type Check = (typeof checks)[number];

/** Which object a finding is about. */
export interface Subject {
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

/** Something that is to be known before a cluster has to do without a registry. */
export interface Finding {
  readonly check: Check;
  readonly severity: Severity;
  readonly subject: Subject;
  /** What is the matter, beginning with a small letter, the subject being its own column. */
  readonly message: string;
  /** What to do about it: the same words for the same matter. */
  readonly advice: string;
}

const severities: readonly Severity[] = ['blocker', 'warning', 'info'];

/** The subject that an object is. */
export function subjectOf({ kind, metadata: { name, namespace } }: KubernetesObject): Subject {
  return { kind, name, ...(namespace !== undefined && namespace !== '' && { namespace }) };
}

/** How to name a subject to oc: `deployment/router -n openshift-ingress`. */
export function formatSubject({ kind, name, namespace }: Subject): string {
  return `${kind.toLowerCase()}/${name}${namespace === undefined ? '' : ` -n ${namespace}`}`;
}

/** Findings in the order in which they matter, then by what they are about. */
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

import type { KubernetesObject } from '../config/manifest.ts';

/**
 * The severity of a finding. A blocker prevents the update or the boot, a warning may cause harm, an info only informs.
 */
export type Severity = 'blocker' | 'warning' | 'info';

/** The kinds of subjects, in the order of the report. */
export const checks = [
  ...([
    'bundle',
    'path',
    'version',
    'streams',
    'operators',
    'etcd',
    'certificates',
    'pools',
    'nodes',
    'drains',
    'admission',
    'space',
    'images',
    'mirrors',
    'signatures',
  ] as const),
  ...(['pull-policy', 'tags', 'catalogs', 'imports', 'scripts', 'drills', 'rights'] as const),
];

/** A kind of subject that is checked. */
export type Check = (typeof checks)[number];

/** The object that a finding is about. */
export interface Subject {
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

/** What a check of the cluster found, without its severity. */
interface Observed {
  readonly check: Check;
  readonly subject: Subject;
  /** The problem, in lower case; the subject is a column of its own. */
  readonly message: string;
  /** The remedy. Identical problems have identical words. */
  readonly advice: string;
}

/** The severity of a finding. A blocker says why the platform itself stops there (`platformStops`). */
export type Weight =
  | { readonly severity: 'blocker'; readonly because: string }
  | { readonly severity: Exclude<Severity, 'blocker'>; readonly because?: undefined };

/** A result of a check of the cluster. `ignored`: an administrator has overruled this blocker by its name. */
export type Finding = Observed & Weight & { readonly ignored?: true };

/** From the most severe. */
export const severities: readonly Severity[] = ['blocker', 'warning', 'info'];

/** Returns the subject for an object. */
export function subjectOf({ kind, metadata: { name, namespace } }: KubernetesObject): Subject {
  return { kind, name, ...(namespace !== undefined && namespace !== '' && { namespace }) };
}

/** Formats a subject as arguments of oc: `deployment/router -n openshift-ingress`. */
export function formatSubject({ kind, name, namespace }: Subject): string {
  return `${kind.toLowerCase()}/${name}${namespace === undefined ? '' : ` -n ${namespace}`}`;
}

/** Names a subject for a table: a bundle by its path, which can be used in a shell, and a kind without a name alone. */
export function nameSubject(subject: Subject): string {
  const { kind, name } = subject;
  if (kind === 'Bundle') return name;
  return name === '' ? kind : formatSubject(subject);
}

/** Returns one line about a finding: `clusterversion/version runs 4.19.3, from which …`. */
export function describeFinding({ subject, message }: Finding): string {
  return `${formatSubject(subject)} ${message}`;
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

import type { KubernetesObject } from '#config/manifest';
import { PluginError } from '#errors';

/**
 * The severity of a finding. A blocker prevents the update or the boot, a warning may cause harm, an info only informs.
 */
export type Severity = 'blocker' | 'warning' | 'info';

/** The kinds of subjects, in the order of the report. */
const checks = [
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
  'pull-policy',
  'tags',
  'catalogs',
  'imports',
  'scripts',
  'drills',
  'rights',
] as const;

/** One of `checks`: the part of a cluster that a finding is about. */
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

/** All severities, from the most severe to the least severe. */
export const severities: readonly Severity[] = ['blocker', 'warning', 'info'];

/** Returns the kind, name and namespace of an object. A cluster-scoped object has no namespace. */
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

/** The checks whose blockers cannot be overruled: signatures, the allowed bundle, and the version path. */
const trustChecks = ['bundle', 'path', 'signatures'] as const satisfies readonly Check[];

/** The checks whose blockers an administrator can overrule by name. */
export const ignorableChecks: readonly Check[] = checks.filter(
  (check) => !(trustChecks as readonly Check[]).includes(check),
);

/** The findings with the overruled blockers marked, and the names that overrule none. */
interface IgnoredFindings {
  readonly findings: readonly Finding[];
  readonly unused: readonly string[];
}

/**
 * Marks the blockers that an administrator has overruled. A name is a check (`drains`), or a check with an object
 * (`nodes:node/worker-3`, `drains:poddisruptionbudget/shop/web`), whose kind may be absent.
 */
export function ignoreFindings(findings: readonly Finding[], names: readonly string[]): IgnoredFindings {
  const used = new Set<string>();
  const marked = findings.map((finding): Finding => {
    if (finding.severity !== 'blocker') return finding;
    const own = names.filter((name) => isIgnored(finding, [name]));
    for (const name of own) used.add(name);
    return own.length === 0 ? finding : { ...finding, ignored: true };
  });
  return { findings: marked, unused: names.filter((name) => !used.has(name)) };
}

/** Returns whether a name overrules the blockers of a check about a subject. */
export function isIgnored({ check, subject }: Pick<Finding, 'check' | 'subject'>, names: readonly string[]): boolean {
  if (!ignorableChecks.includes(check)) return false;
  return names.some((name) => {
    const [own, object] = splitName(name);
    return own === check && (object === undefined || isNamed(subject, object));
  });
}

/** Returns whether a finding is a blocker that no administrator has overruled. */
export function isOpenBlocker({ severity, ignored }: Finding): boolean {
  return severity === 'blocker' && ignored !== true;
}

/** Returns the word for the severity of a finding: `ignored` for a blocker that is overruled. */
export function severityOf({ severity, ignored }: Finding): string {
  return ignored === true ? 'ignored' : severity;
}

/** Returns the name that overrules a blocker: `drains:poddisruptionbudget/shop/web`; undefined for one of trust. */
export function nameIgnore({ check, subject }: Pick<Finding, 'check' | 'subject'>): string | undefined {
  if (!ignorableChecks.includes(check)) return undefined;
  const { kind, namespace, name } = subject;
  const parts = [kind.toLowerCase(), namespace, name].filter((part) => part !== undefined && part !== '');
  return parts.length < 2 ? check : `${check}:${parts.join('/')}`;
}

/** Checks the name of an overruled blocker. Throws `usage` for an unknown check, and for a check of trust. */
export function requireIgnorable(name: string): void {
  const [check, object] = splitName(name);
  const hint =
    `The checks are ${ignorableChecks.join(', ')}. An object follows a colon: ` +
    'drains:poddisruptionbudget/shop/web.';
  if ((trustChecks as readonly string[]).includes(check))
    throw new PluginError('usage', `findings of ${check} cannot be ignored: they are about trust`, { hint });
  if (!(ignorableChecks as readonly string[]).includes(check) || object === '' || !/^[\x21-\x7e]{0,512}$/.test(name))
    throw new PluginError('usage', `${JSON.stringify(name)} names no check whose findings can be ignored`, { hint });
}

function splitName(name: string): readonly [check: string, object?: string] {
  const at = name.indexOf(':');
  return at < 0 ? [name] : [name.slice(0, at), name.slice(at + 1)];
}

function isNamed({ kind, namespace, name }: Subject, object: string): boolean {
  const inNamespace = namespace === undefined || namespace === '' ? [] : [`${namespace}/${name}`];
  const forms = [name, ...inNamespace].flatMap((each) => [each, `${kind.toLowerCase()}/${each}`]);
  const [first = '', ...rest] = object.split('/');
  return forms.includes(object) || (rest.length > 0 && forms.includes([first.toLowerCase(), ...rest].join('/')));
}

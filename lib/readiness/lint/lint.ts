import { severities, type Severity, formatSubject } from '#cluster/finding';
import { readSmallFile, readDocuments } from '#content/files';
import { takeTurn, type Context } from '#context';
import { PluginError, isPluginError, messageOf } from '#errors';
import { fieldsOf, listOf, type Fields } from '#fields';
import type { ManifestFilter } from '#release/payload';
import { imageReferences, readReleaseImages } from './image.ts';
import { inspectFile, reportUnreadable } from './inspection.ts';
import { keyOfFinding, type LintFinding, type LintState, withoutDigests } from './report.ts';
import { allRules } from './rules.ts';

/** The manifests of a release or of a folder, and where they are from. */
export interface ManifestSet {
  /** The release, the path, or `-`. */
  readonly name: string;
  /** The folder that the names of the files are relative to, if they are on this machine. */
  readonly root?: string;
  /** The folder for its files beside those of other sets; by default the version of the release. */
  readonly folder?: string;
  /** The release image by digest, if it is a release. */
  readonly release?: string;
  /** Chooses the objects of a release that a cluster has. */
  readonly filter?: ManifestFilter;
  /** The texts by the names of the files; the reason for a file that cannot be read. */
  readonly files: ReadonlyMap<string, string | { readonly unreadable: string }>;
}

/** The parts of manifests that need a registry. */
export interface LintReport {
  readonly target: string;
  readonly root: string | undefined;
  /** The version, if it is a release. */
  readonly version: string | undefined;
  /** The number of files, and of objects, scripts and units that were checked. */
  readonly files: number;
  readonly objects: number;
  /** The number of objects that the cluster does not have, such as those of other profiles and feature sets. */
  readonly excluded: number;
  /** The image-references were read: images that the release lacks are among the findings. */
  readonly knowsImages: boolean;
  /** The most severe first. */
  readonly findings: readonly LintFinding[];
}

/** Finds the parts of manifests that need a registry. Throws `too-large` and `interrupted`. */
export async function lintManifests(
  { name, root, release, files, filter }: ManifestSet,
  context: Context,
): Promise<LintReport> {
  const isList = (file: string): boolean => file === imageReferences || file.endsWith(`/${imageReferences}`);
  const lists = [...files].flatMap(([file, text]) => (isList(file) && typeof text === 'string' ? [text] : []));
  const images = readReleaseImages(lists, release);
  const version = release === undefined ? undefined : images?.version;
  const state: LintState = {
    release: images,
    budget: { tokens: 6_000_000, values: 20_000_000, inert: 0 },
    findings: [],
    seen: new WeakSet(),
    filter,
    objects: 0,
    excluded: 0,
  };
  const manifests = [...files].filter(([file]) => !isList(file) && file !== 'release-metadata');
  for (const [file, text] of manifests) {
    const start = state.findings.length;
    if (typeof text === 'string') inspectFile(text, file, state);
    else reportUnreadable(file, text.unreadable, state);
    if (typeof text === 'string' && state.findings.length > start) {
      const lineOf = indexLines(text);
      state.findings.push(...state.findings.splice(start).map((finding) => ({ ...finding, line: lineOf(finding) })));
    }
    await takeTurn(context.signal);
  }
  return {
    target: name,
    root,
    version,
    files: manifests.length,
    objects: state.objects + state.budget.inert,
    excluded: state.excluded,
    knowsImages: images !== undefined,
    findings: sortLintFindings(state.findings),
  };
}

/**
 * Finds the parts of the manifests of several releases and operators that need a registry. The files of each are in its
 * folder. Throws `not-found` for a set in which nothing can be checked, and the errors of lintManifests.
 */
export async function lintSets(sets: readonly ManifestSet[], context: Context): Promise<LintReport> {
  const reports: LintReport[] = [];
  const findings: LintFinding[] = [];
  for (const set of sets) {
    const report = await lintManifests(set, context);
    if (report.objects === 0 && report.findings.length === 0) throw nothingToCheck(set, report);
    const folder = set.folder ?? report.version ?? '';
    reports.push(report);
    findings.push(...report.findings.map((finding) => ({ ...finding, file: `${folder}/${finding.file}` })));
  }
  const [first, ...others] = reports;
  if (!first) throw new PluginError('internal', 'there are no manifests');
  if (others.length === 0) return first;
  const sum = (field: 'files' | 'objects' | 'excluded'): number =>
    reports.reduce((total, report) => total + report[field], 0);
  return {
    target: first.target,
    root: undefined,
    version: reports.flatMap(({ version }) => version ?? []).join(', '),
    files: sum('files'),
    objects: sum('objects'),
    excluded: sum('excluded'),
    knowsImages: first.knowsImages,
    findings: sortLintFindings(findings),
  };
}

function nothingToCheck({ name, folder }: ManifestSet, { files, excluded }: LintReport): PluginError {
  const where = folder === undefined ? name : `${name} (${folder})`;
  const others = excluded > 0 ? `: ${excluded} objects are not for self-managed clusters by default` : '';
  return new PluginError('not-found', `nothing in ${where} can be checked (files: ${files})${others}`, {
    hint: 'Name manifests with kind and apiVersion, machine configurations, scripts or units, or a release.',
  });
}

/** Returns the findings that are at least so severe. */
export function atLeast<F extends LintFinding>(findings: readonly F[], least: Severity): F[] {
  return findings.filter(({ severity }) => severities.indexOf(severity) <= severities.indexOf(least));
}

/** Returns the findings that an earlier release or version of the same manifests does not have. */
function withoutKnown<F extends LintFinding>(findings: readonly F[], earlier: readonly LintFinding[]): F[] {
  const earlierKeys = new Set(earlier.map(keyOfFinding));
  return findings.filter((finding) => !earlierKeys.has(keyOfFinding(finding)));
}

/** By severity, then by rule; each finding once. */
function sortLintFindings(findings: readonly LintFinding[]): LintFinding[] {
  const order = new Map(allRules.map(({ id }, index) => [id, index]));
  const once = new Map(findings.map((finding) => [`${finding.file}\n${keyOfFinding(finding)}`, finding]));
  const rank = ({ severity, rule }: LintFinding): number =>
    severities.indexOf(severity) * order.size + (order.get(rule) ?? 0);
  return [...once.values()].sort((a, b) => rank(a) - rank(b) || (a.file < b.file ? -1 : a.file > b.file ? 1 : 0));
}

/**
 * Returns a function that finds the line of a finding in a file, from 1. It is the line of the field if that is unique
 * in the document, else of the name of the object, else the first.
 */
function indexLines(text: string): (finding: Pick<LintFinding, 'object' | 'field' | 'value'>) => number {
  const numbers = new Map<string, number[]>();
  const starts = [0];
  for (const [index, line] of text.split('\n').entries()) {
    if (/^---(?:\s|$)/.test(line)) starts.push(index);
    const plain = normalizeLine(line);
    const indexes = numbers.get(plain);
    if (indexes) indexes.push(index);
    else numbers.set(plain, [index]);
  }
  return ({ object, field, value }) => {
    const [named = 0] = numbers.get(`name:${object.name}`) ?? [];
    const document = starts.findLastIndex((start) => start <= named);
    const [start = 0, end = Infinity] = starts.slice(document, document + 2);
    const key = /(\w+)$/.exec(field)?.[1] ?? '';
    const lines = (numbers.get(`${key}:${value}`) ?? []).filter((line) => line >= start && line < end);
    return 1 + (lines.length === 1 ? (lines[0] ?? 0) : named);
  };
}

/** Drops indentation, dashes of lists, quotes and commas, so that a field of YAML or JSON is `key:value`. */
function normalizeLine(line: string): string {
  return line.replace(/^[\s-]+|["',\s]/g, '');
}

/** A report, judged by a baseline and by the report of an earlier release. */
export interface LintResult extends LintReport, EvaluatedFindings {
  readonly findings: EvaluatedFindings['findings'];
  /** The target that the findings are compared with. */
  readonly against?: string;
  readonly failOn: 'blocker' | 'warning';
  /** No finding fails. */
  readonly passed: boolean;
  /** The number of findings of at least the severity `failOn` that the baseline does not accept. */
  readonly failing: number;
}

/** Judges a report today. Leaves out the findings that the report `against` has too. */
export function evaluateReport(
  report: LintReport,
  against: LintReport | undefined,
  entries: readonly BaselineEntry[],
  failOn: LintResult['failOn'],
): LintResult {
  const judged = evaluateFindings(report.findings, entries, new Date().toISOString().slice(0, 10));
  const findings = against ? withoutKnown(judged.findings, against.findings) : judged.findings;
  const failing = atLeast(findings, failOn).filter(({ status }) => status !== 'known').length;
  return {
    ...report,
    ...(against && { against: against.target }),
    passed: failing === 0,
    failing,
    failOn,
    findings,
    unused: judged.unused,
  };
}

/** Returns whether a finding makes the result fail. */
export function fails({ failOn }: LintResult, { severity, status }: LintResult['findings'][number]): boolean {
  return status !== 'known' && (severity === 'blocker' || severity === failOn);
}

/** A finding that is known and accepted until a day. */
interface BaselineEntry {
  readonly rule: string;
  /** As arguments of oc: `deployment/router -n openshift-ingress`. */
  readonly object: string;
  readonly field: string;
  /** Without digests, so that it also matches the next release. */
  readonly value: string;
  /** Empty in an entry that was written by this program and not completed yet. */
  readonly reason: string;
  /** The last day, as `2026-12-31`; empty as `reason` is. */
  readonly until: string;
}

/** A finding, and what the baseline says about it. */
interface EvaluatedFinding extends LintFinding {
  /**
   * `expired` and `incomplete` are entries that have no effect: the day is over, or the reason or the day is missing.
   */
  readonly status: 'new' | 'known' | 'expired' | 'incomplete';
  readonly reason?: string;
  readonly until?: string;
}

/** Findings with their status, and the entries of the baseline that match none. */
interface EvaluatedFindings {
  readonly findings: readonly EvaluatedFinding[];
  readonly unused: readonly BaselineEntry[];
}

const baselineLimits = { length: 4 * 1024 * 1024, tokens: 200_000 };
const texts = ['rule', 'object', 'field', 'value', 'reason', 'until'] as const;

/** Reads a baseline. Throws `invalid-file` for a file that is none, and what readSmallFile throws. */
export async function readBaseline(path: string): Promise<BaselineEntry[]> {
  const text = (await readSmallFile(path, baselineLimits.length)).toString('utf8');
  try {
    const [value] = readDocuments(text, baselineLimits).values;
    const { findings } = fieldsOf(value);
    if (!Array.isArray(findings)) throw new SyntaxError('it has no list “findings”');
    return listOf(findings).map(readEntry);
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    throw new PluginError('invalid-file', `${path} is not a baseline: ${messageOf(cause)}`, { cause });
  }
}

function readEntry(fields: Fields, index: number): BaselineEntry {
  const lacking = texts.find((name) => typeof fields[name] !== 'string');
  if (lacking !== undefined) throw new SyntaxError(`finding ${index + 1} has no text “${lacking}”`);
  const { until } = fields;
  if (until !== '' && !/^\d{4}-\d\d-\d\d$/.test(String(until)))
    throw new SyntaxError(`finding ${index + 1} has an end date that is not like 2026-12-31`);
  return Object.fromEntries(texts.map((name) => [name, String(fields[name])])) as Record<
    (typeof texts)[number],
    string
  >;
}

/** Compares findings with a baseline on a day (`2026-11-30`). Each entry counts to the end of its last day. */
function evaluateFindings(
  findings: readonly LintFinding[],
  entries: readonly BaselineEntry[],
  today: string,
): EvaluatedFindings {
  const entriesByKey = new Map(entries.map((entry) => [keyOfEntry(entry), entry]));
  const used = new Set<BaselineEntry>();
  const judged = findings.map((finding): EvaluatedFinding => {
    const entry = entriesByKey.get(keyOfFinding(finding));
    if (!entry) return { ...finding, status: 'new' };
    used.add(entry);
    const { reason, until } = entry;
    if (reason === '' || until === '') return { ...finding, status: 'incomplete' };
    return { ...finding, status: until < today ? 'expired' : 'known', reason, until };
  });
  return { findings: judged, unused: entries.filter((entry) => !used.has(entry)) };
}

/** Makes a baseline of findings: entries that match keep their reason and day, new ones have none yet. */
export function makeBaseline(findings: readonly LintFinding[], entries: readonly BaselineEntry[]): BaselineEntry[] {
  const entriesByKey = new Map(entries.map((entry) => [keyOfEntry(entry), entry]));
  const made = findings.map((finding): [string, BaselineEntry] => {
    const { rule, object, field, value } = finding;
    const fresh = { rule, object: formatSubject(object), field, value: withoutDigests(value), reason: '', until: '' };
    return [keyOfFinding(finding), entriesByKey.get(keyOfFinding(finding)) ?? fresh];
  });
  return [...new Map(made).values()];
}

function keyOfEntry({ rule, object, field, value }: BaselineEntry): string {
  return [rule, object, field, withoutDigests(value)].join('\n');
}

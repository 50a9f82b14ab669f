import { formatSubject } from '#cluster/finding';
import { readSmallFile, readDocuments } from '#content/files';
import { isPluginError, messageOf, PluginError } from '#errors';
import { fieldsOf, listOf, type Fields } from '#fields';
import { atLeast, withoutKnown, type LintReport } from './lint.ts';
import { keyOfFinding, withoutDigests, type LintFinding } from './report.ts';

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

const limits = { length: 4 * 1024 * 1024, tokens: 200_000 };
const texts = ['rule', 'object', 'field', 'value', 'reason', 'until'] as const;

/** Reads a baseline. Throws `invalid-file` for a file that is none, and what readSmallFile throws. */
export async function readBaseline(path: string): Promise<BaselineEntry[]> {
  const text = (await readSmallFile(path, limits.length)).toString('utf8');
  try {
    const [value] = readDocuments(text, limits).values;
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

import { basename, dirname, join } from 'node:path';
import type { Problem } from '#bundle/open';
import type { VerifyReport } from '#bundle/verify';
import { nameSome, PluginError } from '#errors';
import { formatBytes } from '#text';
import { formatCount } from '../../cli/format.ts';

/** The result of a verification in one word. Content that is only absent makes a bundle incomplete. */
export interface Verdict {
  readonly word: 'Verified' | 'Incomplete' | 'FAILED';
  /** What a bundle lacks or why it failed, in a few words; empty for a verified bundle. */
  readonly reason: string;
  /** The problems without the consequences of a missing or corrupt volume. */
  readonly problems: readonly Problem[];
  readonly hint: string | undefined;
}

/** Returns the verdict on a verified bundle, with the problems that decide it. */
export function verdictOf({ base, problems: all }: Pick<VerifyReport, 'base' | 'problems'>): Verdict {
  const volumes = all.filter(({ subject }) => subject === 'volume').filter(isFirst);
  // Without a volume even the keys of the release may be missing.
  const problems = volumes.length === 0 ? all : volumes;
  const [first] = problems;
  if (!first) return { word: 'Verified', reason: '', problems, hint: undefined };
  if (base !== undefined && problems.every(isOfBase)) {
    return { word: 'Incomplete', reason: `needs base ${base}`, problems, hint: first.hint };
  }
  if (volumes.length === problems.length) {
    const isIncomplete = volumes.every(({ kind }) => kind === 'missing' || kind === 'truncated');
    const names = nameSome(volumes.map(({ what }) => what));
    const [count, these] =
      volumes.length === 1 ? ['1 volume', 'this volume'] : [`${volumes.length} volumes`, 'these volumes'];
    // Nothing is read after the end of a volume that is missing or cut short.
    const rest = volumes.some(({ kind }) => kind !== 'corrupt')
      ? 'Then verify the bundle again.'
      : 'The other volumes are good.';
    const hint = `Copy ${these} again: ${names}. ${rest}`;
    return { word: isIncomplete ? 'Incomplete' : 'FAILED', reason: `copy ${count} again`, problems, hint };
  }
  const hint = problems.every((problem) => problem.hint === first.hint) ? first.hint : undefined;
  const reason = formatCount(problems.length, 'problem');
  return { word: 'FAILED', reason, problems, hint };
}

/** Returns the error of a bundle that is not verified. If only the signature is wrong, another copy does not help. */
export function verdictError({ path, base }: VerifyReport, { word, reason, problems, hint }: Verdict): PluginError {
  const message =
    word === 'Incomplete' ? `${path} is incomplete: ${reason}` : `${path} is not a good bundle: ${reason}`;
  const signature = problems.find(({ kind }) => kind === 'unsigned' || kind === 'untrusted');
  if (signature && problems.every(({ subject }) => subject === 'signature')) {
    return new PluginError(signature.kind === 'unsigned' ? 'unsigned' : 'untrusted', message, {
      hint: signature.hint,
      settings: ['signatureStore', 'signatureKeyring', 'trustFingerprint', 'allowUnsigned'],
    });
  }
  return new PluginError('incomplete', message, {
    hint: hint ?? 'Do not use it. Copy it again from where it came from, or create it again.',
    settings: base === undefined || hint === undefined ? [] : ['base'],
  });
}

/**
 * Lists the paths of the files to copy again: the volumes, the manifests and blobs of a directory, or the whole bundle.
 * Empty if another copy would not help, because only the signature is wrong or the base of a delta is missing.
 */
export function listBadFiles({ path, base }: VerifyReport, { problems }: Verdict, isDirectory: boolean): string[] {
  const copied = problems.filter(
    (problem) => problem.subject !== 'signature' && !(base !== undefined && isOfBase(problem)),
  );
  const inFolder = isDirectory ? path : dirname(path);
  const files = copied.flatMap(({ kind, subject, what }) => {
    if (kind === 'unexpected') return [];
    if (subject === 'volume') return [what];
    if (!isDirectory) return [basename(path)];
    return subject === 'blob' || subject === 'manifest' ? [`v2/openshift/release/${subject}s/${what}`] : [what];
  });
  return [...new Set(files)].map((file) => join(inFolder, file));
}

/** Describes what a delta bundle leaves out. `base` is the version of its base release. */
export function describeDelta({ heldBySite }: Pick<VerifyReport, 'heldBySite'>, base: string): string {
  if (!heldBySite) return `to ${base}, whose blobs it leaves out`;
  const { blobs, bytes } = heldBySite;
  return `for a site with ${base}; ${blobs} blobs (${formatBytes(bytes)}) that its nodes have were not checked`;
}

/** Lists the problems as lines. Many problems of one kind become one line. */
export function listProblems({ word, problems, reason }: Verdict, base: string | undefined): string[] {
  if (word === 'Incomplete' && reason.startsWith('needs base')) {
    const count = formatCount(problems.length, 'blob');
    return [describeProblems('missing', `${count} of the base ${base ?? ''}`, [])];
  }
  const groups = Object.values(Object.groupBy(problems, ({ kind, subject }) => `${kind} ${subject}`));
  const lines = groups.flatMap((group) => {
    if (group.length <= 5)
      return group.map((problem) => describeProblems(problem.kind, problem.message, problem.images));
    const [{ kind, subject } = { kind: '', subject: '' }] = group;
    const images = [...new Set(group.flatMap((problem) => problem.images))];
    return [describeProblems(kind, `${group.length} ${subject}s`, images)];
  });
  return lines.length === problems.length ? lines : [...lines, `  (-o json lists all ${problems.length} of them)`];
}

function describeProblems(kind: string, what: string, images: readonly string[]): string {
  const some = images.slice(0, 5).join(', ');
  const others = images.length > 5 ? ` and ${images.length - 5} more images` : '';
  return `  ${kind.padEnd(12)} ${what}${some === '' ? '' : `, needed by ${some}${others}`}`;
}

/** Returns whether a problem is a blob of the base of a delta bundle that was not found. */
function isOfBase({ kind, subject, hint }: Problem): boolean {
  return kind === 'missing' && subject === 'blob' && hint !== undefined;
}

/** Returns whether no earlier problem is about the same volume: one that is cut short is corrupt, too. */
function isFirst({ what }: Problem, index: number, all: readonly Problem[]): boolean {
  return all.findIndex((problem) => problem.what === what) === index;
}

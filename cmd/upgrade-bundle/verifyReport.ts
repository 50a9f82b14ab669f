import type { KeyObject } from 'node:crypto';
import { basename } from 'node:path';
import { signReceipt } from '../../lib/bundle/verify/receipt.ts';
import type { VerifyReport } from '../../lib/bundle/verify/verify.ts';
import { countAttachments } from '../../lib/content/oci/attachment.ts';
import { digestIn } from '../../lib/content/oci/reference.ts';
import type { ExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import type { Problem, ProblemSubject } from '../../lib/bundle/problem.ts';
import { tool } from '../cli/access.ts';
import { formatJunit, type JunitCase } from '../cli/junit.ts';
import type { Accents } from '../cli/colors.ts';
import { listExtraImages, listSkippedImages } from '../cli/bundle/extraImages.ts';
import { formatFields, nameReleases } from '../cli/format.ts';
import { formatBytes } from '../../lib/byteSize.ts';
import { describeStreams } from '../cli/bundle/osImageStreams.ts';
import { describeDelta, listProblems, verdictOf } from './report/verdict.ts';
import { describePolicies, toPlainPolicies } from '../cli/trust.ts';
import { Lines } from '../../lib/lines.ts';

/** The colors of verdicts and problems. */
export const verdictAccents = {
  ...{ Verified: 'good', Incomplete: 'doubtful', FAILED: 'bad' },
  ...{ missing: 'bad', truncated: 'bad', corrupt: 'bad', unexpected: 'bad', inconsistent: 'bad' },
  ...{ unsigned: 'bad', untrusted: 'bad' },
} as const satisfies Accents;

/** Returns the report as a signed statement about the bundle and its release. */
export function toReceipt(report: PlainVerified, key: KeyObject): string {
  const { path, digest } = report;
  const releases = (report.releases ?? [report]).map((each) => [each.release, digestIn(each.release)] as const);
  const subjects = [...(digest === undefined ? [] : [[basename(path), digest] as const]), ...releases];
  const subject = subjects.map(([name, of]) => ({ name, digest: { sha256: of.replace('sha256:', '') } }));
  const predicate = { date: new Date().toISOString(), tool, ...report };
  return signReceipt({ subject, predicate }, key).trimEnd();
}

/** Returns the result of `verify` as plain data. */
export function toPlainVerified({ signatures, policies, provenance, ...report }: VerifyReport, keys: ExpectedKeys) {
  return {
    good: report.problems.length === 0,
    verdict: verdictOf(report).word.toLowerCase(),
    ...report,
    ...(provenance && { provenance: { ...provenance, sources: Object.fromEntries(provenance.sources) } }),
    signatures: signatures.map(({ digest, fingerprint, userId: signer, created }) => {
      return { digest, fingerprint, signer, created };
    }),
    sigstore: toPlainPolicies(policies, keys),
  };
}

type PlainVerified = ReturnType<typeof toPlainVerified>;

function describeChanges({ changes }: PlainVerified): string[][] {
  if (!changes) return [];
  const kinds = Map.groupBy(changes.images, ({ kind }) => kind);
  const counts = [...kinds].map(([kind, images]) => `${images.length} ${kind}`);
  counts.push(`${changes.unchanged} unchanged`);
  return [['Changes', `since ${changes.version}: ${counts.join(', ')}`]];
}

/** The parts of a bundle, in the order of their checks. */
const subjects: readonly ProblemSubject[] = [
  ...(['bundle', 'volume', 'metadata', 'signature', 'manifest', 'blob', 'tag', 'file'] as const),
];

/** Formats the result of `verify` as JUnit XML: a case for each part of the bundle, and one for each image. */
export function formatVerifyJunit(report: VerifyReport): string {
  const { path, contents } = report;
  const { problems } = verdictOf(report);
  const describe = (own: readonly Problem[]): JunitCase['failure'] => {
    const [first] = own;
    return first && { type: first.kind, message: first.message, details: own.map(({ message }) => message).join('\n') };
  };
  const parts = subjects.map((subject): JunitCase => {
    const failure = describe(problems.filter((problem) => problem.subject === subject));
    return { classname: 'bundle', name: subject, time: 0, failure };
  });
  const images = contents.map(({ digest, names, isWhole }): JunitCase => {
    const failure = isWhole ? undefined : { type: 'incomplete', message: `${digest} is incomplete` };
    return { classname: 'image', name: names[0] ?? digest, time: 0, failure, output: digest };
  });
  const suites = [
    { name: 'bundle', time: 0, cases: parts },
    { name: 'images', time: 0, cases: images },
  ];
  return formatJunit(`verify ${path}`, suites);
}

/** Formats the result of `verify` for a person. */
export function formatVerified(report: PlainVerified): Lines {
  const { path, arch, release, releases = [], digest, confirmedBy, images, attachmentTags, manifests, blobs } = report;
  const verdict = verdictOf(report);
  const all = images.whole === images.expected;
  const signers = report.signatures
    .filter(({ digest: signed }) => [release, ...releases.map((each) => each.release)].map(digestIn).includes(signed))
    .map(
      ({ signer, fingerprint, created }) => `${signer}, key ${fingerprint}, on ${created.toISOString().slice(0, 10)}`,
    );
  const others = report.signatures.length - signers.length;
  const [first = 'no trusted key', ...more] = new Set(signers);
  const rows = [
    ['Release', `${nameReleases(report)} ${arch}`],
    ...(report.releases ?? [report]).map((each) => ['', each.release]),
    ['Signed by', first],
    ...more.map((signer) => ['', signer]),
    ...(others > 0 ? [['', `and ${others} of its images`]] : []),
    ...describePolicies(report.sigstore),
    ['Images', `${all ? `all ${images.expected} are` : `${images.whole} of ${images.expected} are`} complete`],
    ['Content', `${blobs} blobs, ${manifests} manifests, among them ${countAttachments(attachmentTags)}`],
    ...listExtraImages(report.extraImages),
    ...listSkippedImages(report.skippedImages),
    ...(report.base === undefined ? [] : [['Delta', describeDelta(report, report.base)]]),
    ...describeChanges(report),
    ...describeStreams(report.osImageStreams),
    ['Read', formatBytes(report.bytes)],
    ...(report.volumes.length > 0 ? [['Volumes', String(report.volumes.length)]] : []),
    ...(digest === undefined ? [] : [['Digest', digest]]),
    ...confirmedBy.map((source) => ['', `matches ${source}`]),
  ];
  return new Lines(
    `${verdict.word}: ${path}`,
    formatFields(rows),
    ...(verdict.word === 'Verified' ? [] : ['', ...listProblems(verdict, report.base)]),
  );
}

import type { KeyObject } from 'node:crypto';
import { basename } from 'node:path';
import { findDigest, addBases, openBundle, type Problem, type ProblemSubject } from '#bundle/open';
import { verifyBundle, type ExpectedDigest, type VerifyReport, readSigningKey, signReceipt } from '#bundle/verify';
import { countAttachments, digestIn } from '#content/oci';
import { PluginError } from '#errors';
import { listOtherKeys, loadExpectedKeys, type ExpectedKeys } from '#release/sigstore';
import { Lines, formatBytes } from '#text';
import { openRegistries, tool } from '../cli/access.ts';
import { warnOfRisksIn, listExtraImages, listSkippedImages, describeStreams } from '../cli/bundleFacts.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatFields, nameReleases } from '../cli/format.ts';
import { formatJunit, type JunitCase } from '../cli/junit.ts';
import {
  baseOption,
  bundleArgument,
  outputOption,
  policyKeyOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../cli/options.ts';
import type { Accents } from '../cli/terminal.ts';
import { trustOf, describePolicies, toPlainPolicies } from '../cli/trust.ts';
import { digestOption, readDigest } from '../cli/values.ts';
import { formatAudit } from './report/auditPage.ts';
import { listBadFiles, verdictError, verdictOf, describeDelta, listProblems } from './report/verdict.ts';

const { 'certificate-authority': authority, insecure } = registryOptions;

const options = {
  digest: digestOption('Expected digest of the whole file (sha256:<64 hex digits>)'),
  sha256: {
    type: 'string',
    describe: 'File in the format of sha256sum with the expected digest of the whole file',
    suggest: 'files',
  },
  ...baseOption,
  ...outputOption('junit', 'html'),
  'list-bad': { type: 'boolean', describe: 'Print only the files to copy again, one on each line' },
  'sign-key': {
    type: 'string',
    describe: 'PEM file with a private key: with -o json, print a receipt, a signed in-toto statement',
    suggest: 'files',
  },
  'certificate-authority': authority,
  insecure,
  ...trustOptions,
  ...policyKeyOption,
  ...signedImagesOption,
} as const;

/** `verify`: checks a bundle from its signature to its last blob. */
export const command = defineCommand({
  details:
    'Reads everything once, in place, from the signature of the release to the last blob, and names each file that ' +
    'is missing, truncated, corrupt or unexpected. Uses no network unless --signature-store names one. A .sha256 ' +
    'file beside the bundle is compared too. The exit code is 0 for a good bundle, and 1 for any other.',
  positionals: bundleArgument,
  options,
  examples: [
    ['upgrade-4.20.3-x86_64.tar', 'Check a bundle'],
    ['/dev/sdb --sha256=upgrade-4.20.3-x86_64.tar.sha256', 'Check a bundle on a USB drive, in place'],
    ['upgrade-4.20.3-x86_64.tar --list-bad', 'Print the volumes to copy again'],
    ['upgrade-4.20.3-x86_64.tar -o json', 'Print every problem as JSON'],
    ['upgrade-4.20.3-x86_64.tar -o junit > verify.xml', 'Write a report for a pipeline'],
    ['upgrade-4.20.3-x86_64.tar -o html > audit.html', 'Write a page for an auditor'],
    ['upgrade-4.20.3-x86_64.tar -o json --sign-key=key.pem > receipt.json', 'Write a signed report'],
  ],
  async run(args, { context, terminal, environment }) {
    if (args.signKey !== undefined && args.output !== 'json') {
      throw new PluginError('usage', '--sign-key needs -o json');
    }
    if (args.listBad && args.output !== undefined) throw new PluginError('usage', '--list-bad excludes -o');
    const signKey = args.signKey === undefined ? undefined : await readSigningKey(args.signKey);
    const expectedKeys = await loadExpectedKeys(args.trustKey);
    const reading = { ...context, onEvent: terminal.transfer('Verifying') };
    await using bundle = await addBases(await openBundle(args.bundle, reading, { tolerant: true }), args.base, reading);
    await using registries = await openRegistries(args, environment, reading);
    const expected = await readExpected(args, bundle.path);
    if (bundle.form === 'directory' && expected.length > 0) {
      throw new PluginError('usage', `${args.bundle} is a directory, which has no digest to compare`);
    }
    const trust = { ...trustOf(args), fetchFile: registries.fetchFile };
    const report = await verifyBundle(bundle, { trust, expected }, reading);
    const verified = toPlainVerified(report, expectedKeys);
    const forms = {
      words: () => formatVerified(verified),
      junit: () => Lines.split(formatVerifyJunit(report).trimEnd()),
      html: () => Lines.split(formatAudit(report, { date: new Date(), tool, keys: expectedKeys })),
    };
    const verdict = verdictOf(report);
    if (args.listBad)
      for (const file of listBadFiles(report, verdict, bundle.form === 'directory')) terminal.print(file);
    else if (signKey) terminal.print(Lines.split(toReceipt(verified, signKey)));
    else await terminal.printResult(args.output, verified, forms, verdictAccents);
    for (const text of listOtherKeys(report.policies, expectedKeys)) context.log('warn', text);
    for (const { message } of report.warnings) context.log('warn', message);
    warnOfRisksIn(bundle.metadata, context);
    if (verdict.word !== 'Verified') throw verdictError(report, verdict);
  },
});

async function readExpected(
  { digest, sha256 }: Pick<Arguments<typeof options>, 'digest' | 'sha256'>,
  bundle: string,
): Promise<ExpectedDigest[]> {
  return [
    ...(digest === undefined ? [] : [{ digest: readDigest(digest), source: '--digest' }]),
    ...(sha256 === undefined ? [] : [{ digest: await findDigest(sha256, bundle), source: sha256 }]),
  ];
}

/** The colors of verdicts and problems. */
const verdictAccents = {
  Verified: 'good',
  Incomplete: 'doubtful',
  FAILED: 'bad',
  missing: 'bad',
  truncated: 'bad',
  corrupt: 'bad',
  unexpected: 'bad',
  inconsistent: 'bad',
  unsigned: 'bad',
  untrusted: 'bad',
} as const satisfies Accents;

/** Returns the report as a signed statement about the bundle and its release. */
function toReceipt(report: PlainVerified, key: KeyObject): string {
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
  'bundle',
  'volume',
  'metadata',
  'signature',
  'manifest',
  'blob',
  'tag',
  'file',
];

/** Formats the result of `verify` as JUnit XML: a case for each part of the bundle, and one for each image. */
function formatVerifyJunit(report: VerifyReport): string {
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

import type { KeyObject } from 'node:crypto';
import { basename } from 'node:path';
import { countAttachments } from '../../lib/oci/attachment.ts';
import { listProblems, verdictError, verdictOf } from './report/verdict.ts';
import { describePolicies, toPlainPolicies } from './policies.ts';
import { addBases } from '../../lib/bundle/complete.ts';
import { openBundle } from '../../lib/bundle/open.ts';
import { findDigest } from '../../lib/bundle/sidecars.ts';
import { readSigningKey, signReceipt } from '../../lib/bundle/verify/receipt.ts';
import { verifyBundle, type ExpectedDigest, type VerifyReport } from '../../lib/bundle/verify/verify.ts';
import { PluginError } from '../../lib/errors.ts';
import { digestIn } from '../../lib/oci/reference.ts';
import { loadExpectedKeys, warnOfOtherKeys, type ExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import { Registries } from '../../lib/registry/registries.ts';
import { openAccess, tool } from '../cli/access.ts';
import { formatAudit } from './report/auditReport.ts';
import { checkFile, readDigest } from '../cli/checks.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import type { Accents } from '../cli/colors.ts';
import { formatBytes, formatFields } from '../cli/format.ts';
import {
  baseOption,
  bundleArgument,
  outputOption,
  policyKeyOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../cli/options.ts';
import { listExtraImages } from '../cli/extraImages.ts';
import { fetcherOf, trustOf } from '../cli/trust.ts';

const { 'certificate-authority': authority, insecure } = registryOptions;

const options = {
  digest: { type: 'string', describe: 'The digest that the whole file must have (sha256:<64 hex digits>)' },
  sha256: {
    type: 'string',
    describe: 'File of sha256sum with the digest that the whole file must have',
    suggest: 'files',
  },
  ...baseOption,
  ...outputOption(['json', 'html']),
  'sign-key': {
    type: 'string',
    describe: 'PEM file with a private key: with -o json, print a receipt, a signed in-toto statement',
    suggest: 'files',
    check: checkFile,
  },
  'certificate-authority': authority,
  insecure,
  ...trustOptions,
  ...policyKeyOption,
  ...signedImagesOption,
} as const;

const accents = {
  ...{ Verified: 'good', Incomplete: 'doubtful', FAILED: 'bad' },
  ...{ missing: 'bad', truncated: 'bad', corrupt: 'bad', unexpected: 'bad', inconsistent: 'bad' },
  ...{ unsigned: 'bad', untrusted: 'bad' },
} as const satisfies Accents;

/** `verify`: checks a bundle from its signature to its last blob. */
export const command = defineCommand({
  details:
    'Reads everything once, in place, from the signature of the release to the last blob, and names each file that is missing, ' +
    'truncated, corrupt or unexpected. Uses no network unless --signature-store names one. A .sha256 file beside the bundle is ' +
    'compared too. The exit code is 0 for a good bundle, and 1 for any other.',
  positionals: bundleArgument,
  options,
  examples: [
    ['upgrade-4.20.3-x86_64.tar', 'Check a bundle'],
    ['/dev/sdb --sha256=upgrade-4.20.3-x86_64.tar.sha256', 'Check a bundle on a USB drive, in place'],
    ['upgrade-4.20.3-x86_64.tar -o json', 'List every single problem, for a script'],
    ['upgrade-4.20.3-x86_64.tar -o html > audit.html', 'Write a page for an auditor'],
    ['upgrade-4.20.3-x86_64.tar -o json --sign-key=key.pem > receipt.json', 'Write a signed report'],
  ],
  async run(args, { context, terminal, environment }) {
    if (args.signKey !== undefined && args.output !== 'json') {
      throw new PluginError('usage', '--sign-key needs -o json');
    }
    const signKey = args.signKey === undefined ? undefined : await readSigningKey(args.signKey);
    const expectedKeys = await loadExpectedKeys(args.trustKey);
    const reading = { ...context, onEvent: terminal.transfer('Verifying') };
    const bundle = await addBases(await openBundle(args.bundle, reading, { tolerant: true }), args.base, reading);
    const registries = new Registries(await openAccess(args, environment), reading);
    try {
      const expected = await readExpected(args, bundle.path);
      if (bundle.form === 'directory' && expected.length > 0) {
        throw new PluginError('usage', `${args.bundle} is a directory, which has no digest to compare`);
      }
      const trust = { ...trustOf(args), fetchFile: fetcherOf(registries.connections, reading) };
      const report = await verifyBundle(bundle, { trust, expected }, reading);
      const words = args.output === undefined ? accents : undefined;
      const text = signKey ? toReceipt(report, expectedKeys, signKey) : format(report, expectedKeys, args.output);
      terminal.print(text, words);
      warnOfOtherKeys(report.policies, expectedKeys, context);
      for (const { message } of report.warnings) context.log('warn', message);
      const verdict = verdictOf(report);
      if (verdict.word !== 'Verified') throw verdictError(report, verdict);
    } finally {
      await bundle.close();
      await registries.close();
    }
  },
});

function format(report: VerifyReport, keys: ExpectedKeys, form: 'json' | 'html' | undefined): string {
  if (form === 'html') return formatAudit(report, { date: new Date(), tool, keys }).trimEnd();
  return form === 'json' ? JSON.stringify(toPlain(report, keys), null, 2) : toWords(report, keys);
}

/** Returns the report as a signed statement about the bundle and its release. */
function toReceipt(report: VerifyReport, keys: ExpectedKeys, key: KeyObject): string {
  const { path, digest, release } = report;
  const subjects = [...(digest === undefined ? [] : [[basename(path), digest] as const]), [release, digestIn(release)]];
  const subject = subjects.map(([name = '', of = '']) => ({ name, digest: { sha256: of.replace('sha256:', '') } }));
  const predicate = { date: new Date().toISOString(), tool, ...toPlain(report, keys) };
  return signReceipt({ subject, predicate }, key).trimEnd();
}

async function readExpected(
  { digest, sha256 }: Pick<Arguments<typeof options>, 'digest' | 'sha256'>,
  bundle: string,
): Promise<ExpectedDigest[]> {
  return [
    ...(digest === undefined ? [] : [{ digest: readDigest(digest), source: '--digest' }]),
    ...(sha256 === undefined ? [] : [{ digest: await findDigest(sha256, bundle), source: sha256 }]),
  ];
}

function toPlain(
  { signatures, policies, provenance, ...report }: VerifyReport,
  keys: ExpectedKeys,
): Record<string, unknown> {
  const signers = signatures.map(({ digest, fingerprint, userId, created }) => ({
    digest,
    fingerprint,
    signer: userId,
    created,
  }));
  return {
    good: report.problems.length === 0,
    verdict: verdictOf(report).word.toLowerCase(),
    ...report,
    ...(provenance && { provenance: { ...provenance, sources: Object.fromEntries(provenance.sources) } }),
    signatures: signers,
    sigstore: toPlainPolicies(policies, keys),
  };
}

function toWords(report: VerifyReport, keys: ExpectedKeys): string {
  const { path, version, arch, release, digest, confirmedBy, images, attachmentTags, manifests, blobs } = report;
  const verdict = verdictOf(report);
  const all = images.whole === images.expected;
  const signers = report.signatures
    .filter((signature) => release.endsWith(signature.digest))
    .map(
      ({ userId, fingerprint, created }) => `${userId}, key ${fingerprint}, on ${created.toISOString().slice(0, 10)}`,
    );
  const others = report.signatures.length - signers.length;
  const rows = [
    ['Release', `${version} ${arch}`],
    ['', release],
    ['Signed by', signers[0] ?? 'no trusted key'],
    ...signers.slice(1).map((signer) => ['', signer]),
    ...(others > 0 ? [['', `and so are ${others} of the images in it`]] : []),
    ...describePolicies(report.policies, keys),
    ['Images', `${all ? `all ${images.expected} are` : `${images.whole} of ${images.expected} are`} whole`],
    ['Content', `${blobs} blobs, ${manifests} manifests, among them ${countAttachments(attachmentTags)}`],
    ...listExtraImages(report.extraImages),
    ...(report.base === undefined ? [] : [['Delta', `to ${report.base}, whose blobs it leaves out`]]),
    ['Read', formatBytes(report.bytes)],
    ...(report.volumes.length > 0 ? [['Volumes', String(report.volumes.length)]] : []),
    ...(digest === undefined ? [] : [['Digest', digest]]),
    ...confirmedBy.map((source) => ['', `as ${source} says`]),
  ];
  return [
    `${verdict.word}: ${path}`,
    formatFields(rows),
    ...(verdict.word === 'Verified' ? [] : ['', ...listProblems(verdict, report.base)]),
  ].join('\n');
}

import { findDigest } from '../../lib/bundle/sidecars.ts';
import { verifyBundle, type ExpectedDigest } from '../../lib/bundle/verify/verify.ts';
import { PluginError } from '../../lib/errors.ts';
import { digestOption, readDigest } from '../cli/values/checks.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import {
  baseOption,
  bundleArgument,
  outputOption,
  policyKeyOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../cli/options.ts';
import { Lines } from '../../lib/lines.ts';
import { toPlainVerified, toReceipt, formatVerified, formatVerifyJunit, verdictAccents } from './verifyReport.ts';
import { listBadFiles, verdictError, verdictOf } from './report/verdict.ts';
import { addBases } from '../../lib/bundle/deltaBase.ts';
import { openBundle } from '../../lib/bundle/open.ts';
import { readSigningKey } from '../../lib/bundle/verify/receipt.ts';
import { listOtherKeys, loadExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import { openRegistries, tool } from '../cli/access.ts';
import { warnOfRisksIn } from '../cli/bundle/claimedRisks.ts';
import { trustOf } from '../cli/trust.ts';
import { formatAudit } from './report/auditReport.ts';

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
    'Reads everything once, in place, from the signature of the release to the last blob, and names each file that is missing, ' +
    'truncated, corrupt or unexpected. Uses no network unless --signature-store names one. A .sha256 file beside the bundle is ' +
    'compared too. The exit code is 0 for a good bundle, and 1 for any other.',
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

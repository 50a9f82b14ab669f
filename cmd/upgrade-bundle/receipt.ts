import { openReceipt, type ReceiptStatement } from '#bundle/verify';
import { PluginError } from '#errors';
import { Lines } from '#text';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatFields } from '../cli/format.ts';
import { outputOption } from '../cli/options.ts';
import { digestOption, readDigest } from '../cli/values.ts';

const options = {
  key: {
    type: 'string',
    required: true,
    describe: 'PEM file with the public key of the person who verified the bundle',
    suggest: 'files',
  },
  digest: digestOption('Expected digest of the bundle or release (sha256:<64 hex digits>)'),
  ...outputOption(),
} as const;

const positionals = {
  verify: { type: 'string', describe: 'The word verify, which may be left out', suggest: 'paths' },
  file: { type: 'string', describe: 'Receipt that verify --sign-key wrote', suggest: 'paths' },
} as const;

/** `receipt`: checks the signed report of a verification. */
export const command = defineCommand({
  details:
    'Checks the signature of a receipt, and that the bundle was good when it was verified. Does not read the bundle: ' +
    'compare the digest that is printed, or give the expected one with --digest. The exit code is 1 for a receipt of ' +
    'a bundle with problems.',
  positionals,
  options,
  examples: [
    ['receipt.json --key=auditor.pub', 'Check a receipt'],
    ['receipt.json --key=auditor.pub --digest=sha256:…', 'Check the receipt of a bundle with this digest'],
  ],
  async run(args, { terminal }) {
    const file = fileOf(args);
    const digest = args.digest === undefined ? undefined : readDigest(args.digest);
    const receipt = await openReceipt(file, args.key);
    if (digest !== undefined && !receipt.subject.some(({ digest: { sha256 } }) => digest === `sha256:${sha256}`)) {
      throw new PluginError('untrusted', `${file} is not about ${digest}`, {
        hint: 'Get the receipt of this bundle, or verify the bundle itself.',
      });
    }
    await terminal.printResult(args.output, receipt, toWords(file, receipt));
    if (receipt.predicate['good'] !== true) {
      throw new PluginError('incomplete', `${file} is about a bundle with problems`, {
        hint: 'Do not use the bundle.',
      });
    }
  },
});

function fileOf({ verify, file = verify }: Arguments<typeof positionals>): string {
  if (file === undefined) throw new PluginError('usage', '<file> is missing');
  if (file === verify || verify === 'verify') return file;
  throw new PluginError('usage', `“${file}” is one argument too many`);
}

function toWords(file: string, { subject, predicate }: ReceiptStatement): Lines {
  const isGood = predicate['good'] === true;
  const rows = [
    ['Release', `${plain(predicate['version'])} ${plain(predicate['arch'])}`],
    ...subject.map(({ name, digest }) => ['About', `${plain(name)}, sha256:${digest.sha256}`]),
    ['Verified', `on ${plain(predicate['date'])}, by ${plain(predicate['tool'])}`],
  ];
  return new Lines(`${isGood ? 'Genuine' : 'Genuine, about a FAILED verification'}: ${file}`, formatFields(rows));
}

/** The signer is trusted, but a terminal gets no control characters from a file. */
function plain(value: unknown): string {
  return typeof value === 'string' ? value.replace(/\p{Cc}/gu, '\u{fffd}') : '?';
}

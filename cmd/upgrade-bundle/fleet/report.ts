import { basename, dirname, join } from 'node:path';
import { PluginError } from '../../../lib/errors.ts';
import { Lines } from '../../../lib/lines.ts';
import {
  findReports,
  readReportKeyFile,
  type FoundReport,
  type ReportTrust,
} from '../../../lib/update/report/reportFiles.ts';
import { summarizeFleet } from '../../../lib/update/report/fleet.ts';
import { makeFolders } from '../../../lib/content/files/disk.ts';
import { OpenedFolder } from '../../../lib/content/files/openedFolder.ts';
import { writeDurably } from '../../../lib/content/files/atomicWrite.ts';
import { nameUpdateReport } from '../../../lib/config/updateReport.ts';
import { defineCommand, type CommandSession } from '../../cli/command.ts';
import { formatCount } from '../../cli/format.ts';
import { outputOption } from '../../cli/options.ts';
import { formatFleetPage } from '../report/fleetPage.ts';
import { tool } from '../../cli/access.ts';
import { formatFleet, formatFleetCsv } from './fleetText.ts';
import { formatUpdateReport } from './reportText.ts';

const options = {
  key: {
    type: 'string',
    repeatable: true,
    describe: 'Public key of a cluster in PEM form, or its report of preflight --export, which has the key',
    suggest: 'files',
  },
  'decryption-key': {
    type: 'string',
    describe: 'OpenPGP private key without a passphrase, for reports that are encrypted to it',
    suggest: 'files',
  },
  'dest-dir': {
    type: 'string',
    describe: 'With show, also write each report, and what it gathered, as files into this folder',
    suggest: 'folders',
  },
  ...outputOption('csv', 'html'),
} as const;

/** `report`: shows the reports that drives bring back from sites. */
export const command = defineCommand({
  details:
    'Checks and shows the reports that agents write onto a drive (install --reports=allow). The action show takes a file, a drive, a ' +
    'partition or a folder, and shows the newest report. The action list takes a folder with reports of many sites, and prints one line ' +
    'for each cluster. A file that cannot be used is a line with its problem. The signature proves which installation made a report, if ' +
    'its key is given. It does not prove that no newer report was withheld: compare its number and its time. The formats csv and html ' +
    'are for list.',
  positionals: {
    action: {
      type: 'string',
      required: true,
      choices: ['show', 'list'],
      describe: 'Whether to show one report, or to list those of a fleet',
    },
    path: { type: 'string', required: true, describe: 'File, folder or device with reports', suggest: 'paths' },
  },
  options,
  examples: [
    ['show /dev/sdb --key=site.json', 'Check and show the report on a drive'],
    ['show /media/OCPRPT --dest-dir=reports', 'Also keep the reports of a drive as files'],
    ['list reports', 'Show a fleet, a line for each cluster'],
    ['list reports -o html > fleet.html', 'Write one page about a fleet'],
  ],
  async run(args, session) {
    const keys = await Promise.all(args.key.map((file) => readReportKeyFile(file)));
    const trust: ReportTrust = { keys, decryptionKey: args.decryptionKey };
    const found = findReports(args.path, trust, session.context);
    if (args.action === 'list') await printFleet(found, args.output, session);
    else await printReport(found, { ...args, keys }, session);
  },
});

async function printFleet(
  found: AsyncIterable<FoundReport>,
  output: 'json' | 'yaml' | 'csv' | 'html' | undefined,
  { terminal }: CommandSession,
): Promise<void> {
  const now = new Date();
  const clusters = await summarizeFleet(found, now.getTime());
  const forms = {
    words: () => formatFleet(clusters, terminal.width),
    csv: () => formatFleetCsv(clusters),
    html: () => Lines.split(formatFleetPage(clusters, { date: now, tool })),
  };
  await terminal.printResult(output, { clusters }, forms);
}

interface ShowArguments {
  readonly path: string;
  readonly destDir: string | undefined;
  readonly output: 'json' | 'yaml' | 'csv' | 'html' | undefined;
  readonly keys: readonly { readonly fingerprint: string; readonly since?: string }[];
}

async function printReport(
  reports: AsyncIterable<FoundReport>,
  { path, destDir, output, keys }: ShowArguments,
  { terminal, context }: CommandSession,
): Promise<void> {
  if (output === 'csv' || output === 'html')
    throw new PluginError('usage', `report show prints words, json or yaml, and report list also ${output}`);
  const found: FoundReport[] = [];
  for await (const each of reports) {
    found.push(each);
    // A fleet may have more than fits into memory.
    if (found.length > 300)
      throw new PluginError('usage', `${path} has many reports, and show is for one`, { hint: 'Use: report list.' });
  }
  const timeOf = ({ opened }: FoundReport): number => Date.parse(opened?.report.created ?? '');
  const [newest] = found.filter(({ opened }) => opened).toSorted((a, b) => timeOf(b) - timeOf(a));
  const problems = found.flatMap(({ problem }) => problem ?? []);
  if (!newest?.opened) {
    const [first] = problems;
    if (first) throw first;
    throw new PluginError('not-found', `${path} has no report`, {
      hint: 'The agent writes it while the drive is plugged in: install with reports allowed, and wait a minute.',
    });
  }
  for (const { message } of problems) context.log('warn', message);
  const { report, signer, trusted } = newest.opened;
  const since = keys.find(({ fingerprint }) => fingerprint === signer)?.since;
  if (since !== undefined && Date.parse(report.created) < Date.parse(since))
    context.log('warn', `the report is older than the report of the site that has its key (${since})`);
  const others = found.filter((each) => each.opened && each !== newest);
  if (destDir !== undefined) await writeReports(found, destDir, context.log);
  const age = Math.round((Date.now() - Date.parse(report.created)) / 1000);
  const result = { file: newest.where, signer, trusted, age, others: others.map(({ where }) => where), report };
  await terminal.printResult(output, result, formatUpdateReport(newest.where, newest.opened, others.length));
}

const gatheredPath = /^(?:[\w%][\w.%-]{0,250}\/){0,4}[\w%][\w.%-]{0,250}$/;

/** Writes reports as files, with the files that they gathered beside them. Existing files stay. */
async function writeReports(
  found: readonly FoundReport[],
  folder: string,
  log: CommandSession['context']['log'],
): Promise<void> {
  await makeFolders(folder, 0o755);
  let count = 0;
  for (const { opened, envelope } of found) {
    if (!opened || !envelope) continue;
    const name = nameUpdateReport(opened.report);
    await using place = await OpenedFolder.open(folder);
    await writeDurably(place.at(name), envelope, { mode: 0o600 });
    count += 1;
    for (const { path, content } of opened.report.gathered ?? []) {
      if (!gatheredPath.test(path)) continue;
      await using own = await OpenedFolder.open(folder, join(name.replace(/\.json$/, ''), dirname(path)), true);
      await writeDurably(own.at(basename(path)), content, { mode: 0o600 });
    }
  }
  log('info', `wrote ${formatCount(count, 'report')} to ${folder}`);
}

import { basename, dirname, join } from 'node:path';
import { nameUpdateReport, type OpenedReport } from '#config/updateReport';
import { makeFolders, OpenedFolder, writeDurably } from '#content/files';
import { PluginError } from '#errors';
import { Lines, toLine, formatBytes, joinParagraphs, listBelow } from '#text';
import {
  findReports,
  readReportKeyFile,
  type FoundReport,
  type ReportTrust,
  summarizeFleet,
  type FleetMember,
  lastUpdateOf,
  listSiteProblems,
} from '#update/report';
import { tool } from '../cli/access.ts';
import { defineCommand, type CommandSession } from '../cli/command.ts';
import { formatCount, formatDuration, formatTable, formatFields } from '../cli/format.ts';
import { outputOption } from '../cli/options.ts';
import { formatFleetPage } from './report/findingsPage.ts';

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
    'Checks and shows the reports that agents write onto a drive (install --reports=allow). The action show takes a ' +
    'file, a drive, a partition or a folder, and shows the newest report. The action list takes a folder with ' +
    'reports of many sites, and prints one line for each cluster. A file that cannot be used is a line with its ' +
    'problem. The signature proves which installation made a report, if its key is given. It does not prove that no ' +
    'newer report was withheld: compare its number and its time. The formats csv and html are for list.',
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

/** The age from which a report is called old, in seconds. */
const old = 90 * 86_400;

/** Formats a fleet as a table with a line for each cluster. `width` is that of the terminal, in characters. */
function formatFleet(members: readonly FleetMember[], width: number): Lines {
  const usable = members.filter(({ cluster }) => cluster !== undefined);
  const broken = members.length - usable.length;
  const unusable = broken > 0 ? `, and ${formatCount(broken, 'file')} that cannot be used` : '';
  const title = `${formatCount(usable.length, 'cluster')}${unusable}`;
  if (members.length === 0)
    return new Lines(
      'There are no reports: files are read whose names begin with update-report, or end with .json, .gpg, ' +
        '.pgp, .asc or .img.',
    );
  const heads = ['CLUSTER', 'VERSION', 'LAST UPDATE', 'DURATION', 'FREE', 'AGE', 'KEY', 'PROBLEMS'];
  return new Lines(title, '', formatTable([heads, ...members.map(formatMember)], [], width));
}

function formatMember(member: FleetMember): string[] {
  const { file, cluster, version = '-', update, free, age = 0, problems, trusted, signer = '' } = member;
  if (cluster === undefined) return [file, '-', '-', '-', '-', '-', '-', problems.join('; ')];
  const [first = '', ...others] = problems;
  return [
    cluster,
    version,
    update ? `${update.version} ${update.phase} ${update.ended?.slice(0, 10) ?? ''}`.trim() : '-',
    update?.duration === undefined ? '-' : formatDuration(update.duration),
    free === undefined ? '-' : formatBytes(free),
    `${formatAge(age)}${age > old ? ', old' : ''}`,
    trusted ? 'trusted' : `claimed ${signer.slice(0, 12)}`,
    others.length > 0 ? `${first} (and ${others.length} more)` : first,
  ];
}

/** Formats a fleet as CSV (RFC 4180). */
function formatFleetCsv(members: readonly FleetMember[]): Lines {
  const heads = ['cluster', 'version', 'nodes', 'update', 'phase', 'started', 'ended', 'duration', 'free', 'created'];
  const more = ['sequence', 'age', 'signer', 'trusted', 'file', 'problems'];
  const rows = members.map(
    ({ cluster, version, nodes, update = {}, free, created, sequence, age, signer, trusted, file, problems }) => {
      const { version: to, phase, started, ended, duration } = update as Partial<NonNullable<FleetMember['update']>>;
      const own = [cluster, version, nodes, to, phase, started, ended, duration, free, created];
      return [...own, sequence, age, signer, trusted, file, problems.join('; ')].map(formatCell).join();
    },
  );
  return new Lines([...heads, ...more].join(), ...rows);
}

/** Quotes a cell. A spreadsheet must not run a text as a formula. */
function formatCell(value: string | number | boolean | undefined): string {
  if (typeof value !== 'string') return String(value ?? '');
  const text = /^[=+\-@\t]/.test(value) ? `'${value}` : value;
  return `"${toLine(text).replace(/"/g, '""')}"`;
}

const reasons = {
  Completed: 'an update has ended',
  Failed: 'an update has failed',
  Stopped: 'an update stands still',
  Current: 'its time had come',
} as const;

/** Formats the age of a report in days, or in hours and minutes. `seconds` may be negative if a clock is wrong. */
function formatAge(seconds: number): string {
  if (seconds < -300) return `${formatAge(-seconds)} in the future`;
  return seconds >= 2 * 86_400 ? `${Math.floor(seconds / 86_400)} days` : formatDuration(seconds);
}

/** Formats a report, and what its signature proves. `others`: the number of other reports beside it. */
function formatUpdateReport(where: string, opened: OpenedReport, others: number): Lines {
  const { report, signer, trusted } = opened;
  const { cluster, sequence, created, reason, site, updates, gathered, shortened = [] } = report;
  const age = formatAge((Date.now() - Date.parse(created)) / 1000);
  const frees = site.nodes.flatMap(({ free }) => free ?? []);
  const last = lastUpdateOf(report);
  const signature = trusted
    ? `good, by the given key ${signer}`
    : `by the key that the report itself names, ${signer}: compare it with the report of preflight --export, or ` +
      'give --key';
  const rows = [
    ['Cluster', cluster],
    ['Signature', signature],
    ['Made', `${created} by the clock of the cluster: ${age} old, because ${reasons[reason]}`],
    ['Number', `${sequence}. A newer report may have been withheld, which no signature shows`],
    ['Version', `${site.version} ${site.arch}${site.channel === '' ? '' : `, channel ${site.channel}`}`],
    [
      'Nodes',
      `${site.nodes.length}${frees.length > 0 ? `; at least ${formatBytes(Math.min(...frees))} free for images` : ''}`,
    ],
    ...(last ? [['Updated', describeLast(last)]] : []),
    ...(gathered
      ? [['Gathered', `${formatCount(gathered.length, 'file')}, ${shortened.length} of them shortened`]]
      : []),
    ...(others > 0 ? [['Beside it', formatCount(others, 'older report')]] : []),
  ];
  const history = updates.map(({ name, version = '', phase, created: begun, lastProgress = '' }) => [
    name,
    version,
    phase,
    begun,
    lastProgress,
  ]);
  const conditions = (updates[0]?.conditions ?? []).map(({ type, status, reason: why, time, message }) => [
    type,
    status,
    why,
    time,
    message,
  ]);
  const backups = updates.flatMap((update) =>
    update.backups.map(({ version, time, node, path, digest }) => [version, time, node, path, digest]),
  );
  const problems = listSiteProblems(report);
  return joinParagraphs(
    new Lines(`Report of cluster ${cluster}: ${where}`, formatFields(rows)),
    table(['UPDATE', 'VERSION', 'PHASE', 'CREATED', 'LAST PROGRESS'], history),
    table(['CONDITION', 'STATUS', 'REASON', 'SINCE', 'MESSAGE'], conditions),
    table(['BACKUP OF', 'TIME', 'NODE', 'PATH', 'DIGEST'], backups),
    problems.length > 0 ? listBelow('Problems:', problems) : '',
  );
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): Lines | string {
  return rows.length === 0 ? '' : new Lines(formatTable([heads, ...rows]));
}

function describeLast({ version, phase, ended, duration }: NonNullable<ReturnType<typeof lastUpdateOf>>): string {
  const time = ended === undefined ? '' : ` ${ended.slice(0, 10)}`;
  return `${version} ${phase}${time}${duration === undefined ? '' : `, in ${formatDuration(duration)}`}`;
}

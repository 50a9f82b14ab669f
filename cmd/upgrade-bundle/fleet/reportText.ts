import type { OpenedReport } from '../../../lib/config/updateReport.ts';
import { joinParagraphs, Lines, listBelow } from '../../../lib/lines.ts';
import { lastUpdateOf, listSiteProblems } from '../../../lib/update/report/fleet.ts';
import { formatCount, formatDuration, formatFields, formatTable } from '../../cli/format.ts';
import { formatBytes } from '../../../lib/byteSize.ts';

const reasons = {
  Completed: 'an update has ended',
  Failed: 'an update has failed',
  Stopped: 'an update stands still',
  Current: 'its time had come',
} as const;

/** Formats the age of a report in days, or in hours and minutes. `seconds` may be negative if a clock is wrong. */
export function formatAge(seconds: number): string {
  if (seconds < -300) return `${formatAge(-seconds)} in the future`;
  return seconds >= 2 * 86_400 ? `${Math.floor(seconds / 86_400)} days` : formatDuration(seconds);
}

/** Formats a report, and what its signature proves. `others`: the number of other reports beside it. */
export function formatUpdateReport(where: string, opened: OpenedReport, others: number): Lines {
  const { report, signer, trusted } = opened;
  const { cluster, sequence, created, reason, site, updates, gathered, shortened = [] } = report;
  const age = formatAge((Date.now() - Date.parse(created)) / 1000);
  const frees = site.nodes.flatMap(({ free }) => free ?? []);
  const last = lastUpdateOf(report);
  const signature = trusted
    ? `good, by the given key ${signer}`
    : `by the key that the report itself names, ${signer}: compare it with the report of preflight --export, or give --key`;
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
    ...[name, version, phase, begun, lastProgress],
  ]);
  const conditions = (updates[0]?.conditions ?? []).map(({ type, status, reason: why, time, message }) => [
    ...[type, status, why, time, message],
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

import { Lines, toLine } from '../../../lib/lines.ts';
import type { FleetMember } from '../../../lib/update/report/fleet.ts';
import { formatCount, formatDuration, formatTable } from '../../cli/format.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import { formatAge } from './reportText.ts';

/** The age from which a report is called old, in seconds. */
const old = 90 * 86_400;

/** Formats a fleet as a table with a line for each cluster. `width` is that of the terminal, in characters. */
export function formatFleet(members: readonly FleetMember[], width: number): Lines {
  const usable = members.filter(({ cluster }) => cluster !== undefined);
  const broken = members.length - usable.length;
  const title = `${formatCount(usable.length, 'cluster')}${broken > 0 ? `, and ${formatCount(broken, 'file')} that cannot be used` : ''}`;
  if (members.length === 0)
    return new Lines(
      'There are no reports: files are read whose names begin with update-report, or end with .json, .gpg, .pgp, .asc or .img.',
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
export function formatFleetCsv(members: readonly FleetMember[]): Lines {
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

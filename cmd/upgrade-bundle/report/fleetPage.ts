import type { FleetMember } from '../../../lib/update/report/fleet.ts';
import { formatCount, formatDuration, formatTime } from '../../cli/format.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import type { PageStamp } from './findingsPage.ts';
import { markup } from './markup.ts';
import { formatPage, listTable } from './page.ts';

/** Formats a fleet as one HTML page: clusters with problems first. */
export function formatFleetPage(members: readonly FleetMember[], { date, tool }: PageStamp): string {
  const clusters = members.filter(({ cluster }) => cluster !== undefined);
  const broken = members.filter(({ cluster }) => cluster === undefined);
  const troubled = clusters.filter(({ problems }) => problems.length > 0).length;
  const rows = clusters.map(
    ({
      cluster = '',
      version = '',
      nodes = 0,
      update,
      free,
      created = '',
      age = 0,
      trusted,
      signer = '',
      problems,
    }) => [
      ...[
        cluster,
        version,
        String(nodes),
        update?.version ?? '',
        update?.phase ?? '',
        update?.ended?.slice(0, 10) ?? '',
      ],
      update?.duration === undefined ? '' : formatDuration(update.duration),
      free === undefined ? '' : formatBytes(free),
      ...[created, `${Math.floor(age / 86_400)} d`, trusted ? 'trusted' : `claimed by ${signer.slice(0, 12)}`],
      problems.join('; '),
    ],
  );
  const heads = ['Cluster', 'Version', 'Nodes', 'Last update', 'Phase', 'Ended', 'Duration', 'Free', 'Report', 'Age'];
  const verdict =
    troubled + broken.length === 0
      ? `${formatCount(clusters.length, 'cluster')} without problems.`
      : `${formatCount(troubled, 'cluster')} of ${clusters.length} with problems; ${formatCount(broken.length, 'file')} that cannot be used.`;
  return formatPage({
    title: 'Fleet',
    header: markup`<p class="eyebrow">Reports of sites</p>
      <h1>${formatCount(clusters.length, 'cluster')}</h1>
      <p class="${troubled + broken.length === 0 ? 'notice good' : 'notice'}"><strong>${verdict}</strong></p>`,
    main: markup`${listTable('Clusters', [...heads, 'Key', 'Problems'], rows)}
      ${
        broken.length > 0 &&
        listTable(
          'Files that cannot be used',
          ['File', 'Problem'],
          broken.map(({ file, problems }) => [file, problems.join('; ')]),
        )
      }`,
    footer: `${tool}, ${formatTime(date)}.`,
  });
}

import { formatSubject, nameSubject, isOpenBlocker, severityOf } from '#cluster/finding';
import type { NodeDrill } from '#drill/drill';
import type { LintResult } from '#readiness/lint';
import type { Preflight } from '#readiness/preflight';
import { formatBytes } from '#text';
import type { FleetMember } from '#update/report';
import { formatCount, formatTime, formatDuration } from '../../cli/format.ts';
import { markup, type Markup, formatPage, listTable } from './page.ts';

/** The date and the program, for the end of a page. */
interface PageStamp {
  readonly date: Date;
  readonly tool: string;
}

/** The subject and the verdict of a page. */
interface Verdict {
  readonly kind: string;
  readonly title: string;
  /** `doubtful`: nothing blocks, but something is still missing or may cause harm. */
  readonly accent: 'good' | 'doubtful' | 'bad';
  readonly words: string;
}

/** Formats the result of `lint` as one HTML page: the findings that fail first, each with the next step. */
export function formatLintPage(result: LintResult, origin: PageStamp): string {
  const { target, version = target, findings, failing, passed, objects, files } = result;
  const rows = findings
    .toSorted((a, b) => Number(a.status === 'known') - Number(b.status === 'known'))
    .map(({ severity, object, component, file, line, field, message, remedy, status }) => [
      severity,
      status,
      message,
      remedy,
      object.kind === 'File' ? '' : `${formatSubject(object)} of ${component}`,
      `${file}:${line} ${field}`,
    ]);
  const checked = `${formatCount(objects, 'object')} in ${formatCount(files, 'file')} checked`;
  const verdict = {
    kind: 'Manifests that need a registry',
    title: version,
    accent: passed ? 'good' : 'bad',
    words: passed ? `Passed: ${checked}.` : `Failed: ${formatCount(failing, 'finding')}; ${checked}.`,
  } as const;
  const heads = ['Severity', 'Status', 'Finding', 'Next step', 'Object', 'Place'];
  return format(verdict, listFindings(heads, rows), origin);
}

/** Formats the result of `preflight` as one HTML page: blockers first, each finding with the next step. */
export function formatPreflightPage(report: Preflight, origin: PageStamp): string {
  const { cluster, version, target, ready, findings, nodes, workloads } = report;
  const blockers = findings.filter(isOpenBlocker).length;
  const what = target === undefined ? 'boot' : `update to ${target}`;
  const checked = `${formatCount(nodes, 'node')} and ${formatCount(workloads, 'workload')} checked`;
  const open = listOpen(findings);
  const complete = open.length === 0 ? 'good' : 'doubtful';
  const accent = ready ? complete : 'bad';
  const words = {
    good: `Ready: the cluster can ${what} without a registry; ${checked}.`,
    doubtful: `No blockers, but not everything is ready to ${what} without a registry: ${open.join(', ')}; ${checked}.`,
    bad:
      `Not ready: ${formatCount(blockers, 'blocker')} to fix before the cluster can ${what} without a ` +
      `registry; ${checked}.`,
  }[accent];
  const verdict = { kind: 'Preflight of a cluster', title: `${cluster}: OpenShift ${version}`, accent, words } as const;
  const rows = findings.map((finding) => {
    const { check, subject, message, advice, because } = finding;
    const next = because === undefined ? advice : `${advice} ${because}`;
    return [severityOf(finding), check, nameSubject(subject), message, next];
  });
  return format(verdict, listFindings(['Severity', 'Check', 'Object', 'Finding', 'Next step'], rows), origin);
}

/** Lists what findings leave open although none of them blocks: nodes without images, and warnings. */
function listOpen(findings: Preflight['findings']): string[] {
  const lacking = new Set(
    findings.filter(({ check }) => check === 'images').map(({ subject }) => nameSubject(subject)),
  );
  const warnings = findings.filter(({ check, severity }) => check !== 'images' && severity !== 'info');
  return [
    ...(lacking.size > 0 ? [`${formatCount(lacking.size, 'node')} without all images`] : []),
    ...(warnings.length > 0 ? [formatCount(warnings.length, 'warning')] : []),
  ];
}

/** Formats the drills of a cluster as one HTML page: nodes and pods that failed first. */
export function formatDrillPage(cluster: string, drills: readonly NodeDrill[], origin: PageStamp): string {
  const failed = drills.filter(({ result }) => result !== 'passed');
  const sorted = [...failed, ...drills.filter(({ result }) => result === 'passed')];
  const nodes = sorted.map(({ node, result, message, reboot, pods, seconds, started }) => [
    node,
    result,
    message ?? '',
    reboot ? 'reboot' : 'restart of the container runtime',
    `${pods.filter((pod) => pod.seconds !== undefined).length} of ${pods.length}`,
    `${seconds} s`,
    formatTime(started),
  ]);
  const pods = sorted.flatMap(({ node, pods: all }) =>
    all
      .toSorted((a, b) => (b.seconds ?? Infinity) - (a.seconds ?? Infinity))
      .map(({ namespace, name, owner, seconds, message }) => [
        `${namespace}/${name}`,
        node,
        owner,
        seconds === undefined ? 'does not run' : `${seconds} s`,
        message ?? '',
      ]),
  );
  const asked = sorted.flatMap(({ node, asked: images }) =>
    images.map(({ image, count, pods: users, clients }) => [
      image,
      node,
      String(count),
      users.map(({ namespace, name }) => `${namespace}/${name}`).join(', ') || clients.join(', '),
    ]),
  );
  const verdict = {
    kind: 'Drill without a registry',
    title: cluster,
    accent: failed.length === 0 ? 'good' : 'bad',
    words:
      failed.length === 0
        ? `Passed: ${formatCount(drills.length, 'node')} started without a registry.`
        : `Failed: ${formatCount(failed.length, 'node')} of ${drills.length}. Load or pin the images below, or ` +
          'set imagePullPolicy: IfNotPresent, then drill again.',
  } as const;
  return format(
    verdict,
    markup`${listTable('Nodes', ['Node', 'Result', 'Reason', 'By', 'Pods that run', 'Last after', 'Started'], nodes)}
      ${asked.length > 0 && listTable('Images that were asked for', ['Image', 'Node', 'Times', 'By'], asked)}
      ${pods.length > 0 && listTable('Pods', ['Pod', 'Node', 'Owner', 'Ran again', 'Reason'], pods)}`,
    origin,
  );
}

function listFindings(heads: readonly string[], rows: readonly (readonly string[])[]): Markup {
  return rows.length === 0
    ? markup`<p>Nothing was found that needs a registry.</p>`
    : listTable('Findings', heads, rows);
}

function format({ kind, title, accent, words }: Verdict, main: Markup, { date, tool }: PageStamp): string {
  return formatPage({
    title: `${kind}: ${title}`,
    header: markup`<p class="eyebrow">${kind}</p>
      <h1>${title}</h1>
      <p class="${accent === 'doubtful' ? 'notice' : `notice ${accent}`}"><strong>${words}</strong></p>`,
    main,
    footer: `${tool}, ${formatTime(date)}.`,
  });
}

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
      cluster,
      version,
      String(nodes),
      update?.version ?? '',
      update?.phase ?? '',
      update?.ended?.slice(0, 10) ?? '',
      update?.duration === undefined ? '' : formatDuration(update.duration),
      free === undefined ? '' : formatBytes(free),
      created,
      `${Math.floor(age / 86_400)} d`,
      trusted ? 'trusted' : `claimed by ${signer.slice(0, 12)}`,
      problems.join('; '),
    ],
  );
  const heads = ['Cluster', 'Version', 'Nodes', 'Last update', 'Phase', 'Ended', 'Duration', 'Free', 'Report', 'Age'];
  const verdict =
    troubled + broken.length === 0
      ? `${formatCount(clusters.length, 'cluster')} without problems.`
      : `${formatCount(troubled, 'cluster')} of ${clusters.length} with problems; ` +
        `${formatCount(broken.length, 'file')} that cannot be used.`;
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

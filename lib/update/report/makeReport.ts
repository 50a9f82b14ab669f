import type { Context } from '../../context.ts';
import { fieldsAt, listOf, textOf, withoutAbsent } from '../../fields.ts';
import { PluginError } from '../../errors.ts';
import type { ReportedUpdate, UpdateReport } from '../../config/updateReport.ts';
import type { SiteReport } from '../../config/siteTypes.ts';
import { clusterVersionReference } from '../../cluster/clusterVersion.ts';
import type { Cluster } from '../../cluster/client.ts';
import { runPreflight } from '../../readiness/preflight/preflight.ts';
import { readSite } from '../../readiness/preflight/site.ts';
import { surveyCluster } from '../../readiness/preflight/survey.ts';
import { gatherState } from '../gatherState.ts';
import { Redactor } from '../redaction.ts';
import { phaseOf, type UpgradeBundle } from '../upgradeBundle.ts';
import { newestAllowed, sortRecords } from './publishedReport.ts';

/** The largest number of updates in a report, and of characters in a message. */
const most = { updates: 20, message: 2000 };
/** The largest part of a log, of another file, and of all files together, in characters. */
const room = { log: 48_000, file: 200_000, all: 1_200_000 };

/** What a report says beside the state of the cluster. */
export interface ReportFacts {
  readonly sequence: number;
  readonly tool: string;
  /** The public key of the installation, in PEM form. */
  readonly reportKey: string;
}

/** Returns why a report is due: by the newest record that is allowed. */
export function reasonOf(records: readonly UpgradeBundle[]): UpdateReport['reason'] {
  const newest = newestAllowed(records);
  const phase = newest && phaseOf(newest);
  if (phase === 'Completed' || phase === 'Failed') return phase;
  const stalled = newest && listOf(newest.status?.conditions).find(({ type }) => type === 'Stalled');
  return stalled?.['status'] === 'True' ? 'Stopped' : 'Current';
}

/**
 * Makes the report of a cluster: what `preflight` exports, the records of its updates and, if the last one failed or
 * stopped, what `gather` writes. Throws `unsupported` for a cluster without an ID, and the errors of reading.
 */
export async function makeReport(
  cluster: Cluster,
  records: readonly UpgradeBundle[],
  { sequence, tool, reportKey }: ReportFacts,
  context: Context,
): Promise<UpdateReport> {
  const version = await cluster.read(clusterVersionReference);
  const id = textOf(fieldsAt(version, 'spec')['clusterID']);
  if (id === undefined || !/^[0-9a-z][0-9a-z-]{0,62}$/.test(id))
    throw new PluginError('unsupported', `${cluster.name} has no ID, by which its reports are named`);
  const survey = await surveyCluster(cluster);
  const preflight = await runPreflight(cluster, undefined, context, { survey });
  const site = withFreeSpace(await readSite(cluster, survey, preflight, { tool, reportKey }), records);
  const reason = reasonOf(records);
  const report = {
    ...({ formatVersion: 1, cluster: id, sequence } as const),
    created: new Date(cluster.now()).toISOString().replace(/\.\d+/, ''),
    ...{ reason, tool, site },
    updates: sortRecords(records).slice(0, most.updates).map(describeUpdate),
  };
  if (reason !== 'Failed' && reason !== 'Stopped') return report;
  return { ...report, ...(await gather(cluster, context)) };
}

/** Adds the free space that agents report: the controller may not ask the nodes. */
function withFreeSpace(site: SiteReport, records: readonly UpgradeBundle[]): SiteReport {
  const [newest] = sortRecords(records).filter(({ status }) => (status?.nodes ?? []).length > 0);
  const reported = new Map(newest?.status?.nodes?.map(({ name, free }) => [name, free]));
  return {
    ...site,
    nodes: site.nodes.map((node) => ({ ...withoutAbsent({ free: reported.get(node.name) }), ...node })),
  };
}

/** What is gathered, and which files are left out or shortened. */
export type Gathered = Required<Pick<UpdateReport, 'gathered' | 'shortened'>>;

async function gather(cluster: Cluster, context: Context): Promise<Gathered> {
  const gathered: { path: string; content: string }[] = [];
  const shortened: string[] = [];
  let left = room.all;
  for await (const { path, content } of gatherState(cluster, new Redactor(), context)) {
    const limit = Math.min(path.startsWith('logs/') ? room.log : room.file, left);
    const part = content.slice(-limit);
    if (limit > 0 && part !== '') gathered.push({ path, content: part });
    if (part.length < content.length || limit <= 0) shortened.push(path);
    left -= part.length;
  }
  return { gathered, shortened };
}

function describeUpdate(bundle: UpgradeBundle): ReportedUpdate {
  const { metadata, spec, status = {} } = bundle;
  const { version = spec.bundle.version, lastProgressTime: lastProgress } = status;
  return {
    name: metadata.name,
    created: metadata.creationTimestamp ?? new Date(0).toISOString(),
    phase: phaseOf(bundle),
    ...withoutAbsent({ version, digest: spec.bundle.digest, lastProgress }),
    conditions: listOf(status.conditions).map(({ type, status: is, reason, message, lastTransitionTime }) => ({
      ...{ type: String(type), status: String(is), reason: textOf(reason) ?? '' },
      message: (textOf(message) ?? '').slice(0, most.message),
      time: textOf(lastTransitionTime) ?? metadata.creationTimestamp ?? new Date(0).toISOString(),
    })),
    hops: (status.hops ?? []).map((hop) => ({ version: hop.version, phase: hop.phase })),
    backups: (status.backups ?? []).map(({ node, path, copy, version: of, time, size, digest }) => ({
      ...{ node, path, ...(copy !== undefined && { copy }), version: of, time, size, digest },
    })),
    nodes: (status.nodes ?? []).map(({ name, phase, free, message }) => ({
      ...{ name, phase, ...(free !== undefined && { free }) },
      ...(message !== undefined && { message: message.slice(0, most.message) }),
    })),
  };
}

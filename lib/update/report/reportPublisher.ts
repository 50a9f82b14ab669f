import type { KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip, gunzip } from 'node:zlib';
import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { clusterVersionReference } from '#cluster/version';
import type { MergePatch, Written } from '#config/manifest';
import type { SiteReport } from '#config/siteReport';
import {
  encodeUpdateReport,
  updateReportType,
  type UpdateReport,
  type ReportedUpdate,
  updateReportLimits,
} from '#config/updateReport';
import type { Context } from '#context';
import { asFailure, isPluginError, PluginError, messageOf } from '#errors';
import { fieldsAt, fieldsOf, textOf, listOf, withoutAbsent } from '#fields';
import { runPreflight, readSite, surveyCluster } from '#readiness/preflight';
import { exportPublicKey, signPayload, formatEnvelope, readPolicyKey } from '#release/sigstore';
import { gatherState } from '../gather/gatherState.ts';
import { Redactor } from '../gather/redaction.ts';
import { hasEnded, type UpgradeBundle, phaseOf } from '../record/upgradeBundle.ts';
import { reportMap, reportKeyField } from './reportKey.ts';

/** The age after which a report is made again, in milliseconds. A survey reads every workload. */
const longestAge = 3_600_000;
/** The pause after a failure, in milliseconds. */
const retryPause = 60_000;
/** The largest compressed report, in bytes: a ConfigMap takes 1 MiB with base64. */
const mapLimit = 700_000;

/** Keeps the report of the cluster in its ConfigMap, for the leading controller. */
export class ReportPublisher {
  readonly #cluster: Cluster;
  readonly #key: KeyObject;
  readonly #tool: string;
  readonly #context: Context;
  #running: Promise<void> | undefined;
  /** What the last report was about, and when another one is due. */
  #last = { mark: '', due: -Infinity };

  constructor(cluster: Cluster, { key, tool }: { readonly key: KeyObject; readonly tool: string }, context: Context) {
    this.#cluster = cluster;
    this.#key = key;
    this.#tool = tool;
    this.#context = context;
  }

  /**
   * Starts to make a report if an update has ended or stopped since the last one, or if that is old. Does not wait for
   * it: the rollout continues meanwhile. Logs failures, and retries.
   */
  follow(records: readonly UpgradeBundle[]): void {
    const mark = describeState(records);
    if (this.#running || (mark === this.#last.mark && performance.now() < this.#last.due)) return;
    this.#running = this.#publish(records, mark)
      .then(
        () => {
          this.#last = { mark, due: performance.now() + longestAge };
        },
        (error: unknown) => {
          if (!this.#context.signal.aborted)
            this.#context.log('warn', `the report of the cluster cannot be made: ${asFailure(error).message}`);
          this.#last = { mark, due: performance.now() + retryPause };
        },
      )
      .finally(() => {
        this.#running = undefined;
      });
  }

  async #publish(records: readonly UpgradeBundle[], mark: string): Promise<void> {
    const map = await this.#cluster.read(reportMap);
    if (!map) throw new PluginError('not-found', `the ConfigMap ${reportMap.metadata.name} was deleted`);
    const data = fieldsOf(map['data']);
    const isRecent = this.#cluster.now() - Date.parse(textOf(fieldsAt(map, 'data')['time']) ?? '') < longestAge;
    // Another controller led before.
    if (data[reportFields.mark] === mark && isRecent) return;
    const sequence = Number(textOf(data[reportFields.sequence]) ?? 0) + 1;
    const reportKey = exportPublicKey(this.#key).toString();
    const report = await makeReport(this.#cluster, records, { sequence, tool: this.#tool, reportKey }, this.#context);
    const { payload, packed } = await packReport(report);
    const signature = signPayload(updateReportType, payload, this.#key).toString('base64');
    const patch: MergePatch<Written<'ConfigMap'>> = {
      metadata: { resourceVersion: map.metadata.resourceVersion },
      data: {
        [reportFields.signature]: signature,
        [reportFields.sequence]: String(sequence),
        [reportFields.mark]: mark,
        time: report.created,
      },
      binaryData: { [reportFields.payload]: packed.toString('base64') },
    };
    await this.#cluster.patch(reportMap, patch, { manager: 'controller' });
    this.#context.log('info', `report ${sequence} of the cluster is ready: ${reasonOf(records)}`);
  }
}

/** Returns what a report is due for, and what it is about: the ends and stops of updates. */
function describeState(records: readonly UpgradeBundle[]): string {
  return `${reasonOf(records)} ${records.filter(hasEnded).map(describeEnd).sort().join()}`.slice(0, 4000);
}

/** Encodes and compresses a report. Shortens what is gathered until both are small enough. Throws `too-large`. */
async function packReport(report: UpdateReport): Promise<{ payload: Buffer; packed: Buffer }> {
  let kept = report;
  for (;;) {
    try {
      const payload = encodeUpdateReport(kept);
      const packed = await promisify(gzip)(payload);
      if (packed.length <= mapLimit) return { payload, packed };
      throw new PluginError('too-large', `the report has ${packed.length} bytes, compressed, and may have ${mapLimit}`);
    } catch (error) {
      const { gathered = [], shortened = [] } = kept;
      if (!isPluginError(error, 'too-large') || gathered.length === 0) throw error;
      kept = { ...kept, ...withoutHalf({ gathered, shortened }) };
    }
  }
}

/** Leaves out the second half of what is gathered: the logs come last. */
function withoutHalf({ gathered, shortened }: Gathered): Gathered {
  const kept = Math.floor(gathered.length / 2);
  return {
    gathered: gathered.slice(0, kept),
    shortened: [...new Set([...shortened, ...gathered.slice(kept).map(({ path }) => path)])],
  };
}

/** The largest number of updates in a report, and of characters in a message. */
const most = { updates: 20, message: 2000 };
/** The largest part of a log, of another file, and of all files together, in characters. */
const room = { log: 48_000, file: 200_000, all: 1_200_000 };

/** What a report says beside the state of the cluster. */
interface ReportFacts {
  readonly sequence: number;
  readonly tool: string;
  /** The public key of the installation, in PEM form. */
  readonly reportKey: string;
}

/** Returns why a report is due: by the newest record that is allowed. */
function reasonOf(records: readonly UpgradeBundle[]): UpdateReport['reason'] {
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
async function makeReport(
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
  const report: UpdateReport = {
    formatVersion: 1,
    cluster: id,
    sequence,
    created: new Date(cluster.now()).toISOString().replace(/\.\d+/, ''),
    reason,
    tool,
    site,
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
type Gathered = Required<Pick<UpdateReport, 'gathered' | 'shortened'>>;

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
      type: String(type),
      status: String(is),
      reason: textOf(reason) ?? '',
      message: (textOf(message) ?? '').slice(0, most.message),
      time: textOf(lastTransitionTime) ?? metadata.creationTimestamp ?? new Date(0).toISOString(),
    })),
    hops: (status.hops ?? []).map((hop) => ({ version: hop.version, phase: hop.phase })),
    backups: (status.backups ?? []).map(({ node, path, copy, version: of, time, size, digest }) => ({
      node,
      path,
      ...(copy !== undefined && { copy }),
      version: of,
      time,
      size,
      digest,
    })),
    nodes: (status.nodes ?? []).map(({ name, phase, free, message }) => ({
      name,
      phase,
      ...(free !== undefined && { free }),
      ...(message !== undefined && { message: message.slice(0, most.message) }),
    })),
  };
}

/** The names of the parts of a report in its ConfigMap. */
const reportFields = {
  payload: 'report.gz',
  signature: 'signature',
  sequence: 'sequence',
  mark: 'mark',
} as const;

/** Returns the newest record that is allowed, which a report is about; undefined if there is none. */
export function newestAllowed(records: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  return sortRecords(records).find(({ spec }) => spec.bundle.digest !== undefined);
}

/** Sorts records of updates, the newest first. */
function sortRecords(records: readonly UpgradeBundle[]): UpgradeBundle[] {
  const ageOf = ({ metadata }: UpgradeBundle): string => `${metadata.creationTimestamp ?? ''} ${metadata.name}`;
  return records.toSorted((a, b) => (ageOf(a) < ageOf(b) ? 1 : -1));
}

/** Returns the words for the end of an update in the mark of a report. */
function describeEnd(bundle: UpgradeBundle): string {
  return `${bundle.metadata.uid ?? ''}=${phaseOf(bundle)}`;
}

/** Returns whether a report with a mark has the end of an update. */
export function hasEndOf(bundle: UpgradeBundle, mark: string): boolean {
  return mark.includes(describeEnd(bundle));
}

/** The last report of a cluster, signed. */
export interface PublishedReport {
  readonly sequence: number;
  /** What it is about: see `hasEndOf`. */
  readonly mark: string;
  /** The text of the envelope. */
  readonly envelope: Buffer;
}

/**
 * Reads the signed report from its ConfigMap; undefined if none is made yet. Throws `invalid-file` for another content.
 */
export async function unpackReport(map: StoredObject | undefined): Promise<PublishedReport | undefined> {
  const data = fieldsOf(map?.['data']);
  const packed = textOf(fieldsOf(map?.['binaryData'])[reportFields.payload]);
  const [signature, pem] = [textOf(data[reportFields.signature]), textOf(data[reportKeyField])];
  if (packed === undefined || signature === undefined || pem === undefined) return undefined;
  try {
    const options = { maxOutputLength: updateReportLimits.content };
    const payload = await promisify(gunzip)(Buffer.from(packed, 'base64'), options);
    const { fingerprint } = readPolicyKey(Buffer.from(pem));
    const envelope = formatEnvelope(updateReportType, payload, Buffer.from(signature, 'base64'), fingerprint);
    const [sequence, mark] = [Number(data[reportFields.sequence]), textOf(data[reportFields.mark]) ?? ''];
    return { sequence, mark, envelope: Buffer.from(envelope) };
  } catch (cause) {
    const message = `the ConfigMap ${reportMap.metadata.name} has no report: ${messageOf(cause)}`;
    throw new PluginError('invalid-file', message, { cause });
  }
}

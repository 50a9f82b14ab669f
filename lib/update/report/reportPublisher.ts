import type { KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Context } from '../../context.ts';
import { asFailure, isPluginError, PluginError } from '../../errors.ts';
import { fieldsAt, fieldsOf, textOf } from '../../fields.ts';
import { encodeUpdateReport, updateReportType, type UpdateReport } from '../../config/updateReport.ts';
import { exportPublicKey, signPayload } from '../../release/sigstore/envelope.ts';
import type { Cluster } from '../../cluster/client.ts';
import { hasEnded, type UpgradeBundle } from '../upgradeBundle.ts';
import { makeReport, reasonOf, type Gathered } from './makeReport.ts';
import { describeEnd, reportFields } from './publishedReport.ts';
import { reportMap } from './reportKey.ts';

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
    const patch = {
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

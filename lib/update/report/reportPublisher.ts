import type { KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip, gunzip } from 'node:zlib';
import type { Context } from '../../context.ts';
import { asFailure, messageOf, PluginError } from '../../errors.ts';
import { fieldsAt, fieldsOf, textOf } from '../../fields.ts';
import {
  encodeUpdateReport,
  updateReportLimits,
  updateReportType,
  type UpdateReport,
} from '../../config/updateReport.ts';
import { exportPublicKey, formatEnvelope, signPayload } from '../../release/sigstore/envelope.ts';
import { readPolicyKey } from '../../release/sigstore/policyKey.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/storedObject.ts';
import { hasEnded, phaseOf, type UpgradeBundle } from '../upgradeBundle.ts';
import { makeReport, reasonOf, withoutHalf } from './makeReport.ts';
import { reportKeyField, reportMap } from './reportKey.ts';

/** The age after which a report is made again, in milliseconds. A survey reads every workload. */
const longestAge = 3_600_000;
/** The pause after a failure, in milliseconds. */
const retryPause = 60_000;
/** The largest compressed report, in bytes: a ConfigMap takes 1 MiB with base64. */
const mapLimit = 700_000;
const fields = { payload: 'report.gz', signature: 'signature', sequence: 'sequence', mark: 'mark' } as const;

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
    if (data[fields.mark] === mark && isRecent) return;
    const sequence = Number(textOf(data[fields.sequence]) ?? 0) + 1;
    const reportKey = exportPublicKey(this.#key).toString();
    const report = await makeReport(this.#cluster, records, { sequence, tool: this.#tool, reportKey }, this.#context);
    const { payload, packed } = await packReport(report);
    const signature = signPayload(updateReportType, payload, this.#key).toString('base64');
    const patch = {
      metadata: { resourceVersion: map.metadata.resourceVersion },
      data: {
        [fields.signature]: signature,
        [fields.sequence]: String(sequence),
        [fields.mark]: mark,
        time: report.created,
      },
      binaryData: { [fields.payload]: packed.toString('base64') },
    };
    await this.#cluster.patch(reportMap, patch, { manager: 'controller' });
    this.#context.log('info', `report ${sequence} of the cluster is ready: ${reasonOf(records)}`);
  }
}

/** Returns what a report is due for, and what it is about: the ends and stops of updates. */
function describeState(records: readonly UpgradeBundle[]): string {
  return `${reasonOf(records)} ${records.filter(hasEnded).map(describeEnd).sort().join()}`.slice(0, 4000);
}

function describeEnd(bundle: UpgradeBundle): string {
  return `${bundle.metadata.uid ?? ''}=${phaseOf(bundle)}`;
}

/** Returns whether a report with a mark has the end of an update. */
export function hasEndOf(bundle: UpgradeBundle, mark: string): boolean {
  return mark.includes(describeEnd(bundle));
}

async function packReport(report: UpdateReport): Promise<{ payload: Buffer; packed: Buffer }> {
  let kept = report;
  for (;;) {
    const payload = encodeUpdateReport(kept);
    const packed = await promisify(gzip)(payload);
    if (packed.length <= mapLimit) return { payload, packed };
    const { gathered = [], shortened = [] } = kept;
    if (gathered.length === 0)
      throw new PluginError('too-large', `the report has ${packed.length} bytes, compressed, and may have ${mapLimit}`);
    kept = { ...kept, ...withoutHalf({ gathered, shortened }) };
  }
}

/** The last report of a cluster, signed. */
export interface PublishedReport {
  readonly sequence: number;
  /** What it is about: see `hasEndOf`. */
  readonly mark: string;
  /** The text of the envelope. */
  readonly envelope: Buffer;
}

/** Reads the signed report from its ConfigMap; undefined if none is made yet. Throws `invalid-file` for another content. */
export async function unpackReport(map: StoredObject | undefined): Promise<PublishedReport | undefined> {
  const data = fieldsOf(map?.['data']);
  const packed = textOf(fieldsOf(map?.['binaryData'])[fields.payload]);
  const [signature, pem] = [textOf(data[fields.signature]), textOf(data[reportKeyField])];
  if (packed === undefined || signature === undefined || pem === undefined) return undefined;
  try {
    const options = { maxOutputLength: updateReportLimits.content };
    const payload = await promisify(gunzip)(Buffer.from(packed, 'base64'), options);
    const { fingerprint } = readPolicyKey(Buffer.from(pem));
    const envelope = formatEnvelope(updateReportType, payload, Buffer.from(signature, 'base64'), fingerprint);
    const [sequence, mark] = [Number(data[fields.sequence]), textOf(data[fields.mark]) ?? ''];
    return { sequence, mark, envelope: Buffer.from(envelope) };
  } catch (cause) {
    const message = `the ConfigMap ${reportMap.metadata.name} has no report: ${messageOf(cause)}`;
    throw new PluginError('invalid-file', message, { cause });
  }
}

import type { Context } from '../../context.ts';
import { asFailure, isPluginError } from '../../errors.ts';
import { fieldsOf, textOf } from '../../fields.ts';
import type { BundleMetadata } from '../../bundle/metadata.ts';
import { nameUpdateReport, openUpdateReport } from '../../config/updateReport.ts';
import { isDigest, type Digest } from '../../content/oci/digest.ts';
import { identityOf, type FoundBundle } from '../../node/media/medium.ts';
import { reportRegionOf } from '../../node/media/reportRegion.ts';
import { encryptTo } from '../../release/signature/encryption.ts';
import type { Cluster } from '../../cluster/client.ts';
import { reportMap } from '../report/reportKey.ts';
import { unpackReport, type PublishedReport } from '../report/reportPublisher.ts';
import type { UpgradeBundle } from '../upgradeBundle.ts';
import type { AgentMedia } from './agentMedia.ts';
import type { BundleCache } from './bundleCache.ts';

/** Rounds of the agent between two reads of the report. */
const rounds = 4;

/**
 * Writes the report of the cluster onto the drives of a node that hold a verified bundle. Does so when a drive is plugged
 * in, and when there is a new report. The metadata of that bundle, which an administrator has allowed by its
 * digest, says where on the drive, and to whom the report is encrypted.
 */
export class DriveReports {
  readonly #cluster: Cluster;
  readonly #media: Pick<AgentMedia, 'writeReport'>;
  readonly #cache: Pick<BundleCache, 'recall'>;
  readonly #pause: number;
  readonly #context: Context;
  readonly #verified = new Map<Digest, BundleMetadata>();
  /** The sequence of the report that a drive has, or that failed. Found bundles are the same objects until their drive changes. */
  readonly #done = new WeakMap<FoundBundle, number>();
  readonly #seen = new WeakSet<FoundBundle>();
  readonly #failures = new Map<string, string>();
  #report: PublishedReport | undefined;
  #due = -Infinity;

  /** `interval`: the pause between two rounds of the agent, in milliseconds. */
  constructor(
    cluster: Cluster,
    media: Pick<AgentMedia, 'writeReport'>,
    cache: Pick<BundleCache, 'recall'>,
    interval: number,
    context: Context,
  ) {
    this.#cluster = cluster;
    this.#media = media;
    this.#cache = cache;
    this.#pause = rounds * interval;
    this.#context = context;
  }

  /** Why no report could be written to drives that are present. */
  get problems(): readonly string[] {
    return [...this.#failures.values()];
  }

  /** Writes the report onto the drives that lack it. Logs failures, which stop nothing else. Throws `interrupted`. */
  async follow(records: readonly UpgradeBundle[], media: readonly FoundBundle[]): Promise<void> {
    for (const device of this.#failures.keys())
      if (!media.some((each) => each.device === device)) this.#failures.delete(device);
    const digests = [...new Set(records.map(({ spec }) => spec.bundle.digest ?? ''))].filter(isDigest);
    if (media.length === 0 || digests.length === 0) return;
    const isNew = media.some((found) => !this.#seen.has(found));
    if (!isNew && performance.now() < this.#due) return;
    this.#due = performance.now() + this.#pause;
    try {
      await this.#recall(digests);
      await this.#readReport();
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      this.#context.log('debug', `no report is written: ${asFailure(error).message}`);
      return;
    }
    for (const found of media) {
      await this.#write(found);
      this.#seen.add(found);
    }
  }

  async #write(found: FoundBundle): Promise<void> {
    const report = this.#report;
    const metadata = [...this.#verified.values()].find((each) => identityOf(each) === found.identity);
    if (!report || !metadata || this.#done.get(found) === report.sequence) return;
    try {
      const { envelope, sequence } = report;
      // Its time names the file. The controller has signed it.
      const name = nameUpdateReport(openUpdateReport(envelope, 'the report of the cluster', []).report);
      const key = metadata.reports?.key;
      const file =
        key === undefined
          ? { name, content: envelope }
          : { name: `${name}.gpg`, content: await encryptTo(key, envelope, name) };
      this.#done.set(found, sequence);
      const written = await this.#media.writeReport(found, file, reportRegionOf(metadata));
      this.#failures.delete(found.device);
      if (written?.outcome === 'written')
        this.#context.log('info', `report ${sequence} of the cluster is on the drive ${found.device}`);
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      const { message } = asFailure(error);
      if (this.#failures.get(found.device) !== message) this.#context.log('warn', message);
      this.#failures.set(found.device, message);
    }
  }

  /** Reads the metadata of allowed bundles that this node has verified. Verifies their signatures again, once. */
  async #recall(digests: readonly Digest[]): Promise<void> {
    for (const digest of this.#verified.keys()) if (!digests.includes(digest)) this.#verified.delete(digest);
    for (const digest of digests) {
      if (this.#verified.has(digest)) continue;
      const facts = await this.#cache.recall(digest, this.#context);
      if (facts) this.#verified.set(digest, facts.metadata);
    }
  }

  async #readReport(): Promise<void> {
    const map = await this.#cluster.read(reportMap);
    const sequence = Number(textOf(fieldsOf(map?.['data'])['sequence']));
    if (this.#report?.sequence !== sequence) this.#report = await unpackReport(map);
  }
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BundleMetadata } from '#bundle/metadata';
import type { Cluster } from '#cluster/client';
import { nameUpdateReport, openUpdateReport } from '#config/updateReport';
import { writeAtomically } from '#content/files';
import { isDigest, type Digest, parseJsonIfValid } from '#content/oci';
import type { Context } from '#context';
import { asFailure, isPluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { identityOf, type FoundBundle, reportRegionOf } from '#node/media';
import { encryptTo } from '#release/signature';
import { hasEnded, type UpgradeBundle } from '../record/upgradeBundle.ts';
import { reportMap } from '../report/reportKey.ts';
import { hasEndOf, newestAllowed, unpackReport, type PublishedReport } from '../report/reportPublisher.ts';
import type { ReportState } from '../screen/screenText.ts';
import type { AgentMedia } from './agentMedia.ts';
import type { BundleCache } from './bundleCache.ts';

/** Rounds of the agent between two reads of the report. */
const rounds = 4;
/** The longest time that a screen asks to leave a drive for a report that is not made yet, in milliseconds. */
const patience = 10 * 60_000;

/** The last report that this node wrote onto a drive. A file keeps it, because nodes restart during an update. */
interface LastReport {
  /** The bundle of the drive. */
  readonly bundle: string;
  /** What the report was about: see `hasEndOf`. */
  readonly mark: string;
}
const lastFile = 'report-on-drive.json';

/**
 * Writes the report of the cluster onto the drives of a node that hold a verified bundle. Does so when a drive is
 * plugged in, and when there is a new report. The metadata of that bundle, which an administrator has allowed by its
 * digest, says where on the drive, and to whom the report is encrypted.
 */
export class DriveReports {
  readonly #cluster: Cluster;
  readonly #media: Pick<AgentMedia, 'writeReport'>;
  readonly #cache: Pick<BundleCache, 'recall' | 'folder'>;
  readonly #pause: number;
  readonly #context: Context;
  readonly #verified = new Map<Digest, BundleMetadata>();
  /**
   * The sequence of the report that a drive has, or that failed. Found bundles are the same objects until their drive
   * changes.
   */
  readonly #done = new WeakMap<FoundBundle, number>();
  readonly #seen = new WeakSet<FoundBundle>();
  readonly #failures = new Map<string, string>();
  /** What the report on a drive is about. */
  readonly #written = new WeakMap<FoundBundle, string>();
  #last: LastReport | undefined;
  #hasReadLast = false;
  /** Since when the report of an end is awaited for a drive. */
  #awaited = { uid: '', since: 0 };
  #report: PublishedReport | undefined;
  #due = -Infinity;

  /** `interval`: the pause between two rounds of the agent, in milliseconds. */
  constructor(
    cluster: Cluster,
    media: Pick<AgentMedia, 'writeReport'>,
    cache: Pick<BundleCache, 'recall' | 'folder'>,
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

  /**
   * Returns where the report of how the last update ended is. Undefined before the end, and if no drive of this node is
   * known to have a place for it. It is `wanted` only if there is one, and `writing` for ten minutes at most.
   */
  stateOf(records: readonly UpgradeBundle[], media: readonly FoundBundle[]): ReportState | undefined {
    const ended = endedUpdate(records);
    if (!ended) return undefined;
    const drive = media.find((found) => this.#written.has(found));
    if (drive && hasEndOf(ended, this.#written.get(drive) ?? '')) return 'written';
    const isNew = media.some((found) => !this.#seen.has(found)) && this.#last?.bundle === ended.spec.bundle.digest;
    if (drive ?? isNew) {
      const uid = ended.metadata.uid ?? '';
      if (this.#awaited.uid !== uid) this.#awaited = { uid, since: performance.now() };
      const isLate = performance.now() - this.#awaited.since > patience;
      return isLate || (drive && this.#failures.has(drive.device)) ? undefined : 'writing';
    }
    const isMade = this.#report !== undefined && hasEndOf(ended, this.#report.mark);
    return media.length === 0 && isMade && this.#isAwaited(ended) ? 'wanted' : undefined;
  }

  /**
   * Writes the report onto the drives that lack it. Logs failures, which stop nothing else. Returns whether it tried to
   * write. Throws `interrupted`.
   */
  async follow(records: readonly UpgradeBundle[], media: readonly FoundBundle[]): Promise<boolean> {
    await this.#readLast();
    for (const device of this.#failures.keys())
      if (!media.some((each) => each.device === device)) this.#failures.delete(device);
    const digests = [...new Set(records.map(({ spec }) => spec.bundle.digest ?? ''))].filter(isDigest);
    const ended = endedUpdate(records);
    const isWanted = ended && this.#isAwaited(ended) && !hasEndOf(ended, this.#report?.mark ?? '');
    if ((media.length === 0 && isWanted !== true) || digests.length === 0) return false;
    const isNew = media.some((found) => !this.#seen.has(found));
    if (!isNew && performance.now() < this.#due) return false;
    this.#due = performance.now() + this.#pause;
    try {
      await this.#recall(digests);
      await this.#readReport();
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      this.#context.log('debug', `no report is written: ${asFailure(error).message}`);
      return false;
    }
    let hasTried = false;
    for (const found of media) {
      if (await this.#write(found)) hasTried = true;
      this.#seen.add(found);
    }
    return hasTried || isNew;
  }

  async #write(found: FoundBundle): Promise<boolean> {
    const report = this.#report;
    const [bundle, metadata] = [...this.#verified].find(([, each]) => identityOf(each) === found.identity) ?? [];
    if (!report || !bundle || !metadata || this.#done.get(found) === report.sequence) return false;
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
      if (written) {
        this.#written.set(found, report.mark);
        await this.#keepLast({ bundle, mark: report.mark });
      }
      if (written?.outcome === 'written')
        this.#context.log('info', `report ${sequence} of the cluster is on the drive ${found.device}`);
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      const { message } = asFailure(error);
      if (this.#failures.get(found.device) !== message) this.#context.log('warn', message);
      this.#failures.set(found.device, message);
    }
    return true;
  }

  /**
   * Returns whether a drive of this node had the bundle of an update and a place for reports, and not that of its end.
   */
  #isAwaited(ended: UpgradeBundle): boolean {
    return this.#last?.bundle === ended.spec.bundle.digest && !hasEndOf(ended, this.#last?.mark ?? '');
  }

  async #readLast(): Promise<void> {
    if (this.#hasReadLast) return;
    this.#hasReadLast = true;
    // Without the file, or with a damaged one, no screen asks for the drive.
    const text = await readFile(join(this.#cache.folder, lastFile), 'utf8').catch(() => '');
    const { bundle, mark } = fieldsOf(parseJsonIfValid(text));
    if (typeof bundle === 'string' && typeof mark === 'string') this.#last = { bundle, mark };
  }

  async #keepLast(last: LastReport): Promise<void> {
    if (this.#last?.bundle === last.bundle && this.#last.mark === last.mark) return;
    this.#last = last;
    await writeAtomically(join(this.#cache.folder, lastFile), JSON.stringify(last));
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

/** Returns the newest allowed update, if it has ended. */
function endedUpdate(records: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  const newest = newestAllowed(records);
  return newest && hasEnded(newest) ? newest : undefined;
}

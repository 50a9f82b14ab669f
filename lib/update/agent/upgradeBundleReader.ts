import { isDeepStrictEqual } from 'node:util';
import type { Cluster } from '#cluster/client';
import type { Fields } from '#fields';
import {
  bundleColumns,
  phases,
  upgradeBundleKind,
  type UpgradeBundle,
  type UpgradeBundleStatus,
} from '../record/upgradeBundle.ts';

const { apiVersion, kind } = upgradeBundleKind;

/** The pause after a failed watch, in milliseconds: an earlier installation has no right to watch. */
const watchPause = 5 * 60_000;

/**
 * Reads UpgradeBundles without the reports of all nodes, which are most of their size. Reads the columns each time, and
 * the spec once for each generation. Watches instead after two lists without a difference, so that agents at rest ask
 * for nothing.
 */
export class UpgradeBundleReader {
  readonly #cluster: Cluster;
  #known: ReadonlyMap<string, UpgradeBundle> = new Map();
  #rows: readonly Row[] = [];
  /** What was listed when the watch began; undefined without a watch, and after a change. */
  #unchanged: UpgradeBundle[] | undefined;
  #watchesAgainAt = -Infinity;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /**
   * Returns all UpgradeBundles. Their status has the fields of `bundleColumns` only. Throws the errors of the cluster.
   */
  async list(): Promise<UpgradeBundle[]> {
    if (this.#unchanged) return this.#unchanged;
    const columns = await this.#cluster.listColumns(apiVersion, kind);
    const rows = columns?.rows.map(readRow);
    // Another build of the program may have installed a definition without these columns.
    if (!rows?.every((row) => row !== undefined)) return this.#listWhole();
    const bundles = await Promise.all(rows.map(async (row) => ({ ...row, bundle: await this.#read(row) })));
    this.#known = new Map(bundles.flatMap(({ key, bundle }) => (bundle ? [[key, bundle]] : [])));
    const listed = bundles.flatMap(({ bundle, status }) => (bundle ? [{ ...bundle, status }] : []));
    const isSame = isDeepStrictEqual(rows, this.#rows);
    this.#rows = rows;
    if (isSame && columns?.resourceVersion !== undefined) this.#watch(columns.resourceVersion, listed);
    return listed;
  }

  #watch(resourceVersion: string, listed: UpgradeBundle[]): void {
    if (performance.now() < this.#watchesAgainAt) return;
    this.#unchanged = listed;
    const noteEnd = (): void => {
      this.#unchanged = undefined;
    };
    this.#cluster.awaitChange(apiVersion, kind, resourceVersion).then(noteEnd, () => {
      this.#watchesAgainAt = performance.now() + watchPause;
      noteEnd();
    });
  }

  async #listWhole(): Promise<UpgradeBundle[]> {
    const bundles = (await this.#cluster.list(apiVersion, kind)) as UpgradeBundle[];
    return bundles.map((bundle) => ({ ...trim(bundle), status: statusOf({ ...bundle.status }) }));
  }

  async #read({ key, name }: Row): Promise<UpgradeBundle | undefined> {
    const bundle = this.#known.get(key);
    if (bundle) return bundle;
    const object = await this.#cluster.read({ apiVersion, kind, metadata: { name } });
    return object && trim(object as UpgradeBundle);
  }
}

/** The columns of an UpgradeBundle. */
interface Row {
  readonly name: string;
  /** Changes each time the object changes, except its status. */
  readonly key: string;
  readonly status: UpgradeBundleStatus;
}

function readRow(row: Fields): Row | undefined {
  const [uid, generation] = [row[bundleColumns.uid], row[bundleColumns.generation]];
  if (typeof uid !== 'string' || typeof generation !== 'number') return undefined;
  const { version, phase, turn, base, backupNode, nodesReady, size, head, reason } = bundleColumns;
  const status = statusOf({
    version: row[version],
    phase: row[phase],
    turn: row[turn],
    base: row[base],
    backupNode: row[backupNode],
    nodesReady: row[nodesReady],
    size: row[size],
    head: row[head],
    reason: row[reason],
  });
  return { name: String(row['Name']), key: `${uid} ${generation}`, status };
}

function statusOf({
  version,
  phase,
  turn,
  base,
  backupNode,
  nodesReady,
  size,
  head,
  reason,
}: Fields): UpgradeBundleStatus {
  const validPhase = phases.find((each) => each === phase);
  return {
    ...(validPhase && { phase: validPhase }),
    // A column of an object without the field is empty.
    ...(typeof version === 'string' && version !== '' && { version }),
    ...(typeof turn === 'string' && { turn }),
    ...(typeof base === 'string' && { base }),
    ...(typeof backupNode === 'string' && { backupNode }),
    ...(typeof nodesReady === 'string' && { nodesReady }),
    ...(typeof size === 'number' && { size }),
    ...(typeof head === 'string' && head !== '' && { head }),
    ...(typeof reason === 'string' && reason !== '' && { reason }),
  };
}

/** Returns an UpgradeBundle without its status, and without the fields that grow with the status. */
function trim({ metadata, status: _status, ...bundle }: UpgradeBundle): UpgradeBundle {
  const { managedFields: _, ...kept } = metadata as UpgradeBundle['metadata'] & { managedFields?: unknown };
  return { ...bundle, metadata: kept };
}

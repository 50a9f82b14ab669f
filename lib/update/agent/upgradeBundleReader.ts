import type { Cluster } from '../../kubernetes/client.ts';
import type { Fields } from '../../kubernetes/fields.ts';
import {
  bundleColumns,
  phases,
  upgradeBundleKind,
  type UpgradeBundle,
  type UpgradeBundleStatus,
} from '../upgradeBundle.ts';

const { apiVersion, kind } = upgradeBundleKind;

/**
 * The UpgradeBundles as an agent needs them, without what all nodes say, which is most of them: their columns each time, and what was asked of them
 * once for each change of that.
 */
export class UpgradeBundleReader {
  readonly #cluster: Cluster;
  #known: ReadonlyMap<string, UpgradeBundle> = new Map();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** All of them as they are now; of the status there are `phase`, `turn` and `nodesReady`. Throws what asking the cluster throws. */
  async list(): Promise<UpgradeBundle[]> {
    const rows = (await this.#cluster.listColumns(apiVersion, kind))?.map(readRow);
    // The definition is of an earlier version.
    if (!rows?.every((row) => row !== undefined)) return this.#listWhole();
    const found = await Promise.all(rows.map(async (row) => ({ ...row, bundle: await this.#read(row) })));
    this.#known = new Map(found.flatMap(({ key, bundle }) => (bundle ? [[key, bundle]] : [])));
    return found.flatMap(({ bundle, status }) => (bundle ? [{ ...bundle, status }] : []));
  }

  async #listWhole(): Promise<UpgradeBundle[]> {
    const bundles = (await this.#cluster.list(apiVersion, kind)) as unknown as UpgradeBundle[];
    return bundles.map((bundle) => ({ ...trim(bundle), status: statusOf({ ...bundle.status }) }));
  }

  async #read({ key, name }: Row): Promise<UpgradeBundle | undefined> {
    const known = this.#known.get(key);
    if (known) return known;
    const found = await this.#cluster.read({ apiVersion, kind, metadata: { name } });
    return found && trim(found as unknown as UpgradeBundle);
  }
}

/** What the columns say of an UpgradeBundle. */
interface Row {
  readonly name: string;
  /** Is another as soon as anything of it is another but its status. */
  readonly key: string;
  readonly status: UpgradeBundleStatus;
}

function readRow(row: Fields): Row | undefined {
  const [uid, generation] = [row[bundleColumns.uid], row[bundleColumns.generation]];
  if (typeof uid !== 'string' || typeof generation !== 'number') return undefined;
  const { phase, turn, nodesReady } = bundleColumns;
  const status = statusOf({ phase: row[phase], turn: row[turn], nodesReady: row[nodesReady] });
  return { name: String(row['Name']), key: `${uid} ${generation}`, status };
}

function statusOf({ phase, turn, nodesReady }: Fields): UpgradeBundleStatus {
  const known = phases.find((each) => each === phase);
  return {
    ...(known && { phase: known }),
    ...(typeof turn === 'string' && { turn }),
    ...(typeof nodesReady === 'string' && { nodesReady }),
  };
}

/** An UpgradeBundle without its status, and without what grows with that. */
function trim({ metadata, status: _status, ...bundle }: UpgradeBundle): UpgradeBundle {
  const { managedFields: _, ...kept } = metadata as UpgradeBundle['metadata'] & { managedFields?: unknown };
  return { ...bundle, metadata: kept };
}

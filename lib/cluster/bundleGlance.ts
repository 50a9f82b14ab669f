import type { Cluster } from './client.ts';
import type { Fields } from './fields.ts';
import { bundleColumns, phases, upgradeBundleKind, type UpgradeBundle } from './upgradeBundle.ts';

const { apiVersion, kind } = upgradeBundleKind;

/**
 * The UpgradeBundles as an agent needs them, without what all nodes say, which is most of them: their columns each time, and what was asked of them
 * once for each change of that.
 */
export class BundleGlance {
  readonly #cluster: Cluster;
  #known: ReadonlyMap<string, UpgradeBundle> = new Map();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** All of them as they are now; of the status there are `phase`, `turn` and `nodesReady`. Throws what asking the cluster throws. */
  async list(): Promise<UpgradeBundle[]> {
    const rows = await this.#cluster.listColumns(apiVersion, kind);
    // The definition is of an earlier version.
    if (!rows?.every((row) => keyOf(row) !== undefined)) return (await this.#listWhole()).map(trim);
    const pairs = await Promise.all(rows.map(async (row) => [keyOf(row) ?? '', await this.#read(row)] as const));
    this.#known = new Map(pairs.flatMap(([key, bundle]) => (bundle ? [[key, bundle]] : [])));
    return pairs.flatMap(([, bundle], index) => (bundle ? [{ ...bundle, status: statusOf(rows[index] ?? {}) }] : []));
  }

  async #listWhole(): Promise<UpgradeBundle[]> {
    return (await this.#cluster.list(apiVersion, kind)) as unknown as UpgradeBundle[];
  }

  async #read(row: Fields): Promise<UpgradeBundle | undefined> {
    const known = this.#known.get(keyOf(row) ?? '');
    if (known) return known;
    const found = await this.#cluster.read({ apiVersion, kind, metadata: { name: String(row['Name']) } });
    return found && trim(found as unknown as UpgradeBundle);
  }
}

/** What is another as soon as anything of an UpgradeBundle is another but its status. */
function keyOf(row: Fields): string | undefined {
  const [uid, generation] = [row[bundleColumns.uid], row[bundleColumns.generation]];
  return typeof uid === 'string' && typeof generation === 'number' ? `${uid} ${String(generation)}` : undefined;
}

function statusOf(row: Fields): NonNullable<UpgradeBundle['status']> {
  const [phase, turn, nodesReady] = [row[bundleColumns.phase], row[bundleColumns.turn], row[bundleColumns.nodesReady]];
  const known = phases.find((each) => each === phase);
  return {
    ...(known && { phase: known }),
    ...(typeof turn === 'string' && { turn }),
    ...(typeof nodesReady === 'string' && { nodesReady }),
  };
}

function trim({ metadata, status, ...bundle }: UpgradeBundle): UpgradeBundle {
  const { managedFields: _, ...kept } = metadata as UpgradeBundle['metadata'] & { managedFields?: unknown };
  const { phase, turn, nodesReady } = status ?? {};
  const short = { ...(phase && { phase }), ...(turn !== undefined && { turn }), ...(nodesReady && { nodesReady }) };
  return { ...bundle, metadata: kept, status: short };
}

import type { Cluster } from './client.ts';
import type { StoredObject } from './fields.ts';

/** Reads all objects of a kind, as `Cluster.list` does; none if the cluster does not serve the kind. */
export async function listServed(
  cluster: Cluster,
  ...[apiVersion, kind, options]: Parameters<Cluster['list']>
): Promise<StoredObject[]> {
  return (await cluster.findKind(apiVersion, kind)) ? await cluster.list(apiVersion, kind, options) : [];
}

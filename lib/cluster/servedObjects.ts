import type { Cluster } from './client.ts';
import type { StoredObject } from './storedObject.ts';

/** Reads all objects of a kind, as `Cluster.list` does; none if the cluster does not serve the kind. */
export async function listServed(
  cluster: Cluster,
  ...[apiVersion, kind, options]: Parameters<Cluster['list']>
): Promise<StoredObject[]> {
  return (await cluster.findKind(apiVersion, kind)) ? await cluster.list(apiVersion, kind, options) : [];
}

/**
 * Reads the objects of a kind whose metadata match, and only the metadata of the others; none if the cluster does not
 * serve the kind. Throws the errors of `Cluster.read`.
 */
export async function readMatching(
  cluster: Cluster,
  apiVersion: string,
  kind: string,
  matches: (object: StoredObject) => boolean,
): Promise<StoredObject[]> {
  if (!(await cluster.findKind(apiVersion, kind))) return [];
  const matchingObjects = (await cluster.listMetadata(apiVersion, kind)).filter(matches);
  const read = matchingObjects.map(({ metadata: { name, namespace } }) =>
    cluster.read({ apiVersion, kind, metadata: { name, namespace } }),
  );
  return (await Promise.all(read)).filter((each) => each !== undefined);
}

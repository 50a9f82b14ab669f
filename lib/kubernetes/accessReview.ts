import { isPluginError } from '../errors.ts';
import type { Cluster } from './client.ts';
import type { ObjectReference } from './discovery.ts';
import { fieldsOf } from './fields.ts';

/** What a user may be allowed to do with an object. */
export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete';

const reviewKind = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview' } as const;

/**
 * Returns whether the cluster lets this user do something with an object, as `oc auth can-i` does. True if the cluster does not serve
 * its kind, or answers no such questions. Throws what Cluster.create throws.
 */
export async function isAllowed(
  cluster: Cluster,
  verb: Verb,
  { apiVersion, kind, metadata }: ObjectReference,
): Promise<boolean> {
  const served = await cluster.findKind(apiVersion, kind);
  if (!served) return true;
  const { namespace = cluster.namespace } = metadata;
  const resourceAttributes = {
    verb,
    group: apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '',
    resource: served.resource,
    ...(served.namespaced && { namespace }),
    // When an object is created, the cluster does not compare its name.
    ...(verb !== 'create' && { name: metadata.name }),
  };
  try {
    const review = await cluster.create({ ...reviewKind, metadata: { name: '' }, spec: { resourceAttributes } });
    return fieldsOf(review['status'])['allowed'] === true;
  } catch (error) {
    if (isPluginError(error, 'not-served') || isPluginError(error, 'denied')) return true;
    throw error;
  }
}

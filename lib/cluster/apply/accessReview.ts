import type { Written } from '#config/manifest';
import { isPluginError } from '#errors';
import { fieldsOf } from '#fields';
import type { Cluster } from '../client.ts';
import type { ObjectReference } from '../objects/discovery.ts';

/** What a user may be allowed to do with an object. */
export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete';

/** A request that needs a right. Its object has an empty name, or namespace, if the verb is for all of them. */
export interface AccessRequest {
  readonly verb: Verb;
  readonly object: ObjectReference;
  /** A part of the object that has rights of its own: `exec`, `proxy`. */
  readonly subresource?: string;
}

const reviewKind = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview' } as const;

/**
 * Returns whether the cluster lets this user do something with an object, as `oc auth can-i` does. True if the cluster
 * does not serve its kind, or answers no such questions. Throws what Cluster.create throws.
 */
export async function isAllowed(
  cluster: Cluster,
  verb: Verb,
  { apiVersion, kind, metadata }: ObjectReference,
  subresource?: string,
): Promise<boolean> {
  const served = await cluster.findKind(apiVersion, kind);
  if (!served) return true;
  const { namespace = cluster.namespace } = metadata;
  const resourceAttributes: ReviewedAccess = {
    verb,
    group: apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '',
    resource: served.resource,
    ...(subresource !== undefined && { subresource }),
    ...(served.namespaced && { namespace }),
    // When an object is created, the cluster does not compare its name. Without a name, all objects are meant.
    ...(verb !== 'create' && metadata.name !== '' && { name: metadata.name }),
  };
  return review(cluster, resourceAttributes);
}

type Review = Written<'SelfSubjectAccessReview'>;
type ReviewedAccess = NonNullable<Review['spec']['resourceAttributes']>;

async function review(cluster: Cluster, resourceAttributes: ReviewedAccess): Promise<boolean> {
  const object: Review = { ...reviewKind, metadata: { name: '' }, spec: { resourceAttributes } };
  try {
    const answer = await cluster.create(object);
    return fieldsOf(answer['status'])['allowed'] === true;
  } catch (error) {
    if (isPluginError(error, 'not-served') || isPluginError(error, 'denied')) return true;
    throw error;
  }
}

/**
 * Returns the requests that the cluster does not allow this user, each as the arguments of `oc auth can-i`, with verb,
 * resource and API group: `create deployments.apps -n web`. Throws what isAllowed throws.
 */
export async function listDenied(cluster: Cluster, requests: readonly AccessRequest[]): Promise<string[]> {
  // An installation needs more than a hundred rights, and its user is usually a cluster administrator.
  if (requests.length > 1 && (await review(cluster, { verb: '*', group: '*', resource: '*' }))) return [];
  const named = await Promise.all(requests.map((request) => formatRequest(cluster, request)));
  const unique = new Map(requests.map((request, position) => [named[position] ?? '', request]));
  const denied = await Promise.all(
    [...unique].map(async ([words, { verb, object, subresource }]) =>
      (await isAllowed(cluster, verb, object, subresource)) ? [] : [words],
    ),
  );
  return denied.flat().sort();
}

async function formatRequest(cluster: Cluster, { verb, object, subresource }: AccessRequest): Promise<string> {
  const { apiVersion, kind, metadata } = object;
  const served = await cluster.findKind(apiVersion, kind);
  const resource = served?.resource ?? kind.toLowerCase();
  const group = apiVersion.includes('/') ? `.${apiVersion.slice(0, apiVersion.indexOf('/'))}` : '';
  const name = metadata.name === '' || verb === 'create' ? '' : `/${metadata.name}`;
  const part = subresource === undefined ? '' : ` --subresource=${subresource}`;
  const scope =
    served?.namespaced !== true
      ? ''
      : metadata.namespace === ''
        ? ' -A'
        : ` -n ${metadata.namespace ?? cluster.namespace}`;
  return `${verb} ${resource}${group}${name}${part}${scope}`;
}

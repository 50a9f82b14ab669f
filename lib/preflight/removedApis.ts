import { fieldsOf, listOf, textOf } from '../fields.ts';
import type { SiteApi } from '../config/siteTypes.ts';
import type { Cluster } from '../kubernetes/client.ts';
import { listServed } from '../kubernetes/servedObjects.ts';

/** The kind that counts the requests for each API within a day. */
const requestCountKind = ['apiserver.openshift.io/v1', 'APIRequestCount'] as const;

// They ask for every API that is served (documentation of OpenShift, “Preparing to upgrade”).
const controllers = new Set([
  'system:kube-controller-manager',
  'system:cluster-policy-controller',
  'system:serviceaccount:kube-system:generic-garbage-collector',
  'system:serviceaccount:kube-system:namespace-controller',
]);

const mostUsers = 10;

/**
 * Lists the APIs that clients use and that a later version of Kubernetes removes. Controllers that ask for every API do
 * not count. Throws the errors of reading the cluster.
 */
export async function listRemovedApis(cluster: Cluster): Promise<SiteApi[]> {
  const counts = await listServed(cluster, ...requestCountKind);
  const apis = counts.flatMap(({ metadata, status }): SiteApi[] => {
    const { removedInRelease, requestCount, currentHour, last24h } = fieldsOf(status);
    const removedIn = textOf(removedInRelease);
    if (removedIn === undefined || removedIn === '' || Number(requestCount ?? 0) === 0) return [];
    const nodes = [fieldsOf(currentHour), ...listOf(last24h)].flatMap(({ byNode }) => listOf(byNode));
    const names = nodes.flatMap(({ byUser }) => listOf(byUser).flatMap(({ username }) => textOf(username) ?? []));
    const users = [...new Set(names)].filter((name) => !controllers.has(name)).sort();
    return users.length === 0 ? [] : [{ name: metadata.name, removedIn, users: users.slice(0, mostUsers) }];
  });
  return apis.sort((a, b) => (a.name < b.name ? -1 : 1));
}

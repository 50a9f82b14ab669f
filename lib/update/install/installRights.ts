import type { KubernetesObject } from '../../config/manifest.ts';
import { PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import { listDenied, type AccessRequest } from '../../cluster/accessReview.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { ObjectReference } from '../../cluster/discovery.ts';
import { agentNamespace } from '../upgradeBundle.ts';

/** Pods of the agents, which `install` lists, and in which it runs commands to upload the executable. */
const pods: ObjectReference = { apiVersion: 'v1', kind: 'Pod', metadata: { name: '', namespace: agentNamespace } };

/** Returns the requests of an installation that applies some objects and removes others. */
function listRequests(applied: readonly ObjectReference[], removed: readonly ObjectReference[]): AccessRequest[] {
  return [
    ...applied.flatMap((object) => (['get', 'create', 'patch'] as const).map((verb) => ({ verb, object }))),
    ...removed.map((object) => ({ verb: 'delete', object }) as const),
    { verb: 'list', object: pods },
    { verb: 'create', object: pods, subresource: 'exec' },
  ];
}

/**
 * Checks that the user has each right that an installation needs, before it changes anything. Throws `denied` with the
 * missing rights.
 */
export async function requireRights(
  cluster: Cluster,
  applied: readonly (KubernetesObject | ObjectReference)[],
  removed: readonly ObjectReference[],
): Promise<void> {
  const denied = await listDenied(cluster, listRequests(applied, removed));
  const [first] = denied;
  if (first === undefined) return;
  const rights = denied.length === 1 ? '1 right' : `${denied.length} rights`;
  throw new PluginError('denied', `this user lacks ${rights} to install: ${nameSome(denied, 5)}`, {
    hint: `Run this as cluster-admin. To check one right: oc auth can-i ${first}`,
    settings: ['context'],
  });
}

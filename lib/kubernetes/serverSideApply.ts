import { isDeepStrictEqual } from 'node:util';
import type { KubernetesObject } from '../config/manifest.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import type { Cluster } from './client.ts';
import type { StoredObject } from './fields.ts';
import type { ObjectReference } from './discovery.ts';
import { findDifferences } from './difference.ts';
import { listOf } from './fields.ts';
import { ApiError } from './refusals.ts';
import { formatObjectName } from './compatibility.ts';

/** How to apply: `client` only looks, `server` lets the cluster check and keep nothing; `overwrite` takes fields over that others own. */
export interface StateOptions {
  readonly dryRun?: 'client' | 'server' | undefined;
  readonly overwrite: boolean;
}

/** What became of an object that was stated; with a dry run, what would have become of it. */
export interface StatedObject {
  readonly object: KubernetesObject;
  readonly outcome: 'created' | 'configured' | 'unchanged';
}

/**
 * Applies objects on the server’s side, one after the other, and stops at the first that fails: those that follow need it. Fields that we do not
 * state stay as they are. Throws `conflict` where somebody else has set a field that we state otherwise, and what Cluster.apply does, with the
 * name of the object.
 */
export async function applyObjects(
  cluster: Cluster,
  objects: readonly KubernetesObject[],
  options: StateOptions,
  context: Context,
): Promise<StatedObject[]> {
  const stated: StatedObject[] = [];
  for (const object of objects) {
    checkInterrupted(context.signal);
    try {
      stated.push({ object, outcome: await stateOne(cluster, object, options) });
    } catch (error) {
      const inPromised =
        options.dryRun !== undefined && isPluginError(error, 'not-found') && hasPromised(stated, object);
      if (!inPromised) throw explain(error, object);
      // The server cannot check what goes into a namespace that this very dry run would have created.
      stated.push({ object, outcome: 'created' });
    }
  }
  return stated;
}

async function stateOne(
  cluster: Cluster,
  object: KubernetesObject,
  { dryRun, overwrite }: StateOptions,
): Promise<StatedObject['outcome']> {
  const before = await cluster.read(object);
  if (dryRun === 'client') {
    if (!before) return 'created';
    return findDifferences(before, object).length === 0 ? 'unchanged' : 'configured';
  }
  const after = await cluster.apply(object, { dryRun: dryRun === 'server', force: overwrite });
  if (!before) return 'created';
  return isDeepStrictEqual(contentOf(before), contentOf(after)) ? 'unchanged' : 'configured';
}

/** What people and we state of an object: not what the server notes about it, which may change at any moment. */
function contentOf({ status: _, metadata, ...content }: StoredObject): object {
  const { resourceVersion: __, managedFields: ___, generation: ____, ...stated } = metadata;
  return { ...content, metadata: stated };
}

/**
 * Deletes objects, one after the other, and gives those that existed. Kinds that the cluster does not serve have none. Throws what
 * Cluster.delete does.
 */
export async function deleteObjects<Reference extends ObjectReference>(
  cluster: Cluster,
  references: readonly Reference[],
  { dryRun }: Pick<StateOptions, 'dryRun'>,
  context: Context,
): Promise<Reference[]> {
  const gone: Reference[] = [];
  for (const reference of references) {
    checkInterrupted(context.signal);
    if (!(await cluster.findKind(reference.apiVersion, reference.kind))) continue;
    const existed =
      dryRun === 'client'
        ? (await cluster.read(reference)) !== undefined
        : await cluster.delete(reference, { dryRun: dryRun === 'server' });
    if (existed) gone.push(reference);
  }
  return gone;
}

function hasPromised(stated: readonly StatedObject[], { metadata }: KubernetesObject): boolean {
  return stated.some(
    ({ object, outcome }) =>
      outcome === 'created' && object.kind === 'Namespace' && object.metadata.name === metadata.namespace,
  );
}

function explain(error: unknown, object: KubernetesObject): unknown {
  if (!isPluginError(error) || error.code === 'interrupted') return error;
  const causes = error instanceof ApiError ? listOf(error.details['causes']) : [];
  const owned = causes.filter(({ reason }) => reason === 'FieldManagerConflict').map(({ field }) => String(field));
  if (owned.length > 0) {
    return new PluginError(
      'conflict',
      `${formatObjectName(object)} was changed by somebody else: ${owned.join(', ')}`,
      {
        hint: 'See by whom: oc get -o yaml --show-managed-fields. --overwrite sets it as it should be.',
        cause: error,
      },
    );
  }
  return new PluginError(error.code, `${formatObjectName(object)}: ${error.message}`, {
    hint: error.hint,
    cause: error,
  });
}

import { isDeepStrictEqual } from 'node:util';
import type { KubernetesObject } from '#config/manifest';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { listOf } from '#fields';
import { shellCommand } from '#text';
import type { Cluster } from '../client.ts';
import { formatObjectName } from '../objects/compatibility.ts';
import type { ObjectReference } from '../objects/discovery.ts';
import type { StoredObject } from '../objects/storedObject.ts';
import { ApiError } from './apiErrors.ts';
import type { ApplyOptions } from './apply.ts';
import { findDifferences } from './difference.ts';

/** An applied object; in a dry run, the result that applying would have. */
export interface AppliedObject {
  readonly object: KubernetesObject;
  readonly outcome: 'created' | 'configured' | 'unchanged';
}

/**
 * Applies objects by server-side apply, in order. Stops at the first failure, because later objects need the earlier
 * ones. Keeps fields that the objects do not name. Throws `conflict` if another manager has set a field to another
 * value, and `not-ready` for an object that is being deleted. Also throws the errors of Cluster.apply. All name the
 * object.
 */
export async function applyObjects(
  cluster: Cluster,
  objects: readonly KubernetesObject[],
  options: ApplyOptions,
  context: Context,
): Promise<AppliedObject[]> {
  const applied: AppliedObject[] = [];
  for (const object of objects) {
    checkInterrupted(context.signal);
    try {
      applied.push({ object, outcome: await applyObject(cluster, object, options) });
    } catch (error) {
      const isInNewNamespace =
        options.dryRun !== undefined && isPluginError(error, 'not-found') && createsNamespace(applied, object);
      if (!isInNewNamespace) throw explain(error, object);
      // The server cannot check objects of a namespace that this dry run would create.
      applied.push({ object, outcome: 'created' });
    }
  }
  return applied;
}

async function applyObject(
  cluster: Cluster,
  object: KubernetesObject,
  { dryRun, overwrite, ...options }: ApplyOptions,
): Promise<AppliedObject['outcome']> {
  const before = await cluster.read(object);
  if (before?.metadata['deletionTimestamp'] !== undefined)
    throw new PluginError('not-ready', 'it is being deleted, and would be lost', {
      hint: shellCommand`Wait until it is gone: oc get ${formatObjectName(object)} -o yaml says what it waits for.`,
    });
  if (dryRun === 'client') {
    if (!before) return 'created';
    return findDifferences(before, object).length === 0 ? 'unchanged' : 'configured';
  }
  const after = await cluster.apply(object, { ...options, dryRun: dryRun === 'server', force: overwrite });
  if (!before) return 'created';
  return isDeepStrictEqual(contentOf(before), contentOf(after)) ? 'unchanged' : 'configured';
}

/** Returns an object without the fields that the server writes, which may change at any moment. */
function contentOf({ status: _, metadata, ...content }: StoredObject): object {
  const { resourceVersion: __, managedFields: ___, generation: ____, ...named } = metadata;
  return { ...content, metadata: named };
}

/**
 * Deletes objects in order, and returns the deleted ones. Skips objects that do not exist, and kinds that the cluster
 * does not serve. Throws the errors of Cluster.delete.
 */
export async function deleteObjects<Reference extends ObjectReference>(
  cluster: Cluster,
  references: readonly Reference[],
  { dryRun }: Pick<ApplyOptions, 'dryRun'>,
  context: Context,
): Promise<Reference[]> {
  const deleted: Reference[] = [];
  for (const reference of references) {
    checkInterrupted(context.signal);
    if (!(await cluster.findKind(reference.apiVersion, reference.kind))) continue;
    const existed =
      dryRun === 'client'
        ? (await cluster.read(reference)) !== undefined
        : await cluster.delete(reference, { dryRun: dryRun === 'server' });
    if (existed) deleted.push(reference);
  }
  return deleted;
}

function createsNamespace(applied: readonly AppliedObject[], { metadata }: KubernetesObject): boolean {
  return applied.some(
    ({ object, outcome }) =>
      outcome === 'created' && object.kind === 'Namespace' && object.metadata.name === metadata.namespace,
  );
}

function explain(error: unknown, object: KubernetesObject): unknown {
  if (!isPluginError(error) || error.code === 'interrupted') return error;
  const causes = error instanceof ApiError ? listOf(error.details['causes']) : [];
  const owned = causes.filter(({ reason }) => reason === 'FieldManagerConflict').map(({ field }) => String(field));
  if (owned.length > 0) {
    const message = `${formatObjectName(object)} was changed by another manager: ${owned.join(', ')}`;
    const hint =
      'To see which manager: oc get -o yaml --show-managed-fields. Overwrite its values if they are not needed.';
    return new PluginError('conflict', message, { hint, settings: ['overwrite'], cause: error });
  }
  return new PluginError(error.code, `${formatObjectName(object)}: ${error.message}`, {
    hint: error.hint,
    cause: error,
  });
}

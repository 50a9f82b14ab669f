import type { ConfigManifest, KubernetesObject } from '../config/manifest.ts';
import { keepMirrors } from '../config/mirrorSets.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import type { Cluster } from './client.ts';
import type { StoredObject } from './fields.ts';
import { findDifferences, overlay } from './difference.ts';
import { ApiError } from './refusals.ts';
import {
  findIncompatibility,
  formatObjectName,
  readClusterVersionInfo,
  type ClusterVersionInfo,
} from './compatibility.ts';

/** What became of one manifest; with a dry run, what would have become of it. */
export interface ApplyOutcome {
  readonly manifest: ConfigManifest;
  /** kubectl’s words, and `conflict` for an object that exists with other content and was left alone. */
  readonly outcome: 'created' | 'configured' | 'unchanged' | 'conflict' | 'failed' | 'skipped';
  /** What a `conflict` is about, and what `configured` has overwritten: `path: theirs → ours`. */
  readonly differences?: readonly string[];
  /** Why it `failed`. */
  readonly error?: PluginError;
  /** What to know about it although it was applied, or why it was `skipped`. */
  readonly warning?: string;
}

/** How to apply: whether to replace what differs, and whether only to look (`client`) or to let the server check (`server`). */
export interface ApplyOptions {
  readonly overwrite: boolean;
  readonly dryRun?: 'client' | 'server' | undefined;
}

/** What is known while a set of manifests is applied. */
interface Application extends ApplyOptions {
  readonly cluster: Cluster;
  readonly context: Context;
  readonly age: ClusterVersionInfo;
  /** Namespaces of the set that a dry run did not create. */
  readonly promised: Set<string>;
}

/**
 * Applies manifests, namespaces and definitions of kinds first, and gives their outcomes in the order of the manifests. A manifest that fails does not keep
 * the others from being applied. An object with other content is changed only with `overwrite`, and only when it is
 * still the one that was compared, and no mirror set loses a mirror. The version operator’s own `signatures-managed` is never touched. Throws what keeps it from reading
 * the cluster’s version, such as `unreachable` and `unauthorized`, and `interrupted`.
 */
export async function applyManifests(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  options: ApplyOptions,
  context: Context,
): Promise<ApplyOutcome[]> {
  const application = {
    ...options,
    cluster,
    context,
    age: await readClusterVersionInfo(cluster),
    promised: new Set<string>(),
  };
  const outcomes = new Map<ConfigManifest, ApplyOutcome>();
  for (const manifest of manifests.toSorted((a, b) => rank(a) - rank(b))) {
    checkInterrupted(context.signal);
    outcomes.set(manifest, { manifest, ...(await applyOne(application, manifest.object)) });
  }
  return manifests.flatMap((manifest) => outcomes.get(manifest) ?? []);
}

function rank({ object }: ConfigManifest): number {
  const found = ['Namespace', 'CustomResourceDefinition'].indexOf(object.kind);
  return found < 0 ? 2 : found;
}

type Outcome = Omit<ApplyOutcome, 'manifest'>;

async function applyOne(application: Application, object: KubernetesObject): Promise<Outcome> {
  const { cluster, age, context } = application;
  if (isManagedByOperator(object)) {
    return {
      outcome: 'skipped',
      warning: `${formatObjectName(object)} belongs to the version operator, which writes it itself.`,
    };
  }
  try {
    const skew = await findIncompatibility(cluster, age, object);
    if (skew && !skew.applicable) return { outcome: 'skipped', warning: skew.warning };
    const outcome = await reconcile(application, object);
    return { ...outcome, ...(skew && { warning: skew.warning }) };
  } catch (error) {
    checkInterrupted(context.signal);
    if (isPluginError(error, 'interrupted')) throw error;
    return { outcome: 'failed', error: explain(error, object) };
  }
}

function isManagedByOperator({ kind, metadata }: KubernetesObject): boolean {
  return kind === 'ConfigMap' && metadata.name === 'signatures-managed';
}

/** Compares and writes, and compares anew when the object was not the one any more: somebody else wrote, or an answer of ours was lost. */
async function reconcile(application: Application, manifest: KubernetesObject): Promise<Outcome> {
  let tried: Outcome | undefined;
  for (let attempt = 1; ; attempt += 1) {
    const stored = await application.cluster.read(manifest);
    // Running releases may need the mirrors that the manifest does not have.
    const object = keepMirrors(manifest, stored);
    const planned = await plan(application, object, stored);
    // A write whose answer got lost was carried out when there is nothing left to do.
    if (planned.outcome === 'unchanged' && tried) return tried;
    if (planned.outcome !== 'created' && planned.outcome !== 'configured') return planned;
    try {
      await carryOut(application, object, stored);
      return planned;
    } catch (error) {
      if (attempt === 2 || !isOutdated(error)) throw error;
      tried = isPluginError(error, 'unreachable') ? planned : undefined;
      application.context.log('debug', `${formatObjectName(object)}: ${messageOf(error)}; comparing it anew`);
    }
  }
}

async function plan(
  { cluster, overwrite, dryRun, promised }: Application,
  object: KubernetesObject,
  stored: StoredObject | undefined,
): Promise<Outcome> {
  if (stored) {
    const differences = findDifferences(stored, object);
    if (differences.length === 0) return { outcome: 'unchanged' };
    return { outcome: overwrite ? 'configured' : 'conflict', differences };
  }
  if (dryRun === 'client') {
    const namespace = await missingNamespace(cluster, object);
    if (namespace !== undefined && !promised.has(namespace)) throw noNamespace(object, namespace);
  }
  if (dryRun && object.kind === 'Namespace') promised.add(object.metadata.name);
  return { outcome: 'created' };
}

async function carryOut(
  { cluster, dryRun, promised }: Application,
  object: KubernetesObject,
  stored: StoredObject | undefined,
): Promise<void> {
  if (dryRun === 'client') return;
  const options = { dryRun: dryRun === 'server' };
  if (stored) {
    await cluster.update(overlay(stored, object), options);
    return;
  }
  try {
    await cluster.create(object, options);
  } catch (error) {
    if (!isPluginError(error, 'not-found')) throw error;
    const namespace = await missingNamespace(cluster, object);
    if (namespace === undefined) throw error;
    // The server cannot check what goes into a namespace that this very dry run would have created.
    if (!promised.has(namespace)) throw noNamespace(object, namespace);
  }
}

function isOutdated(error: unknown): boolean {
  if (isPluginError(error, 'unreachable')) return true;
  if (!(error instanceof ApiError)) return false;
  return error.reason === 'Conflict' || error.reason === 'AlreadyExists' || error.status === 404;
}

async function missingNamespace(cluster: Cluster, object: KubernetesObject): Promise<string | undefined> {
  const served = await cluster.findKind(object.apiVersion, object.kind);
  if (!served?.namespaced) return undefined;
  const name = object.metadata.namespace ?? cluster.namespace;
  return (await cluster.read({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })) ? undefined : name;
}

function noNamespace(object: KubernetesObject, namespace: string): PluginError {
  return new PluginError(
    'not-found',
    `${formatObjectName(object)} is for the namespace “${namespace}”, which does not exist`,
    {
      hint: namespace.startsWith('openshift-')
        ? `The cluster or the operator that it is for brings this namespace: is that installed? Else: oc create namespace ${namespace}`
        : `Create it first: oc create namespace ${namespace}`,
    },
  );
}

function explain(error: unknown, object: KubernetesObject): PluginError {
  if (!isPluginError(error)) return new PluginError('internal', messageOf(error), { cause: error });
  if (error instanceof ApiError && error.reason === 'Conflict') {
    return new PluginError(
      'conflict',
      `${formatObjectName(object)} is being changed by somebody else: ${error.message}`,
      {
        hint: 'See who changes it (oc get -o yaml --show-managed-fields), then apply again.',
        cause: error,
      },
    );
  }
  return error;
}

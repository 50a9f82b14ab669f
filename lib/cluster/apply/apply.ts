import { keepAuthorities } from '#config/certificateAuthority';
import type { ConfigManifest, KubernetesObject } from '#config/manifest';
import { keepMirrors, listKeptMirrors } from '#config/mirrorSets';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { shellCommand } from '#text';
import type { Cluster } from '../client.ts';
import {
  checkCompatibility,
  formatObjectName,
  readClusterVersionInfo,
  type ClusterVersionInfo,
} from '../objects/compatibility.ts';
import type { StoredObject } from '../objects/storedObject.ts';
import { ApiError } from './apiErrors.ts';
import { findDifferences, isAddition, mergeManifest, withLastApplied } from './difference.ts';

/** The result for one manifest; in a dry run, the result that applying would have. */
export interface ApplyOutcome {
  readonly manifest: ConfigManifest;
  /** The outcome in the words of kubectl. `conflict`: the object exists with other content, and was not changed. */
  readonly outcome: 'created' | 'configured' | 'unchanged' | 'conflict' | 'failed' | 'skipped';
  /** The differences of a `conflict`, or the values that `configured` replaced: `path: theirs → ours`. */
  readonly differences?: readonly string[];
  /** The mirrors that the object of the cluster has in addition to those of the manifest, and that stay in it. */
  readonly kept?: readonly string[];
  /** The error of a `failed` manifest. */
  readonly error?: PluginError;
  /** The reason why it may have no effect, or why it was `skipped`. */
  readonly warning?: string;
}

/**
 * Options of applying objects. A dry run only compares (`client`), or lets the server check without keeping anything
 * (`server`).
 */
export interface ApplyOptions {
  /** Replace values that differ, or that another manager has set. Mirrors and CAs are only added. */
  readonly overwrite: boolean;
  readonly dryRun?: 'client' | 'server' | undefined;
  /** The field manager of server-side apply, by default that of all writes. */
  readonly manager?: string;
}

interface Application extends ApplyOptions {
  readonly cluster: Cluster;
  readonly context: Context;
  readonly info: ClusterVersionInfo;
  /** The namespaces of the manifests that a dry run did not create. */
  readonly newNamespaces: Set<string>;
}

/**
 * Applies manifests, namespaces and definitions of kinds first. Returns the outcomes in the order of the manifests. A
 * failed manifest does not stop the others. Replaces other content only with `overwrite`, and only if it has not
 * changed since the comparison. Adds to mirror sets and CAs, and removes none. Never changes the version operator’s
 * `signatures-managed`. Throws `interrupted`, and the errors of reading the cluster’s version.
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
    info: await readClusterVersionInfo(cluster),
    newNamespaces: new Set<string>(),
  };
  const outcomes = new Map<ConfigManifest, ApplyOutcome>();
  for (const manifest of manifests.toSorted((a, b) => rank(a) - rank(b))) {
    checkInterrupted(context.signal);
    outcomes.set(manifest, { manifest, ...(await applyOne(application, manifest.object)) });
  }
  return manifests.flatMap((manifest) => outcomes.get(manifest) ?? []);
}

function rank({ object }: ConfigManifest): number {
  const position = ['Namespace', 'CustomResourceDefinition'].indexOf(object.kind);
  return position < 0 ? 2 : position;
}

type Outcome = Omit<ApplyOutcome, 'manifest'>;

async function applyOne(application: Application, object: KubernetesObject): Promise<Outcome> {
  const { cluster, info, context } = application;
  if (isManagedByOperator(object)) {
    return {
      outcome: 'skipped',
      warning: `${formatObjectName(object)} belongs to the version operator, which writes it.`,
    };
  }
  try {
    const warning = await checkCompatibility(cluster, info, object);
    const outcome = await compareAndWrite(application, object);
    return { ...outcome, ...(warning !== undefined && { warning }) };
  } catch (error) {
    checkInterrupted(context.signal);
    if (isPluginError(error, 'interrupted')) throw error;
    return { outcome: 'failed', error: explain(error, object) };
  }
}

function isManagedByOperator({ kind, metadata }: KubernetesObject): boolean {
  return kind === 'ConfigMap' && metadata.name === 'signatures-managed';
}

/** Compares again if another client changed the object meanwhile, or if the response to the write was lost. */
async function compareAndWrite(application: Application, manifest: KubernetesObject): Promise<Outcome> {
  let tried: Outcome | undefined;
  for (let attempt = 1; ; attempt += 1) {
    const stored = await application.cluster.read(manifest);
    // Running releases may need the mirrors and CAs that the manifest does not have.
    const object = keepAuthorities(keepMirrors(manifest, stored), stored);
    const kept = listKeptMirrors(manifest, stored);
    const planned = { ...(await plan(application, object, stored)), ...(kept.length > 0 && { kept }) };
    // If nothing is left to do, the write whose response was lost took effect.
    if (planned.outcome === 'unchanged' && tried) return tried;
    if (planned.outcome !== 'created' && planned.outcome !== 'configured') return planned;
    try {
      await write(application, object, stored);
      return planned;
    } catch (error) {
      if (attempt === 2 || !isOutdated(error)) throw error;
      tried = isPluginError(error, 'unreachable') ? planned : undefined;
      application.context.log('debug', `${formatObjectName(object)}: ${messageOf(error)}; comparing it again`);
    }
  }
}

async function plan(
  { cluster, overwrite, dryRun, newNamespaces }: Application,
  object: KubernetesObject,
  stored: StoredObject | undefined,
): Promise<Outcome> {
  if (stored) {
    const differences = findDifferences(stored, object);
    if (differences.length === 0) return { outcome: 'unchanged' };
    const isAllowed = overwrite || (isShared(object) && isAddition(stored, object));
    return { outcome: isAllowed ? 'configured' : 'conflict', differences };
  }
  if (dryRun === 'client') {
    const namespace = await missingNamespace(cluster, object);
    if (namespace !== undefined && !newNamespaces.has(namespace)) throw noNamespace(object, namespace);
  }
  if (dryRun && object.kind === 'Namespace') newNamespaces.add(object.metadata.name);
  return { outcome: 'created' };
}

/** Returns whether several releases share an object. An addition to it changes nothing for the others. */
function isShared({ kind, metadata }: KubernetesObject): boolean {
  const isAuthority = kind === 'ConfigMap' && metadata.namespace === 'openshift-config';
  return isAuthority || /^Image(?:DigestMirrorSet|TagMirrorSet|ContentSourcePolicy)?$/.test(kind);
}

async function write(
  { cluster, dryRun, newNamespaces }: Application,
  object: KubernetesObject,
  stored: StoredObject | undefined,
): Promise<void> {
  if (dryRun === 'client') return;
  const options = { dryRun: dryRun === 'server' };
  if (stored) {
    // What others applied to a shared object stays theirs: `oc apply` removes what its last file had and the new one
    // lacks.
    const applied = isShared(object) ? object : await annotate(cluster, object);
    await cluster.update(mergeManifest(stored, applied), options);
    return;
  }
  try {
    await cluster.create(await annotate(cluster, object), options);
  } catch (error) {
    if (!isPluginError(error, 'not-found')) throw error;
    const namespace = await missingNamespace(cluster, object);
    if (namespace === undefined) throw error;
    // The server cannot check objects of a namespace that this dry run would create.
    if (!newNamespaces.has(namespace)) throw noNamespace(object, namespace);
  }
}

async function annotate(cluster: Cluster, object: KubernetesObject): Promise<KubernetesObject> {
  const served = await cluster.findKind(object.apiVersion, object.kind);
  return withLastApplied(object, served?.namespaced ? cluster.namespace : undefined);
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
  const message = `${formatObjectName(object)} needs the namespace “${namespace}”, which does not exist`;
  const hint = namespace.startsWith('openshift-')
    ? 'An operator usually creates this namespace: check that it is installed. Or run ' +
      shellCommand`oc create namespace ${namespace}`
    : shellCommand`Create it: oc create namespace ${namespace}`;
  return new PluginError('not-found', message, { hint });
}

function explain(error: unknown, object: KubernetesObject): PluginError {
  if (!isPluginError(error)) return new PluginError('internal', messageOf(error), { cause: error });
  if (error instanceof ApiError && error.reason === 'Conflict') {
    const message = `${formatObjectName(object)} is being changed by another client: ${error.message}`;
    const hint = 'To see which client changes it: oc get -o yaml --show-managed-fields. Then apply again.';
    return new PluginError('conflict', message, { hint, cause: error });
  }
  return error;
}

import { ApiError } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { conditionsOf, type StoredObject } from '#cluster/objects';
import { type ClusterVersionPatch, clusterVersionReference } from '#cluster/version';
import type { MergePatch } from '#config/manifest';
import { hexOf, type Digest, digestIn } from '#content/oci';
import { type Context, awaitDone, type WaitOptions } from '#context';
import { ignoring, isPluginError, PluginError } from '#errors';
import { fieldsOf, withoutAbsent, fieldsAt, listOf, textOf, type Fields } from '#fields';
import { shellCommand } from '#text';
import {
  abortAnnotation,
  activeBundle,
  hasEnded,
  isAbortRequested,
  phaseOf,
  isWaitingForWindow,
  resumeAnnotation,
  startAnnotation,
  upgradeBundleKind,
  withdrawAbort,
  type UpgradeBundle,
  type WrittenBundle,
} from './upgradeBundle.ts';

const { apiVersion, kind } = upgradeBundleKind;

/** A request to update with a bundle. A field of `spec` that is undefined is kept. */
export interface BundleRequest extends Partial<Omit<UpgradeBundle['spec'], 'bundle'>> {
  /**
   * The name of the UpgradeBundle; by default that of the record with the digest, or the first digits of the digest.
   */
  readonly name?: string;
  /** The digest of the whole bundle, which the request allows. */
  readonly digest: Digest;
  /** The version and the digest of the last release of the bundle. */
  readonly version?: string;
  readonly releaseDigest?: Digest;
  /** A device or a file on any node. */
  readonly file?: string;
}

/** An UpgradeBundle after a request, and whether the request changed it. */
export interface RecordChange {
  readonly bundle: UpgradeBundle;
  readonly outcome: 'created' | 'configured' | 'unchanged';
  /** The record before; undefined for a new one. */
  readonly before?: UpgradeBundle;
}

/** Reads all UpgradeBundles, sorted by name. Throws `not-served` with a hint if the kind is not installed. */
export async function listRecords(cluster: Cluster): Promise<UpgradeBundle[]> {
  try {
    return (await cluster.list(apiVersion, kind)) as UpgradeBundle[];
  } catch (error) {
    if (!isPluginError(error, 'not-served')) throw error;
    throw new PluginError('not-served', `${cluster.name} does not know UpgradeBundles`, {
      hint: 'Nothing is installed there yet: oc adm-upgrade-bundle install.',
      cause: error,
    });
  }
}

/**
 * Returns the UpgradeBundle with a name. Without a name, returns the active one, else the newest. Throws `not-found`.
 */
export function chooseRecord(bundles: readonly UpgradeBundle[], name: string | undefined): UpgradeBundle {
  const names = bundles.map(({ metadata }) => metadata.name).join(', ');
  if (name !== undefined) {
    const named = bundles.find(({ metadata }) => metadata.name === name);
    if (named) return named;
    throw new PluginError('not-found', `there is no UpgradeBundle ${name}`, {
      hint: names === '' ? 'There is none at all.' : `There is ${names}.`,
    });
  }
  const ageOf = ({ metadata }: UpgradeBundle): string => metadata.creationTimestamp ?? '';
  const newest = bundles.toSorted((a, b) => (ageOf(a) < ageOf(b) ? 1 : -1))[0];
  const latest = activeBundle(bundles) ?? newest;
  if (latest) return latest;
  throw new PluginError('not-found', 'no bundle has been detected or applied', {
    hint: 'Insert a USB drive with a bundle into a node, or allow a bundle: oc adm-upgrade-bundle apply.',
  });
}

/** Reads the seconds since the version operator began. Undefined if it has not, or if the user may not read it. */
export async function readElapsed(cluster: Cluster, bundle: UpgradeBundle): Promise<number | undefined> {
  const { release } = bundle.status ?? {};
  if (phaseOf(bundle) !== 'Upgrading' || release === undefined) return undefined;
  const version = await cluster.read(clusterVersionReference).catch(ignoring('denied'));
  const start = version && readStart(version, release);
  return start && Math.max(0, cluster.now() - start.getTime()) / 1000;
}

/**
 * Follows the UpgradeBundle with a name, or the one in progress: yields it after each change of an UpgradeBundle, until
 * the signal is aborted. Yields undefined until there is one. Throws the errors of listRecords and of Cluster.watch.
 */
export async function* followRecord(
  cluster: Cluster,
  requestedName: string | undefined,
): AsyncGenerator<UpgradeBundle | undefined> {
  let name = requestedName;
  // Throws the error with its hint if the kind is not installed.
  await listRecords(cluster);
  for await (const objects of cluster.watch(apiVersion, kind)) {
    const bundles = objects as UpgradeBundle[];
    // The UpgradeBundle to follow may be created later.
    const followed = bundles.length === 0 ? undefined : chooseRecord(bundles, name);
    name = followed?.metadata.name ?? name;
    yield followed;
  }
}

/**
 * Allows a bundle by its digest: creates its UpgradeBundle, or completes the one of that name that an agent proposed.
 * Corrects a wrong digest until a bundle is verified. Keeps fields that are not requested. Throws `conflict` if another
 * update is running, if the record belongs to another bundle, or if it is to be aborted.
 */
export async function allowBundle(cluster: Cluster, request: BundleRequest): Promise<RecordChange> {
  const { name: requestedName, digest, version, releaseDigest, file, ...settings } = request;
  const records = await listRecords(cluster);
  const active = activeBundle(records);
  const allowed = active?.spec.bundle.digest === undefined ? undefined : active;
  const isAllowed = allowed?.spec.bundle.digest === digest;
  const name = requestedName ?? (isAllowed ? allowed.metadata.name : `bundle-${hexOf(digest).slice(0, 12)}`);
  const current = records.find(({ metadata }) => metadata.name === name);
  if (allowed && allowed !== current) throw isAllowed ? duplicate(allowed) : occupied(allowed);
  if (current) requireWanted(current);
  const stated = withoutAbsent({ digest, version, releaseDigest });
  const before = fieldsOf(current?.spec.bundle);
  const isWrong = Object.entries(stated).some(([field, value]) => (before[field] ?? value) !== value);
  if (current && isWrong && phaseOf(current) !== 'Detected') throw another(current);
  const spec: WrittenBundle['spec'] = { ...withoutAbsent(settings), bundle: withoutAbsent({ ...stated, file }) };
  const object: WrittenBundle = { apiVersion, kind, metadata: { name }, spec };
  if (!current) return { bundle: (await cluster.create(object)) as UpgradeBundle, outcome: 'created' };
  if (isWrong) return { bundle: await replace(cluster, current, spec), outcome: 'configured', before: current };
  const after = await change(cluster, current, { spec });
  return { bundle: after, before: current, outcome: isSame(current, after) ? 'unchanged' : 'configured' };
}

/**
 * Starts an update that `hold` or `holdBetween` stopped. One that is not held, and waits for a maintenance window,
 * starts outside of it. Throws `conflict` if it has ended, or is to be aborted.
 */
export async function resumeUpdate(cluster: Cluster, bundle: UpgradeBundle): Promise<RecordChange> {
  requireWanted(bundle);
  const { version } = bundle.status ?? {};
  const isBetween = bundle.spec.holdBetween === true && version !== undefined;
  const annotations = {
    ...(isBetween && { [resumeAnnotation]: version }),
    ...(isWaitingForWindow(bundle) && { [startAnnotation]: version }),
  };
  const metadata = Object.keys(annotations).length > 0 && { metadata: { annotations } };
  const after = await change(cluster, bundle, { ...metadata, spec: { hold: false } });
  return { bundle: after, outcome: isSame(bundle, after) ? 'unchanged' : 'configured' };
}

/**
 * Asks the controller to abort an update, which leaves the cluster unchanged. First clears the request if the version
 * operator refuses the release. Throws `conflict` with a hint if the update has begun or has ended.
 */
export async function abortUpdate(cluster: Cluster, bundle: UpgradeBundle): Promise<RecordChange> {
  if (phaseOf(bundle) === 'Upgrading' && !(await clearRefused(cluster, bundle))) throw begun(bundle);
  if (hasEnded(bundle)) throw ended(bundle);
  try {
    // Change only this version of the object: the update may have started meanwhile.
    const metadata = { annotations: { [abortAnnotation]: 'true' }, resourceVersion: versionOf(bundle) };
    const after = await change(cluster, bundle, { metadata });
    return { bundle: after, outcome: isSame(bundle, after) ? 'unchanged' : 'configured' };
  } catch (error) {
    if (!(error instanceof ApiError) || error.reason !== 'Conflict') throw error;
    return await abortUpdate(cluster, chooseRecord(await listRecords(cluster), bundle.metadata.name));
  }
}

/** Clears the request if the version operator refuses it. Returns whether no request for the release is left. */
async function clearRefused(cluster: Cluster, { status }: UpgradeBundle): Promise<boolean> {
  const version = await cluster.read(clusterVersionReference);
  if (!version || status?.release === undefined) return false;
  if (!isRefused(version, status.release))
    return !isRequested(version, status.release) && !isInstalled(version, status.release);
  // Change only this version of the object: the release may have been accepted meanwhile.
  const { resourceVersion } = version.metadata;
  const patch: ClusterVersionPatch = { metadata: { resourceVersion }, spec: { desiredUpdate: null } };
  await cluster.patch(clusterVersionReference, patch);
  return true;
}

/**
 * Waits until an update is aborted, or its record is removed. Throws `not-ready` after the timeout (milliseconds), and
 * `conflict` if the update has started.
 */
export async function awaitAbort(cluster: Cluster, name: string, wait: WaitOptions, context: Context): Promise<void> {
  const check = async (): Promise<PluginError | undefined> => {
    const bundle = (await listRecords(cluster)).find(({ metadata }) => metadata.name === name);
    if (!bundle || phaseOf(bundle) === 'Failed') return undefined;
    const isBegun = phaseOf(bundle) === 'Upgrading' && !(await clearRefused(cluster, bundle));
    if (isBegun || phaseOf(bundle) === 'Completed') throw begun(bundle);
    return new PluginError('not-ready', `${name} is not aborted yet; its phase is ${phaseOf(bundle)}`, {
      hint:
        'The controller aborts it as soon as it runs. Check it: oc -n oc-upgrade-bundle get pods. ' +
        `To withdraw the request: ${withdrawAbort(bundle)}.`,
    });
  };
  await awaitDone(check, wait, context);
}

/**
 * Removes the records of updates that have ended, or only the record with `name`. Agents then remove their copies.
 * Returns the names. Throws `conflict` if the update is running.
 */
export async function cleanRecords(cluster: Cluster, name: string | undefined): Promise<string[]> {
  const records = await listRecords(cluster);
  const chosen = name === undefined ? records.filter(hasEnded) : [chooseRecord(records, name)];
  const active = chosen.find((bundle) => !hasEnded(bundle));
  if (active) {
    throw new PluginError('conflict', `${active.metadata.name} is under way: ${phaseOf(active)}`, {
      hint: 'Abort it first: oc adm-upgrade-bundle abort.',
    });
  }
  for (const { metadata } of chosen) await cluster.delete({ apiVersion, kind, metadata: { name: metadata.name } });
  return chosen.map(({ metadata }) => metadata.name);
}

/**
 * Creates a record again with the changes, because what it allows cannot be changed. Keeps everything else of it.
 * Throws `conflict` if it has changed since it was read, and leaves it as it is if the API server refuses the changes.
 */
async function replace(
  cluster: Cluster,
  current: UpgradeBundle,
  changes: WrittenBundle['spec'],
): Promise<UpgradeBundle> {
  const { name, uid, resourceVersion, labels, annotations } = current.metadata;
  const spec = { ...current.spec, ...changes, bundle: { ...current.spec.bundle, ...changes.bundle } };
  const object: WrittenBundle = {
    apiVersion,
    kind,
    metadata: { name, ...withoutAbsent({ labels, annotations }) },
    spec,
  };
  // The API server checks an object before it answers that there is one.
  await cluster.create(object, { dryRun: true }).catch(ignoring('conflict'));
  const old = { apiVersion, kind, metadata: { name, ...withoutAbsent({ uid, resourceVersion }) } };
  await cluster.delete(old);
  try {
    return (await cluster.create(object)) as UpgradeBundle;
  } catch (cause) {
    if (!isPluginError(cause)) throw cause;
    const hint = `Apply the bundle again with all settings. The record had ${JSON.stringify(current.spec)}.`;
    throw new PluginError(cause.code, `${name} is removed, but not created again: ${cause.message}`, { hint, cause });
  }
}

async function change(
  cluster: Cluster,
  { metadata }: UpgradeBundle,
  patch: MergePatch<WrittenBundle>,
): Promise<UpgradeBundle> {
  const reference = { apiVersion, kind, metadata: { name: metadata.name } };
  return (await cluster.patch(reference, patch)) as UpgradeBundle;
}

function versionOf({ metadata }: UpgradeBundle): string | undefined {
  return (metadata as { resourceVersion?: string }).resourceVersion;
}

function isSame(before: UpgradeBundle, after: UpgradeBundle): boolean {
  return (
    JSON.stringify([before.spec, before.metadata.annotations]) ===
    JSON.stringify([after.spec, after.metadata.annotations])
  );
}

/** Throws `conflict` if an update has ended, or if the controller will abort it. */
function requireWanted(bundle: UpgradeBundle): void {
  if (hasEnded(bundle)) throw ended(bundle);
  if (!isAbortRequested(bundle)) return;
  const { name } = bundle.metadata;
  throw new PluginError('conflict', `${name} is to be aborted, and is ${phaseOf(bundle)}`, {
    hint:
      `To start over: oc adm-upgrade-bundle abort ${name} waits until it is aborted; then clean and apply. ` +
      `To continue the update instead: ${withdrawAbort(bundle)}.`,
  });
}

function occupied({ metadata, ...bundle }: UpgradeBundle): PluginError {
  const message = `${metadata.name} is under way with another bundle: ${phaseOf({ metadata, ...bundle })}`;
  const hint = 'A cluster updates with one bundle at a time. Wait until it ends, or run oc adm-upgrade-bundle abort.';
  return new PluginError('conflict', message, { hint });
}

function duplicate({ metadata: { name }, ...bundle }: UpgradeBundle): PluginError {
  return new PluginError('conflict', `${name} allows the same bundle: ${phaseOf({ metadata: { name }, ...bundle })}`, {
    hint: shellCommand`Change that UpgradeBundle instead, by its digest or with “oc edit upgradebundle ${name}”.`,
  });
}

function another({ metadata, spec }: UpgradeBundle): PluginError {
  const message = `${metadata.name} is allowed with another digest, version or release: ${JSON.stringify(spec.bundle)}`;
  const hint = 'Check which one is right. To allow the other one, abort and clean this update first.';
  return new PluginError('conflict', message, { hint });
}

function ended(bundle: UpgradeBundle): PluginError {
  const { name } = bundle.metadata;
  return new PluginError('conflict', `${name} has ended: ${phaseOf(bundle)}`, {
    hint:
      'To start the update again, remove its record and apply the bundle again: ' +
      shellCommand`oc adm-upgrade-bundle clean ${name}.`,
  });
}

function begun({ metadata, status }: UpgradeBundle): PluginError {
  const version = status?.version ?? metadata.name;
  return new PluginError('conflict', `the update to ${version} has begun, and cannot be aborted`, {
    hint:
      'Follow the cluster version operator with “oc adm upgrade” and “oc get clusteroperators”. It resumes after ' +
      'each interruption, and its conditions name what it waits for. “oc adm upgrade rollback” can return to the ' +
      'previous version within the same minor version, while the images of that version are on the nodes.',
  });
}

/** Returns whether ClusterVersion requests a release. */
export function isRequested(clusterVersion: StoredObject, release: string): boolean {
  const image = textOf(fieldsAt(clusterVersion, 'spec', 'desiredUpdate')['image']);
  return image !== undefined && digestIn(image) === digestIn(release);
}

/** Returns whether the version operator has installed a release, and no other release since. */
export function isInstalled(clusterVersion: StoredObject, release: string): boolean {
  return findLatest(clusterVersion, release)?.['state'] === 'Completed';
}

/** Returns whether the cluster has run a release since before a time, in ISO 8601, so that nothing is updated to it. */
export function hasRunSince(clusterVersion: StoredObject, release: string, time = ''): boolean {
  if (!isInstalled(clusterVersion, release)) return false;
  return Date.parse(textOf(findLatest(clusterVersion, release)?.['completionTime']) ?? '') < Date.parse(time);
}

/**
 * Returns the time when the version operator began to install a release. Undefined if it has not, or has begun another.
 */
function readStart(clusterVersion: StoredObject, release: string): Date | undefined {
  const start = Date.parse(textOf(findLatest(clusterVersion, release)?.['startedTime']) ?? '');
  return Number.isNaN(start) ? undefined : new Date(start);
}

/**
 * Returns the share of its work that the version operator reports as done, in percent. Undefined if it reports none.
 */
export function readPercent(clusterVersion: StoredObject): number | undefined {
  const { message = '' } = conditionsOf(clusterVersion).get('Progressing') ?? {};
  const percent = /\((\d{1,3})% complete\)/.exec(message)?.[1];
  return percent === undefined ? undefined : Math.min(100, Number(percent));
}

/** Returns the latest entry in the history of ClusterVersion if it is of a release. */
function findLatest(clusterVersion: StoredObject, release: string): Fields | undefined {
  const [latest] = listOf(fieldsOf(clusterVersion['status'])['history']);
  return digestIn(textOf(latest?.['image']) ?? '') === digestIn(release) ? latest : undefined;
}

/**
 * Returns whether the version operator refuses the requested release (ReleaseAccepted=False). The cluster is then
 * unchanged.
 */
export function isRefused(clusterVersion: StoredObject, release: string): boolean {
  const history = listOf(fieldsOf(clusterVersion['status'])['history']);
  const hasBegun = history.some(
    ({ image, state }) => state === 'Partial' && digestIn(textOf(image) ?? '') === digestIn(release),
  );
  const accepted = conditionsOf(clusterVersion).get('ReleaseAccepted');
  return isRequested(clusterVersion, release) && !hasBegun && accepted?.status === 'False';
}

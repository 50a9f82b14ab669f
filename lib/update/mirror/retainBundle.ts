import type { Cluster } from '#cluster/client';
import { clusterVersionReference, listNeededReleases, readClusterVersion } from '#cluster/version';
import { hexOf, isDigest, type Digest, digestIn } from '#content/oci';
import { PluginError } from '#errors';
import { allowBundle, listRecords, type BundleRequest, type RecordChange } from '../record/bundleRecord.ts';
import { listMirrorStates } from '../record/nodeReport.ts';
import { activeBundle, hasEnded, phaseOf, upgradeBundleKind } from '../record/upgradeBundle.ts';
import { isServing, listWithoutMirror, readInstalledMirrors } from './mirrorSite.ts';

/** The record of the bundle of the running release, and the mirrors that do not have it yet. */
export interface Retention extends RecordChange {
  /** The version that the cluster runs. */
  readonly version: string;
  /** The control plane nodes whose mirrors do not serve the release; undefined if the cluster has no mirrors. */
  readonly lacking: readonly string[] | undefined;
}

/**
 * Lets a cluster load and keep the bundle of the release that it runs, by an UpgradeBundle as for an update. It states
 * the running release, so agents refuse another one. Changes nothing if that is done already.
 * Replaces the record of an earlier call if it failed, or if a mirror lacks the release since. Throws `conflict` for a
 * bundle of another release, `not-ready` while the cluster changes its release, and the errors of allowBundle.
 */
export async function retainBundle(cluster: Cluster, request: BundleRequest): Promise<Retention> {
  const { version, digest: releaseDigest } = await readRunning(cluster);
  requireRunning(request, { version, releaseDigest }, cluster.name);
  const lacking = await listLacking(cluster, version);
  const records = await listRecords(cluster);
  const { digest } = request;
  const active = activeBundle(records);
  // The name is not that of an update, whose record has its backups.
  const own = `retain-${request.name ?? hexOf(digest).slice(0, 12)}`;
  const name = active?.spec.bundle.digest === digest ? active.metadata.name : own;
  const former = records.find(({ metadata }) => metadata.name === name);
  if (former && hasEnded(former)) {
    const isKept = phaseOf(former) === 'Completed' && former.spec.bundle.digest === digest;
    if (isKept && (lacking ?? []).length === 0) return { bundle: former, outcome: 'unchanged', version, lacking };
    await cluster.delete({ ...upgradeBundleKind, metadata: { name } });
  }
  return { ...(await allowBundle(cluster, { ...request, name, version, releaseDigest })), version, lacking };
}

async function readRunning(cluster: Cluster): Promise<{ readonly version: string; readonly digest: Digest }> {
  const object = await cluster.read(clusterVersionReference);
  const [image = ''] = (object && listNeededReleases(object)) ?? [];
  const digest = digestIn(image);
  if (object && isDigest(digest)) return { version: readClusterVersion(object).version, digest };
  throw new PluginError('not-ready', `${cluster.name} installs a release, or does not say which one it runs`, {
    hint: 'Wait until the update is completed: oc adm upgrade.',
  });
}

/** Throws `conflict` if a bundle has another release than the running one. */
function requireRunning(
  { version, releaseDigest }: BundleRequest,
  running: Required<Pick<BundleRequest, 'version' | 'releaseDigest'>>,
  name: string,
): void {
  const hint = 'To update the cluster with this bundle: oc adm-upgrade-bundle apply.';
  if (version !== undefined && version !== running.version)
    throw new PluginError('conflict', `${name} runs ${running.version}, and the bundle is of ${version}`, { hint });
  if (releaseDigest === undefined || releaseDigest === running.releaseDigest) return;
  const message = `${name} runs ${running.version} as ${running.releaseDigest}, and the bundle has it as ${releaseDigest}`;
  throw new PluginError('conflict', message, {
    hint: 'Create the bundle of that release image, such as the one of the same architecture.',
  });
}

/**
 * Lists the control plane nodes whose mirrors do not serve a version, or cannot read all they retain; undefined if the
 * cluster has no mirrors.
 */
async function listLacking(cluster: Cluster, version: string): Promise<readonly string[] | undefined> {
  const installed = await readInstalledMirrors(cluster);
  if (!installed) return undefined;
  return listWithoutMirror(
    cluster,
    await listMirrorStates(cluster),
    (mirror) => isServing(mirror, version, installed.content) && !mirror.lacking.some(isDigest),
  );
}

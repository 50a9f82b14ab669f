import { upgradeBundleName } from '../bundle/sidecars.ts';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import { withoutBases, type FoundBundle } from '../node/media/medium.ts';
import { architectures } from '../release/version.ts';
import type { Cluster } from '../kubernetes/client.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import { readClusterVersion } from '../kubernetes/clusterVersion.ts';
import { parseReport, type Proposal } from './nodeReport.ts';
import { upgradeBundleKind, type UpgradeBundle } from './upgradeBundle.ts';

/**
 * Chooses the bundle that a node proposes: the only one on its media, except base releases of deltas. Undefined if
 * there is none, or if they differ.
 */
export function chooseProposal(found: readonly FoundBundle[]): Proposal | undefined {
  const meant = withoutBases(found);
  const [first] = meant;
  if (!first || meant.some(({ identity }) => identity !== first.identity)) return undefined;
  const arch = architectures.find((each) => each === first.arch);
  return arch && { version: first.version, arch };
}

/**
 * Creates the UpgradeBundle of a bundle that an agent has found, unless the cluster has one or runs that version. It
 * has no digest, so it waits until an administrator allows one. Throws the errors of creating it.
 */
export async function recordProposal(
  cluster: Cluster,
  reports: readonly StoredObject[],
  bundles: readonly UpgradeBundle[],
  clusterVersion: StoredObject | undefined,
  context: Context,
): Promise<void> {
  const running = clusterVersion && readClusterVersion(clusterVersion).version;
  const known = new Set(bundles.map(({ metadata }) => metadata.name));
  const proposed = reports
    .flatMap((lease) => parseReport(lease) ?? [])
    .flatMap(({ proposal, progress }) => (proposal ? [{ ...proposal, node: progress.name }] : []));
  // A USB drive that is still inserted after the update must not propose it again.
  const first = proposed.find((each) => each.version !== running && !known.has(upgradeBundleName(each)));
  if (!first) return;
  const name = upgradeBundleName(first);
  try {
    await cluster.create({ ...upgradeBundleKind, metadata: { name }, spec: { bundle: {} } });
    context.log('info', `${first.node} has ${first.version} ${first.arch}: made UpgradeBundle ${name}`);
  } catch (error) {
    if (!isPluginError(error, 'conflict')) throw error;
  }
}

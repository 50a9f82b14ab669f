import { upgradeBundleName } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { readClusterVersion } from '#cluster/version';
import type { Context } from '#context';
import { ignoring } from '#errors';
import { withoutBases, type FoundBundle } from '#node/media';
import { architectures } from '#release/version';
import { readReport, type Proposal } from './nodeReport.ts';
import {
  activeBundle,
  proposalAnnotation,
  upgradeBundleKind,
  type UpgradeBundle,
  type WrittenBundle,
} from './upgradeBundle.ts';

/**
 * Chooses the bundle that a node proposes: the only one on its media, except base releases of deltas. Undefined if
 * there is none, or if they differ.
 */
export function chooseProposal(bundles: readonly FoundBundle[]): Proposal | undefined {
  const meant = withoutBases(bundles);
  const [first] = meant;
  if (!first || meant.some(({ identity }) => identity !== first.identity)) return undefined;
  const arch = architectures.find((each) => each === first.arch);
  return arch && { version: first.version, arch };
}

/**
 * Creates the UpgradeBundle of a bundle that an agent has found, unless the cluster has an active one or runs that
 * version. It has no digest, so it waits until an administrator allows one. Deletes those whose bundle no agent finds
 * any more. Throws the errors of the cluster.
 */
export async function followProposals(
  cluster: Cluster,
  reports: readonly StoredObject[],
  bundles: readonly UpgradeBundle[],
  clusterVersion: StoredObject | undefined,
  context: Context,
): Promise<void> {
  const proposed = reports
    .flatMap((lease) => readReport(lease) ?? [])
    .flatMap(({ node, report: { bundle = '', proposal } = {} }) =>
      proposal ? [{ ...proposal, bundle, node, name: upgradeBundleName(proposal) }] : [],
    );
  for (const bundle of bundles.filter(isProposal))
    if (!proposed.some(({ name }) => name === bundle.metadata.name)) await remove(cluster, bundle, context);
  if (activeBundle(bundles)) return;
  const running = clusterVersion && readClusterVersion(clusterVersion).version;
  const takenNames = new Set(bundles.map(({ metadata }) => metadata.name));
  // A USB drive that is still inserted after the update must not propose it again. A report on an UpgradeBundle that
  // has just ended can be of the place that it named.
  const first = proposed.find(
    ({ bundle, version, name }) => bundle === '' && version !== running && !takenNames.has(name),
  );
  if (!first) return;
  const { name, node, version, arch } = first;
  const metadata = { name, annotations: { [proposalAnnotation]: node } };
  const made: WrittenBundle = { ...upgradeBundleKind, metadata, spec: { bundle: {} } };
  if (await cluster.create(made).catch(ignoring('conflict')))
    context.log('info', `${node} has ${version} ${arch}: created UpgradeBundle ${name}`);
}

/** Returns whether the controller created an UpgradeBundle, and no administrator has allowed it or named its file. */
function isProposal({ metadata: { annotations = {} }, spec: { bundle } }: UpgradeBundle): boolean {
  return bundle.digest === undefined && bundle.file === undefined && proposalAnnotation in annotations;
}

/** Deletes this version of an object: its digest may be allowed now. */
async function remove(cluster: Cluster, bundle: UpgradeBundle, context: Context): Promise<void> {
  if (await cluster.delete(bundle).catch(ignoring('conflict')))
    context.log('info', `deleted UpgradeBundle ${bundle.metadata.name}: no node has its bundle any more`);
}

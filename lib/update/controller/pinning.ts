import type { StoredObject } from '#cluster/objects';
import { parseDigest, digestIn } from '#content/oci';
import {
  isSameSet,
  listUnpinnable,
  makePinnedImageSets,
  readPinState,
  servesPins,
  type PinState,
} from '#readiness/nodes';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { falseCondition, listNames, type BundleCondition } from '../record/conditions.ts';
import type { Observation } from './observation.ts';

/** The observations that pinning needs. */
export type Pinnable = Pick<Observation, 'cluster' | 'bundle' | 'site' | 'load' | 'facts'>;

/**
 * Pins the images by PinnedImageSets. If the cluster does not serve that kind, checks whether the agents have pinned
 * them.
 */
export async function pinImages(observation: Pinnable): Promise<BundleCondition> {
  const waiting = (reason: string, message: string) => falseCondition('Pinned', reason, message);
  if (!(await servesPins(observation.cluster))) {
    const unpinnedNodes = observation.load.nodes.filter(({ phase }) => phase !== 'Pinned').map(({ name }) => name);
    if (unpinnedNodes.length > 0) return waiting('Pinning', `images are not pinned yet on ${listNames(unpinnedNodes)}`);
    return { type: 'Pinned', status: 'True', reason: 'PinnedByAgents', message: 'all nodes have pinned all images' };
  }
  const facts = await observation.facts();
  if (!facts) return waiting('NotFound', 'the node of the controller has no verified bundle yet');
  const { waiting: waitingNodes, unreported, failures } = await applySets(observation, facts);
  if (failures.length > 0) return waiting('PinningFailed', listNames(failures, '; '));
  const silent = unreported.filter((name) => waitingNodes.includes(name));
  const silence =
    silent.length === 0
      ? ''
      : `; the machine config daemon has not reported about these sets on ${listNames(silent)}: oc -n openshift-machine-config-operator get pods -o wide`;
  if (waitingNodes.length > 0)
    return waiting('Pinning', `images are not pinned yet on ${listNames(waitingNodes)}${silence}`);
  const unpinnable = listUnpinnable(facts.metadata.images);
  const but = unpinnable.length > 0 ? `, except names that no PinnedImageSet accepts: ${listNames(unpinnable)}` : '';
  return { type: 'Pinned', status: 'True', reason: 'Pinned', message: `all nodes have pinned all images${but}` };
}

/** Applies the PinnedImageSets of a bundle if they differ, and reads the progress of the nodes. */
export async function applySets(
  { cluster, bundle, site, load: state }: Pinnable,
  facts: BundleFacts,
): Promise<PinState> {
  const { release, images } = facts.metadata;
  // The sets of the release before stay until the next update has begun, so each of several releases has its own.
  const digest = facts.hops ? parseDigest(digestIn(release)) : facts.digest;
  const desiredSets = makePinnedImageSets({ name: bundle.metadata.name, digest, release, images }, site.pools);
  const setsByName = new Map(site.pinnedSets.map((set) => [set.metadata.name, set]));
  const sets: StoredObject[] = [];
  for (const set of desiredSets) {
    const present = setsByName.get(set.metadata.name);
    sets.push(isSameSet(set, present) ? present : await cluster.apply(set, { manager: 'controller', force: true }));
  }
  return readPinState(
    sets,
    site.pools,
    site.poolNodes,
    state.nodes.map(({ name }) => name),
  );
}

import type { BundleMetadata } from '#bundle/metadata';
import type { Cluster } from '#cluster/client';
import { type StoredObject, conditionsOf } from '#cluster/objects';
import {
  type ClusterVersionPatch,
  clusterVersionReference,
  type DesiredUpdate,
  readClusterVersion,
} from '#cluster/version';
import type { MergePatch } from '#config/manifest';
import { digestIn } from '#content/oci';
import { fieldsOf, fieldsAt, listOf, textOf, textsOf } from '#fields';
import { isPoolNode, readNode } from '#readiness/nodes';
import { describeDegraded } from '#readiness/preflight';
import { isOlder } from '#release/version';
import { shellCommand } from '#text';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { isInstalled } from '../record/bundleRecord.ts';
import { listNames, type BundleCondition, falseCondition } from '../record/conditions.ts';
import type { UpgradeBundle } from '../record/upgradeBundle.ts';
import type { Observation } from './observation.ts';

/**
 * Requests an update from the version operator, without force, and accepts the known risks with some names, which are
 * those of `spec.acceptRisks`. Returns the condition about them. A merge patch keeps other fields, so this one removes
 * a forced update and another architecture.
 */
export async function requestUpdate(
  cluster: Cluster,
  clusterVersion: StoredObject,
  { version, release }: Pick<BundleMetadata, 'version' | 'release'>,
  names: readonly string[],
): Promise<BundleCondition[]> {
  const before = listAcceptedRisks(clusterVersion);
  const added = names.filter((name) => !before.includes(name));
  const acceptRisks = [...before, ...added].map((name) => ({ name }));
  const desiredUpdate: MergePatch<DesiredUpdate> = {
    image: release,
    version,
    force: false,
    architecture: null,
    ...(added.length > 0 && { acceptRisks }),
  };
  // Change only the version of the object that was found ready.
  const { resourceVersion } = clusterVersion.metadata;
  const patch: ClusterVersionPatch = { metadata: { resourceVersion }, spec: { desiredUpdate } };
  const accepted = listAcceptedRisks(await cluster.patch(clusterVersionReference, patch));
  if (names.length === 0) return [];
  const isKept = names.every((name) => accepted.includes(name));
  return [describeAccepted(version, names, isKept)];
}

/** `isKept`: whether the cluster has the field, which API servers drop without the gate ClusterUpdateAcceptRisks. */
function describeAccepted(version: string, names: readonly string[], isKept: boolean): BundleCondition {
  const how = isKept
    ? 'written to acceptRisks of ClusterVersion'
    : 'this cluster has no acceptRisks, so the update is requested by its image alone';
  return {
    type: 'RisksAccepted',
    status: 'True',
    reason: isKept ? 'AcceptRisks' : 'ExplicitImage',
    message: `the risks that spec.acceptRisks accepts for the update to ${version}: ${listNames(names)}; ${how}`,
  };
}

/** The progress of the cluster itself in an update. */
interface UpdateProgress {
  readonly done: boolean;
  readonly reason: string;
  readonly message: string;
}

/** Reads the progress of an update: first of the version operator, then of the pools, then of the nodes. */
export function readProgress(
  clusterVersion: StoredObject,
  release: string,
  pools: readonly StoredObject[],
  nodes: readonly StoredObject[],
): UpdateProgress {
  const conditions = conditionsOf(clusterVersion);
  const troubles = [
    ['Failing', 'True', 'Failing'],
    ['ReleaseAccepted', 'False', 'NotAccepted'],
  ] as const;
  const trouble = troubles.find(([type, status]) => conditions.get(type)?.status === status);
  const words = [
    ...(trouble ? [conditions.get(trouble[0])?.message ?? ''] : []),
    ...(isInstalled(clusterVersion, release) ? [] : [conditions.get('Progressing')?.message ?? '']),
    ...pools.flatMap(describePool),
    ...nodes.map(readNode).flatMap((node) => {
      return node.ready || !isPoolNode(node) ? [] : [`node ${node.name} is not ready`];
    }),
  ].filter((text) => text !== '');
  if (!isInstalled(clusterVersion, release)) {
    return { done: false, reason: trouble?.[2] ?? 'Updating', message: words.join('; ') || 'the update has begun' };
  }
  if (words.length > 0) return { done: false, reason: 'WaitingForNodes', message: words.join('; ') };
  return { done: true, reason: 'Updated', message: 'the cluster, its pools and nodes are updated' };
}

function describePool(pool: StoredObject): string[] {
  const { name } = pool.metadata;
  const [all, updated] = ['machineCount', 'updatedMachineCount'].map((field) =>
    countOf(fieldsOf(pool['status'])[field]),
  );
  const degraded = describeDegraded(pool);
  if (degraded !== undefined) return [`pool ${name} is degraded: ${degraded || 'see its conditions'}`];
  if (conditionsOf(pool).get('Updated')?.status === 'True') return [];
  if (fieldsOf(pool['spec'])['paused'] === true) return [`pool ${name} is paused`];
  return [`pool ${name} has updated ${updated ?? ''} of ${all ?? ''} nodes`];
}

function countOf(value: unknown): string {
  return typeof value === 'number' ? String(value) : '?';
}

/** The known risks of the next update, and of the updates after it. */
interface RiskVerdict {
  /** Whether the next update has a risk that is not accepted. */
  readonly lacks: boolean;
  /** The condition about all of them; empty if it stays as it is. */
  readonly conditions: readonly BundleCondition[];
}

/**
 * Finds the known risks of the updates that neither `spec.acceptRisks` nor ClusterVersion accepts. The cluster knows
 * risks by its update graph, and metadata.json claims some. A claim can delay an update, and accepts nothing.
 */
export function checkRisks({ bundle, site }: Pick<Observation, 'bundle' | 'site'>, facts: BundleFacts): RiskVerdict {
  const { clusterVersion } = site;
  const { version: running } = readClusterVersion(clusterVersion);
  const { acceptRisks = [] } = bundle.spec;
  const accepted = new Set([...acceptRisks, ...listAcceptedRisks(clusterVersion)]);
  const own = facts.metadata.version;
  const due = (facts.hops ?? [facts]).filter(
    ({ metadata: { version } }) => version === own || isOlder(running, version),
  );
  const lacking = due.flatMap(({ metadata: { version, release, risks = [] } }) => {
    const clusterRisks = listKnownRisks(clusterVersion, release);
    const names = [...new Set([...clusterRisks, ...risks.map(({ name }) => name)])];
    const source = (name: string): string =>
      clusterRisks.includes(name) ? 'this cluster says' : 'the bundle says, not covered by its signature';
    return names.filter((name) => !accepted.has(name)).map((name) => ({ version, name, source: source(name) }));
  });
  if (lacking.length === 0) {
    const isStale = conditionsOf(bundle).get('RisksAccepted')?.status === 'False';
    const message = 'no known risk is left to accept';
    const accepted = { type: 'RisksAccepted', status: 'True', reason: 'Accepted', message } as const;
    return { lacks: false, conditions: isStale ? [accepted] : [] };
  }
  const words = lacking.map(({ version, name, source }) => `${name} of the update to ${version} (${source})`);
  const accepting = [...new Set([...acceptRisks, ...lacking.map(({ name }) => name)])];
  const command = formatSpecPatch(bundle.metadata.name, { acceptRisks: accepting });
  const message =
    `known risks are not accepted: ${listNames(words)}. Check whether they concern this cluster. To accept ` +
    `them: ${command}`;
  return {
    lacks: lacking.some(({ version }) => version === own),
    conditions: [falseCondition('RisksAccepted', 'RiskNotAccepted', message)],
  };
}

/** Returns the command that changes fields of the spec of an UpgradeBundle. */
export function formatSpecPatch(name: string, spec: Partial<UpgradeBundle['spec']>): string {
  return shellCommand`oc patch upgradebundle ${name} --type=merge --patch=${JSON.stringify({ spec })}`;
}

/** Lists the names of the risks that ClusterVersion accepts. */
function listAcceptedRisks(clusterVersion: StoredObject): string[] {
  const { acceptRisks } = fieldsAt(clusterVersion, 'spec', 'desiredUpdate');
  return listOf(acceptRisks).flatMap(({ name }) => textOf(name) ?? []);
}

/** Lists the risks for which the version operator does not recommend the update to a release. */
function listKnownRisks(clusterVersion: StoredObject, release: string): string[] {
  const updates = listOf(fieldsOf(clusterVersion['status'])['conditionalUpdates']);
  return updates
    .filter((update) => {
      const { image } = fieldsOf(update['release']);
      const { status } = conditionsOf({ status: update }).get('Recommended') ?? {};
      return digestIn(textOf(image) ?? '') === digestIn(release) && status !== 'True';
    })
    .flatMap(({ risks, riskNames }) => [
      ...listOf(risks).flatMap(({ name }) => textOf(name) ?? []),
      ...textsOf(riskNames),
    ]);
}

import type { Cluster } from '#cluster/client';
import { asFailure } from '#errors';
import { listOf } from '#fields';
import { findWaitingController, type WaitingController } from '#readiness/preflight';
import { readStreamTarget, needsStreams } from '#release/payload';
import { shellCommand } from '#text';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { falseCondition, type BundleCondition } from '../record/conditions.ts';
import type { AllowedFacts } from '../record/extraImages.ts';
import {
  osImageStreamKind,
  osImageStreamReference,
  planOSImageStream,
  writeOSImageStream,
  type NeededStream,
  runsRelease,
} from '../record/osImageStreamWrite.ts';
import type { UpgradeBundle } from '../record/upgradeBundle.ts';
import type { Observation } from './observation.ts';
import { hasMirrorsOf, readFeatureSet } from './readiness.ts';

/** The condition about the operating system streams of a release; none if it needs none. */
export interface StreamStep {
  readonly conditions: readonly BundleCondition[];
  /** Why the update cannot continue without an administrator. */
  readonly stall?: string;
}

/**
 * Describes the operating system streams of the release for machine-config-controller, as soon as the cluster serves
 * them and no earlier controller renders from them. Writes nothing if the cluster has mirrors for the release, because
 * the controller reads those. Says so if the controller waits for long. Throws the errors of reading the cluster.
 */
export async function supplyStreams(observation: Observation, facts: AllowedFacts): Promise<StreamStep> {
  const { cluster, site } = observation;
  const { streams, metadata } = facts;
  const { version, release, components } = metadata;
  if (!needsStreams(streams, streams && (await readFeatureSet(cluster)))) return { conditions: [] };
  const isServed = (await cluster.findKind(osImageStreamKind.apiVersion, osImageStreamKind.kind)) !== undefined;
  // The watched copy may be older.
  const existing = isServed ? await cluster.read(osImageStreamReference) : undefined;
  const images = { version, release, operator: components['machine-config-operator'] ?? '' };
  const waiting = await findWaitingController(
    cluster,
    site.controllerPods.filter((pod) => runsRelease(pod, images)),
  );
  try {
    // The controller compares the commit in its log, which is surer than the labels of its image.
    const commit = waiting?.commit ?? streams.commit;
    const objects = { clusterVersion: site.clusterVersion, isServed, existing, pods: site.controllerPods };
    const needed = planOSImageStream(objects, { ...streams, commit }, images);
    const described = readStreamTarget(existing).commit;
    const isDone = needed.isThere && (waiting?.commit === undefined || waiting.commit === described);
    const isMirrored = !isDone && (await hasMirrorsOf(cluster, metadata.images));
    const obstacle = isDone ? undefined : findObstacle(needed, version, isMirrored);
    if (!isDone && !obstacle) await writeOSImageStream(cluster, needed.object);
    const stall = waiting && describeWait(waiting, version, isMirrored);
    const condition = stall
      ? falseCondition(type, 'ControllerWaits', stall)
      : (obstacle ?? makeDescribed(version, isDone ? described : commit));
    return { conditions: [condition], stall };
  } catch (error) {
    const stall = `the OSImageStream of ${version} cannot be written: ${asFailure(error).message}`;
    return { conditions: [falseCondition(type, 'NotWritten', stall)], stall };
  }
}

/**
 * Returns the versions of the releases whose streams this cluster needs described. Throws the errors of the cluster.
 */
export async function listNeedingStreams(cluster: Cluster, releases: readonly BundleFacts[]): Promise<string[]> {
  if (releases.every(({ streams }) => streams === undefined)) return [];
  const featureSet = await readFeatureSet(cluster);
  return releases.filter(({ streams }) => needsStreams(streams, featureSet)).map(({ metadata }) => metadata.version);
}

const type = 'StreamsDescribed';

/**
 * Returns the condition that the streams of a completed update are gone, if they were described. Throws the errors of
 * the cluster.
 */
export async function findGoneStreams(cluster: Cluster, { status }: UpgradeBundle): Promise<BundleCondition[]> {
  const isDescribed = listOf(status?.conditions).some((each) => each['type'] === type && each['status'] === 'True');
  if (!isDescribed || !(await cluster.findKind(osImageStreamKind.apiVersion, osImageStreamKind.kind))) return [];
  if (await cluster.read(osImageStreamReference)) return [];
  const message =
    'OSImageStream “cluster” is gone: machine-config-controller waits for it at its next start; describe it ' +
    'again: oc adm-upgrade-bundle streams';
  return [falseCondition(type, 'Gone', message)];
}

/** Returns why the object is not written now. */
function findObstacle(needed: NeededStream, version: string, isMirrored: boolean): BundleCondition | undefined {
  const controller = 'machine-config-controller';
  if (isMirrored)
    return falseCondition(type, 'Mirror', `${controller} of ${version} reads the streams from a mirror of the cluster`);
  if (!needed.isDesired)
    return falseCondition(type, 'NotRequested', `the version operator has not accepted ${version} yet`);
  if (!needed.isServed)
    return falseCondition(
      type,
      'NotServed',
      'the version operator has not created the definition of OSImageStream yet',
    );
  if (needed.isInUse)
    return falseCondition(
      type,
      'EarlierController',
      `the ${controller} of the earlier release still uses OSImageStream`,
    );
  return undefined;
}

function makeDescribed(version: string, commit = ''): BundleCondition {
  const message = `OSImageStream “cluster” has the streams of ${version}, commit ${commit.slice(0, 12)}`;
  return { type, status: 'True', reason: 'Described', message };
}

function describeWait({ pod, since, lastLine }: WaitingController, version: string, isMirrored: boolean): string {
  const remedy = isMirrored
    ? 'push the release to the mirror again, or apply the streams: oc adm-upgrade-bundle streams'
    : 'it tries again every 5 minutes; otherwise delete its pod, ' +
      shellCommand`whose successor leads within 3 minutes: oc delete pod ${pod} -n openshift-machine-config-operator`;
  const says = lastLine === '' ? '' : `; its log ends with “${lastLine}”`;
  return (
    `machine-config-controller of ${version} has waited since ${since} for its operating system ` +
    `streams${says}; ${remedy}`
  );
}

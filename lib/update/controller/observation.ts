import type { KeyObject } from 'node:crypto';
import type { Cluster } from '#cluster/client';
import type { LeaseOptions } from '#cluster/lease';
import { timeOfEvent } from '#cluster/objects';
import { type Digest, digestIn } from '#content/oci';
import { fieldsOf, textOf } from '#fields';
import type { BundleFacts } from '../record/bundleFacts.ts';
import type { AllowedFacts } from '../record/extraImages.ts';
import type { UpgradeBundle } from '../record/upgradeBundle.ts';
import type { LoadState } from './loadState.ts';
import type { KnownProgress } from './nodeReports.ts';
import type { Site } from './readiness.ts';

/** A clock of the cluster: its time and that of this process, in milliseconds since 1970. */
export interface ClockReading {
  readonly now: number;
  readonly own: number;
  /** Whether the node of the controller has its time from a server (NTP); undefined if it does not say. */
  readonly isSynchronized: boolean | undefined;
}

/** The state of the cluster in one round of the controller. */
export interface Observation {
  readonly cluster: Cluster;
  readonly bundle: UpgradeBundle;
  /** The names of other UpgradeBundles that are active too. */
  readonly otherBundles: readonly string[];
  readonly site: Site;
  readonly load: LoadState;
  /** The last reports of the agents about this update, by the names of the nodes. */
  readonly reports: ReadonlyMap<string, KnownProgress>;
  /** Reads the facts of the allowed bundle, when they are needed. */
  readonly facts: () => Promise<AllowedFacts | undefined>;
  /** Describes how the bundle that was found differs from the allowed bundle. */
  readonly mismatch: () => Promise<string | undefined>;
  /** Pauses objects that would replace, remove or add nodes. */
  readonly pause: () => Promise<void>;
  /** Restores the paused objects, with or without the pools. */
  readonly restore: (options?: { readonly pools: boolean }) => Promise<void>;
  /**
   * Returns why nodes cannot pull a bundle from the mirrors of the control plane; undefined if they can, or if there
   * are none.
   */
  readonly mirrorLack: (facts: BundleFacts) => Promise<string | undefined>;
  /** Reads the clocks, which decide about maintenance windows. */
  readonly clock: () => Promise<ClockReading>;
  /** Finds the images that nodes failed to pull. */
  readonly missing: (images: readonly string[]) => Promise<readonly MissingImage[]>;
}

/** The default of `interval`, in milliseconds. */
export const defaultInterval = 15_000;

/**
 * Settings for the rollout of bundles. Nodes load if `mayLoad` returns true. The controller decides that by the phase
 * and, for the control plane, by the turn.
 */
export interface RolloutOptions {
  /** The identity of this controller in the Lease: the name of its node. */
  readonly identity: string;
  readonly namespace: string;
  /** The folder of the Secret of the mirrors; by default there are none. */
  readonly mirrorFolder?: string;
  /** Reads the facts of the bundle with this digest; undefined if this node has not verified it yet. */
  readBundle(digest: Digest): Promise<BundleFacts | undefined>;
  /**
   * The longest pause between two rounds if the cluster does not change, and between two checks of the Lease by the
   * other controllers, in milliseconds; default 15 s. The shortest pause is a 15th of it.
   */
  readonly interval?: number;
  /** Reads the clocks; by default those of the API server and of this process. */
  readonly clock?: () => Promise<ClockReading>;
  /** What signs reports of the cluster; by default none are made. */
  readonly reports?: { readonly key: KeyObject; readonly tool: string } | undefined;
  readonly lease?: Pick<LeaseOptions, 'duration' | 'retryPeriod' | 'acquirePeriod'>;
}

/** An image that nodes failed to pull. */
export interface MissingImage {
  readonly image: string;
  /** A pod that needs the image: `namespace/name`. */
  readonly pod: string;
  /** Whether the bundle has the image. It is then not missing, but a pod still pulls it. */
  readonly bundled: boolean;
}

/** Finds the images that nodes failed to pull since a moment, by the events of kubelets. */
export async function findMissingImages(
  cluster: Cluster,
  images: readonly string[],
  since: Date,
): Promise<MissingImage[]> {
  const fieldSelector = 'involvedObject.kind=Pod,reason=Failed';
  const events = await cluster.list('v1', 'Event', { fieldSelector });
  const digests = new Set(images.map(digestIn));
  const pulls = events.flatMap((event): [string, MissingImage][] => {
    const { message, involvedObject } = event;
    const image = /^Failed to pull image "([^"]+)"/.exec(textOf(message) ?? '')?.[1];
    if (image === undefined || timeOfEvent(event) < since.getTime()) return [];
    const { namespace, name } = fieldsOf(involvedObject);
    const bundled = image.includes('@') && digests.has(digestIn(image));
    return [[image, { image, pod: `${String(namespace)}/${String(name)}`, bundled }]];
  });
  return [...new Map(pulls).values()].sort((a, b) => (a.image < b.image ? -1 : 1));
}

import type { Cluster } from '#cluster/client';
import { clusterVersionReference } from '#cluster/version';
import { childrenOf, isManifest, type Digest, isDigest, attachedTo, digestIn } from '#content/oci';
import type { RemovedContent } from '#content/store';
import { isPluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf } from '#fields';
import type { MirroringAccess } from '../mirror/request.ts';
import { graphDataName, type Inventory, type StoredImage, type StoredRelease } from './inventory.ts';
import { isRecord, readRecords, type StoredRecord } from './pruneRecord.ts';
import type { PrunedRepository, ReadManifest } from './repository.ts';

/** Why a release stays; undefined for a release to remove. A tagged release has another tag, which may be in use. */
type KeepReason = 'named' | 'cluster' | 'tagged' | undefined;

/** A release at the target, and why it stays; removed without a reason. */
export interface EvaluatedRelease extends StoredRelease {
  readonly reason: KeepReason;
}

/** The images of a release, or the graph data that is left of one. */
type PlannedRelease = Pick<EvaluatedRelease, 'version' | 'images' | 'reason'>;

/** The content that a run removes from one repository, and the reasons for content that stays. */
export interface RepositoryPlan extends RemovedContent {
  readonly repository: PrunedRepository;
  /** The tags that belong to no known release. They stay, with all that they lead to. */
  readonly foreign: readonly string[];
  /** Whether anything stays. */
  readonly isEmptied: boolean;
  /** Images of removed releases that the cluster or the configuration needs. */
  readonly needed: readonly string[];
  /** The number of signatures and other attachments among the manifests. */
  readonly attachments: number;
  /** The manifests to remove that refer to another one, with what they refer to. */
  readonly referrers: ReadonlyMap<Digest, Digest>;
  /** The sizes in bytes of the content to remove, and the content that stays, by digest. */
  readonly sizes: ReadonlyMap<Digest, number>;
  readonly kept: ReadonlySet<Digest>;
  /** The records of unfinished runs, which this run continues. */
  readonly records: readonly StoredRecord[];
}

/**
 * Decides which releases stay: releases that the user names by version or tag, and releases that the cluster runs or
 * ran.
 */
export function evaluateReleases(
  { releases }: Pick<Inventory, 'releases'>,
  keep: readonly string[],
  needs: ClusterNeeds | undefined,
): EvaluatedRelease[] {
  return releases.map((release) => {
    const { version, tag, digest, children } = release;
    if (keep.includes(version) || keep.includes(tag)) return { ...release, reason: 'named' };
    const isNeeded =
      needs?.versions.has(version) === true || [digest, ...children].some((each) => needs?.digests.has(each));
    if (isNeeded) return { ...release, reason: 'cluster' };
    return { ...release, reason: release.otherTag === undefined ? undefined : 'tagged' };
  });
}

/**
 * Plans what to remove from a repository: the content of images of removed releases that nothing else there needs.
 * Everything that another tag or a kept release leads to stays. Throws what the repository throws.
 */
export async function planRepository(
  repository: PrunedRepository,
  releases: readonly PlannedRelease[],
  needed: ReadonlySet<Digest>,
): Promise<RepositoryPlan> {
  const { tags } = repository;
  const own = releases.flatMap((release) =>
    release.images.flatMap((image) => (image.repository === repository ? [{ ...image, release }] : [])),
  );
  const isKept = ({ release, name }: (typeof own)[number]): boolean =>
    release.reason !== undefined || (name === graphDataName && isLastGraphData(release, releases));
  const removed = own.filter((image) => !isKept(image));
  const records = await readRecords(repository.store, tags);
  const recordedManifests = records.flatMap(({ manifests }) => manifests);

  // A tag that leads elsewhere by now is no longer the recorded tag.
  const recorded = records.flatMap((record) => {
    const manifests = new Set<Digest | undefined>(record.manifests);
    return record.tags.filter((tag) => manifests.has(tags.get(tag)));
  });
  const ownTags = new Set([
    ...records.map(({ tag }) => tag),
    ...recorded,
    ...own.flatMap(({ tag, formerTags }) => [tag ?? [], formerTags].flat()),
  ]);
  const attached = [...tags].flatMap(([tag, digest]) => {
    const subject = attachedTo(tag);
    return subject && !ownTags.has(tag) ? [{ tag, digest, subject }] : [];
  });
  const attachedTags = new Set(attached.map(({ tag }) => tag));
  const others = [...tags].filter(([tag]) => !ownTags.has(tag) && !attachedTags.has(tag));
  const inUse: StoredImage[] = [];
  for (const image of removed) {
    const below = await repository.reach([image.digest]);
    if ([image.digest, ...below.keys()].some((digest) => needed.has(digest))) inUse.push(image);
  }
  const kept = await repository.reachKept([
    ...own.filter(isKept).map(({ digest }) => digest),
    ...inUse.map(({ digest }) => digest),
    ...others.map(([, digest]) => digest),
  ]);
  const candidates = await repository.reach([...removed.map(({ digest }) => digest), ...recordedManifests]);

  const isRemoved = (digest: Digest): boolean => candidates.has(digest) && !kept.has(digest);
  // An attachment of an image that is in no known release is not ours.
  const mine = attached.filter(({ subject }) => isRemoved(subject));
  const theirs = attached.filter(({ subject }) => !isRemoved(subject));
  add(kept, await repository.reach(theirs.map(({ digest }) => digest)));
  const subjects = [...candidates.keys()].filter(isRemoved);
  const referrers = (await Promise.all(subjects.map((subject) => repository.referrers(subject)))).flat();
  const attachments = await repository.reach([...mine, ...referrers].map(({ digest }) => digest));
  add(candidates, attachments);
  // Images without a tag may share blobs with removed images.
  const ours = new Set([...candidates.keys(), ...removed.map(({ digest }) => digest), ...recordedManifests]);
  const strangers = (await repository.listManifests()).filter((digest) => !ours.has(digest));
  const stay = await repository.reachKept(strangers);
  const tagged = new Set(tags.values());
  for (const [digest, read] of stay) {
    if (!isRecord(read.manifest)) kept.set(digest, read);
    // A run that was killed at its end may have left its record without the tag.
    else if (!tagged.has(digest)) candidates.set(digest, read);
  }

  // Only in a directory can a tag go without its image.
  const keptTags = new Set(own.filter(isKept).flatMap(({ tag }) => tag ?? []));
  const keptImages = new Set([...keptTags].map((tag) => tags.get(tag)));
  const isSpare = (tag: string, digest: Digest): boolean =>
    repository.place.kind === 'directory' && ownTags.has(tag) && !keptTags.has(tag) && keptImages.has(digest);
  const going = new Map([...candidates].filter(([digest]) => !kept.has(digest)));
  const keptBlobs = blobsIn(kept.values());
  const blobs = new Map([...blobsIn(going.values())].filter(([digest]) => !keptBlobs.has(digest)));
  const rest = (digests: readonly Digest[]): Digest[] =>
    digests.filter((digest) => !keptBlobs.has(digest) && !kept.has(digest));
  return {
    repository,
    tags: [...tags].flatMap(([tag, digest]) => (going.has(digest) || isSpare(tag, digest) ? [tag] : [])),
    // A killed run may have removed one of the two copies that a directory has of a manifest.
    manifests: releaseFirst([...new Set([...going.keys(), ...rest(recordedManifests)])], removed),
    blobs: [...new Set([...blobs.keys(), ...rest(records.flatMap((each) => each.blobs))])],
    foreign: [
      ...others.map(([tag]) => tag),
      ...theirs.filter(({ subject }) => !kept.has(subject)).map(({ tag }) => tag),
    ],
    isEmptied: kept.size === 0,
    needed: inUse.map(({ name, digest }) => `${name} (${digest})`),
    attachments: [...attachments.keys()].filter((digest) => going.has(digest)).length,
    referrers: new Map(
      [...going].flatMap(([digest, { manifest }]) => (manifest.subject ? [[digest, manifest.subject] as const] : [])),
    ),
    sizes: new Map([...[...going].map(([digest, { size }]) => [digest, size] as const), ...blobs]),
    kept: digestsIn(kept),
    records,
  };
}

/** Returns whether a release has the newest graph data, and no kept release has any. An update service may use it. */
function isLastGraphData(release: PlannedRelease, releases: readonly PlannedRelease[]): boolean {
  const having = releases.filter(({ images }) => images.some(({ name }) => name === graphDataName));
  return having.every(({ reason }) => reason === undefined) && having.at(-1) === release;
}

/** Puts release images first, so that no release is offered while its components go. */
function releaseFirst(digests: readonly Digest[], removed: readonly StoredImage[]): Digest[] {
  const releases = new Set(removed.filter(({ name }) => name === 'release').map(({ digest }) => digest));
  return digests.toSorted((a, b) => Number(releases.has(b)) - Number(releases.has(a)));
}

function add(target: Map<Digest, ReadManifest>, more: ReadonlyMap<Digest, ReadManifest>): void {
  for (const [digest, read] of more) target.set(digest, read);
}

/** Returns the digests of manifests, and of the blobs that they name. */
export function digestsIn(manifests: ReadonlyMap<Digest, ReadManifest>): Set<Digest> {
  return new Set([...manifests.keys(), ...blobsIn(manifests.values()).keys()]);
}

/** Returns the blobs that manifests name, with their sizes in bytes. */
function blobsIn(manifests: Iterable<ReadManifest>): Map<Digest, number> {
  const blobs = [...manifests].flatMap(({ manifest }) => childrenOf(manifest).filter((child) => !isManifest(child)));
  return new Map(blobs.map(({ digest, size }) => [digest, size]));
}

/** What a cluster needs: the versions in its history, and the images that it runs, has pinned or names. */
export interface ClusterNeeds {
  readonly name: string;
  readonly versions: ReadonlySet<string>;
  readonly digests: ReadonlySet<Digest>;
}

/**
 * Reads what the cluster needs: its history (ClusterVersion), pinned images (PinnedImageSet), the images of pods, and
 * the graph data of update services. Returns undefined if no cluster is configured, and none was named. Throws the
 * errors of the cluster, and `no-cluster` for a context that does not exist.
 */
export async function readClusterNeeds(
  { openCluster }: Pick<MirroringAccess, 'openCluster'>,
  isNamed: boolean,
): Promise<ClusterNeeds | undefined> {
  using cluster = await openCluster('30s').catch((error: unknown) => {
    // A kubeconfig without the context that it names is a mistake, and may have the cluster that uses the target.
    const isAbsent =
      isPluginError(error, 'no-cluster') && error.settings.some((each) => each === 'kubeconfig' || each === 'server');
    if (isAbsent && !isNamed) return undefined;
    throw error;
  });
  if (!cluster) return undefined;
  const version = await cluster.read(clusterVersionReference).catch(ignoreUnserved);
  const status = fieldsAt(version, 'status');
  const releases = [...listOf(status['history']), fieldsOf(status['desired'])];
  const pins = await listKind(cluster, 'machineconfiguration.openshift.io/v1', 'PinnedImageSet');
  const services = await listKind(cluster, 'updateservice.operator.openshift.io/v1', 'UpdateService');
  const pods = await cluster.list('v1', 'Pod');
  const images = [
    ...releases.map(({ image }) => image),
    ...pins.flatMap((pin) => listOf(fieldsAt(pin, 'spec')['pinnedImages']).map(({ name }) => name)),
    ...services.map((service) => fieldsAt(service, 'spec')['graphDataImage']),
    ...pods.flatMap(imagesOfPod),
  ];
  const digests = images.map((image) => digestIn(String(image))).filter(isDigest);
  return {
    name: cluster.name,
    versions: new Set(releases.map((release) => String(release['version']))),
    digests: new Set(digests),
  };
}

/** Returns the images of a pod: the requested and the running images. */
function imagesOfPod(pod: unknown): unknown[] {
  const [spec, status] = [fieldsAt(pod, 'spec'), fieldsAt(pod, 'status')];
  const kinds = ['containers', 'initContainers', 'ephemeralContainers'].flatMap((kind) => listOf(spec[kind]));
  const statuses = ['containerStatuses', 'initContainerStatuses', 'ephemeralContainerStatuses'];
  const volumes = listOf(spec['volumes']).map((volume) => fieldsAt(volume, 'image')['reference']);
  const running = statuses.flatMap((kind) => listOf(status[kind])).flatMap(({ image, imageID }) => [image, imageID]);
  return [...kinds.map(({ image }) => image), ...running, ...volumes];
}

async function listKind(cluster: Cluster, apiVersion: string, kind: string): Promise<readonly unknown[]> {
  return (await cluster.list(apiVersion, kind).catch(ignoreUnserved)) ?? [];
}

function ignoreUnserved(error: unknown): undefined {
  if (!isPluginError(error, 'not-served') && !isPluginError(error, 'not-found')) throw error;
}

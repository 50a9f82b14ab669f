/** Removal of what no release in use needs, and the guard of what does. */

import { stat, rm } from 'node:fs/promises';
import { basename, dirname, relative } from 'node:path';
import {
  additionalImagesPath,
  formatAdditionalImages,
  formatReleaseRepositories,
  readAdditionalImages,
  readReleaseRepositories,
  repositoriesPath,
  readConfigFolder,
} from '#bundle/metadata';
import { writeTextFile, readObjects } from '#config/manifest';
import { listMirrorPlaces } from '#config/mirrorSets';
import { signaturesIn } from '#config/signatures';
import { describeWriteError, OpenedFolder, RootFolder } from '#content/files';
import { type Digest, isDigest, digestIn } from '#content/oci';
import { Registries } from '#content/registry';
import { type RemovedContent, Directory, listManifests, listRepositories } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError, nameSome } from '#errors';
import { fieldsAt } from '#fields';
import { compareVersions, parseReleaseTag } from '#release/version';
import { formatPlace, releaseName, type Destination, whileLocked } from './mirror/destination.ts';
import { type MirroringAccess, withResumeHint } from './mirror/request.ts';
import { readInventory } from './prune/inventory.ts';
import {
  readClusterNeeds,
  type ClusterNeeds,
  evaluateReleases,
  planRepository,
  type EvaluatedRelease,
  type RepositoryPlan,
  digestsIn,
} from './prune/prunePlan.ts';
import {
  checkEnded,
  checkNoRun,
  describeRun,
  isRecordTag,
  writeRecord,
  type StoredRecord,
} from './prune/pruneRecord.ts';
import { ignoreUnreadable, type PrunedRepository } from './prune/repository.ts';

export { guardCopies } from './prune/pruneGuard.ts';
export type { EvaluatedRelease } from './prune/prunePlan.ts';

/** The target to prune, and the releases that stay. */
interface PruneRequest {
  readonly destination: Destination;
  /** Versions, or tags of releases with their architecture. */
  readonly keep: readonly string[];
  readonly configFolder?: string;
  /** The folder that the user named for it: itself or a parent. Nothing is removed through a link below it. */
  readonly configRoot?: string;
  /** Remove, and do not only plan. */
  readonly isConfirmed: boolean;
  /** Continue the run of another machine, which was interrupted. */
  readonly resume: boolean;
  /** Do not ask the cluster what it needs. */
  readonly ignoreCluster: boolean;
  /** The user named the cluster, so it must exist. */
  readonly isClusterNamed: boolean;
}

/** What a run removed, or would remove. */
export interface PruneOutcome {
  readonly releases: readonly EvaluatedRelease[];
  readonly repositories: readonly (RepositoryPlan & Partial<RepositoryResult>)[];
  readonly files: readonly string[];
  /** The size in bytes of the content that nothing else at the target needs. */
  readonly bytes: number;
  /** The tags of releases that cannot be read, and stay. */
  readonly unreadable: readonly string[];
  /** The cluster that was asked. */
  readonly cluster: ClusterNeeds | undefined;
  /** Why the target would not remove images. */
  readonly refusal: PluginError | undefined;
  readonly isDone: boolean;
}

/**
 * Removes the releases at a target that are not kept, with their signatures and configuration; or only plans that.
 * Images that belong to no known release stay. Throws `not-found` for a missing release to keep. Throws `unsupported`
 * and `denied` if the registry does not remove images, `conflict` if the target changed, `busy` beside another run, and
 * the errors of the cluster.
 */
export function pruneTarget(request: PruneRequest, access: MirroringAccess, context: Context): Promise<PruneOutcome> {
  return withResumeHint(async () => {
    await using registries = new Registries(access.registries, context);
    return await whileLocked(request.isConfirmed ? await listRoots(request.destination) : [], async () => {
      const plan = await makePlan(request, access, registries, context);
      if (!request.isConfirmed) return plan;
      if (plan.refusal) throw plan.refusal;
      for (const { records, repository } of plan.repositories) {
        for (const record of records) checkEnded(record, repository.store.name, request);
      }
      const configRoot = request.configRoot ?? request.configFolder;
      const repositories = await removeReleases({ ...plan, configRoot }, context);
      return { ...plan, repositories, bytes: sumFreed(repositories), isDone: true };
    });
  });
}

/** Lists the mirror directories of a destination that exist. */
async function listRoots(destination: Destination): Promise<string[]> {
  const places = [releaseName, 'cli'].map((name) => destination(name, { version: '0.0.0', arch: 'x86_64' }).place);
  const roots = places.flatMap((place) => (place.kind === 'directory' ? [place.root] : []));
  const stats = await Promise.all(roots.map((root) => stat(root).catch(() => undefined)));
  return roots.filter((_, index) => stats[index]);
}

async function makePlan(
  { destination, keep, configFolder, ignoreCluster, isClusterNamed }: PruneRequest,
  access: MirroringAccess,
  registries: Registries,
  context: Context,
): Promise<PruneOutcome> {
  const cluster = ignoreCluster ? undefined : await askCluster(access, isClusterNamed);
  const inventory = await readInventory(destination, registries, context);
  checkKept(keep, inventory);
  const releases = evaluateReleases(inventory, keep, cluster).sort((a, b) => compareVersions(a.version, b.version));
  const configured = configFolder === undefined ? [] : await listConfiguredImages(configFolder, context);
  const needed = new Set([...(cluster?.digests ?? []), ...configured]);
  const former = inventory.formerGraphData.map((each) => ({ ...each, reason: undefined }));
  const planned = [...former, ...releases].sort((a, b) => compareVersions(a.version, b.version));
  const repositories: RepositoryPlan[] = [];
  for (const repository of inventory.repositories) {
    repositories.push(await planRepository(repository, planned, needed));
  }
  const removed = releases.filter(({ reason }) => reason === undefined);
  const kept = releases.filter(({ reason }) => reason !== undefined);
  const staying = new Set(kept.flatMap(({ digest, children }) => [digest, ...children]));
  const digests = new Set(removed.flatMap(({ digest, children }) => [digest, ...children]));
  const emptied = repositories.filter(({ isEmptied, manifests }) => isEmptied && manifests.length > 0);
  const gone = {
    digests: new Set([...digests].filter((digest) => !staying.has(digest))),
    places: new Set(emptied.map(({ repository }) => formatPlace(repository.place))),
  };
  return {
    releases,
    repositories,
    files: configFolder === undefined ? [] : await listPrunedFiles(configFolder, gone, context),
    bytes: sumFreed(repositories),
    unreadable: inventory.unreadable,
    cluster,
    refusal: await findRefusal(repositories),
    isDone: false,
  };
}

async function askCluster(access: MirroringAccess, isNamed: boolean): Promise<ClusterNeeds | undefined> {
  try {
    return await readClusterNeeds(access, isNamed);
  } catch (cause) {
    if (!isPluginError(cause) || cause.code === 'interrupted') throw cause;
    throw new PluginError(cause.code, `the cluster cannot be asked which images it needs: ${cause.message}`, {
      hint: 'Only if no cluster uses this target, leave the cluster out.',
      settings: ['ignoreCluster'],
      cause,
    });
  }
}

function checkKept(
  keep: readonly string[],
  { releases, unreadable: broken, repositories }: Awaited<ReturnType<typeof readInventory>>,
): void {
  const where = repositories
    .map(({ store }) => store.name)
    .slice(0, 1)
    .join('');
  const tags = releases.toSorted((a, b) => compareVersions(a.version, b.version)).map(({ tag }) => tag);
  for (const each of keep) {
    const damaged = broken.find((tag) => tag === each || parseReleaseTag(tag)?.version === each);
    if (damaged !== undefined) {
      const message = `the release ${damaged} in ${where} cannot be read, so its images are unknown`;
      const hint = 'Mirror it again, and then prune.';
      throw new PluginError('incomplete', message, { hint });
    }
    if (releases.some(({ version, tag }) => version === each || tag === each)) continue;
    throw new PluginError('not-found', `${where === '' ? 'the target' : where} has no release ${each} to keep`, {
      hint: tags.length > 0 ? `It has ${nameSome(tags, 10)}.` : 'Check the repository.',
    });
  }
}

async function findRefusal(repositories: readonly RepositoryPlan[]): Promise<PluginError | undefined> {
  const [first] = repositories.filter(({ manifests }) => manifests.length > 0);
  try {
    await first?.repository.checkRemovable();
    return undefined;
  } catch (error) {
    if (isPluginError(error, 'unsupported') || isPluginError(error, 'denied') || isPluginError(error, 'unauthorized')) {
      return error;
    }
    throw error;
  }
}

/** Sums the sizes of content that no repository at the target keeps. Repositories of one target share blobs. */
function sumFreed(repositories: readonly RepositoryPlan[]): number {
  const kept = new Set(repositories.flatMap((each) => [...each.kept]));
  const freed = new Map(repositories.flatMap(({ sizes }) => [...sizes]));
  return [...freed].reduce((sum, [digest, size]) => sum + (kept.has(digest) ? 0 : size), 0);
}

interface Removal {
  readonly releases: readonly EvaluatedRelease[];
  readonly repositories: readonly RepositoryPlan[];
  readonly files: readonly string[];
  /** The folder that the user named, with the files. */
  readonly configRoot?: string;
}

/** What was done in a repository. */
interface RepositoryResult extends RepositoryPlan {
  /** The manifests that the registry did not delete. Such a registry (Quay) keeps what they refer to as well. */
  readonly undeleted: readonly Digest[];
}

/**
 * Carries out a plan: release images first, then the images that only they need, then files. Throws `conflict` if the
 * target changed since it was read, or got tags meanwhile, and `busy` beside another run.
 */
async function removeReleases(
  { releases, repositories, files, configRoot }: Removal,
  context: Context,
): Promise<RepositoryResult[]> {
  const removed = releases.filter(({ reason }) => reason === undefined);
  const records = await writeRecords(repositories, removed);
  const digests = new Set(removed.map(({ digest }) => digest));
  for (const { repository, manifests } of records.keys()) {
    context.log('info', `removing ${manifests.length} manifests from ${repository.store.name}`);
  }
  await removeContent(records, digests);
  // A run that mirrors one of these releases may have looked for records before, and tag it now. If it tags it after
  // this, it finds that images are missing.
  const added = new Map<RepositoryPlan, Added>();
  for (const plan of records.keys()) added.set(plan, await findAdded(plan));
  await removeContent(new Map([...added].map(([plan, { again }]) => [plan, again])), digests);
  for (const [plan, record] of records) {
    await removeRecords(plan, [record, ...plan.records]);
    if (plan.isEmptied) await plan.repository.removeFolders();
  }
  if (configRoot !== undefined) await removeFiles(configRoot, files);
  const roots = new Set(
    repositories.flatMap(({ repository: { place } }) => (place.kind === 'directory' ? [place.root] : [])),
  );
  for (const root of roots) await untagImages(root, context);
  for (const { conflict } of added.values()) if (conflict) throw conflict;
  return Promise.all(repositories.map(describeResult));
}

async function describeResult(plan: RepositoryPlan): Promise<RepositoryResult> {
  const { repository, referrers, kept } = plan;
  // Quay deletes only what has a tag, and collects neither a manifest that refers to an image nor that image.
  const undeleted = await repository.findUndeleted([...referrers.keys()]);
  const stays = await repository.reach(undeleted.flatMap((digest) => [digest, referrers.get(digest) ?? digest]));
  return { ...plan, undeleted, kept: new Set([...kept, ...digestsIn(stays)]) };
}

/** Removes content of several repositories, release images first. */
async function removeContent(
  contents: ReadonlyMap<RepositoryPlan, RemovedContent>,
  releases: ReadonlySet<Digest>,
): Promise<void> {
  const isOwn = (digest: Digest): boolean => releases.has(digest);
  const rest = new Map<PrunedRepository, RemovedContent>();
  for (const [{ repository }, { tags, manifests, blobs }] of contents) {
    const [own, others] = [manifests.filter(isOwn), manifests.filter((digest) => !isOwn(digest))];
    const ownTags = tags.filter((tag) => own.includes(repository.tags.get(tag) ?? 'sha256:'));
    await repository.remove({ tags: ownTags, manifests: own, blobs: [] });
    rest.set(repository, { tags: tags.filter((tag) => !ownTags.includes(tag)), manifests: others, blobs });
  }
  for (const [repository, content] of rest) await repository.remove(content);
}

/**
 * Writes the records of this run, and then checks that nothing changed since the plan was made. Other runs look for
 * records after their own changes, so that one of two runs always sees the other.
 */
async function writeRecords(
  repositories: readonly RepositoryPlan[],
  removed: readonly EvaluatedRelease[],
): Promise<Map<RepositoryPlan, StoredRecord>> {
  const run = describeRun();
  const written = new Map<RepositoryPlan, StoredRecord>();
  try {
    // All records come first: the release image of one repository tells what is in the others.
    for (const plan of repositories) {
      const { repository, tags, manifests, blobs, records } = plan;
      if (tags.length + manifests.length + blobs.length + records.length === 0) continue;
      // In a fixed order, so that the next run replaces what a killed run wrote of the record.
      const record = {
        releases: removed.map(({ tag }) => tag),
        tags: tags.toSorted(),
        manifests: manifests.toSorted(),
        blobs: blobs.toSorted(),
        ...(repository.place.kind === 'registry' && { run }),
      };
      written.set(plan, await writeRecord(repository.store, record));
    }
    for (const plan of repositories) await checkUnchanged(plan.repository, written.get(plan)?.tag);
    return written;
  } catch (error) {
    // Nothing was removed, so that there is nothing to finish. The next run replaces a record that stays.
    for (const [plan, record] of written) await removeRecords(plan, [record]).catch(() => undefined);
    throw error;
  }
}

async function removeRecords({ repository, kept }: RepositoryPlan, records: readonly StoredRecord[]): Promise<void> {
  await repository.remove({
    tags: records.map(({ tag }) => tag),
    manifests: records.flatMap(({ content }) => content.slice(0, 1)),
    blobs: records.flatMap(({ content }) => content.slice(1).filter((digest) => !kept.has(digest))),
  });
}

/**
 * Throws `conflict` if the tags of a repository changed since they were read, and `busy` if another run removes from
 * it.
 */
async function checkUnchanged(
  { store, tags }: RepositoryPlan['repository'],
  ownTag: string | undefined,
): Promise<void> {
  const names = (await store.tags()).filter((tag) => tag !== ownTag);
  // A tag that leads to nothing was left out before.
  const roots = await Promise.all(names.map((tag) => store.resolve(tag).catch(ignoreUnreadable)));
  const at = names.findIndex((tag, index) => roots[index] !== undefined && roots[index].digest !== tags.get(tag));
  const [changed, root] = [names[at], roots[at]];
  if (changed === undefined || !root) return;
  await checkNoRun(store, [changed]);
  const what = tags.has(changed) ? `the tag ${changed} leads to another image` : `it has the new tag ${changed}`;
  throw new PluginError('conflict', `${store.name} changed since it was read: ${what}`, {
    hint: 'Wait until no other program writes there, and run the same command again.',
  });
}

/** What a repository got while releases were removed. */
interface Added {
  /** Removed content with its former tags. */
  readonly again: RemovedContent;
  readonly conflict: PluginError | undefined;
}

async function findAdded({ repository: { store, tags }, manifests, tags: removed }: RepositoryPlan): Promise<Added> {
  const gone = new Set(removed);
  const again = { tags: [] as string[], manifests: [] as Digest[], blobs: [] };
  let conflict: PluginError | undefined;
  for (const tag of await store.tags()) {
    if (isRecordTag(tag) || (tags.has(tag) && !gone.has(tag))) continue;
    // Some registries list removed tags for a while.
    const root = await store.resolve(tag).catch(ignoreUnreadable);
    if (!root) continue;
    if (gone.has(tag) && manifests.includes(root.digest)) {
      again.tags.push(tag);
      again.manifests.push(root.digest);
      continue;
    }
    conflict ??= new PluginError('conflict', `${store.name} got the new tag ${tag} while releases were removed`, {
      hint: 'Mirror that image again, because content of it may have been removed.',
    });
  }
  return { again, conflict };
}

/** What the configuration in a folder may belong to. */
interface RemovedReleases {
  /** The digests of removed releases, and of their images of single architectures. */
  readonly digests: ReadonlySet<Digest>;
  /** The repositories that nothing is left in. */
  readonly places: ReadonlySet<string>;
}

/**
 * Lists the files of a folder that belong to removed releases alone: their signatures, and mirror sets that lead only
 * to repositories that nothing is left in. Throws the errors of reading.
 */
async function listPrunedFiles(
  folder: string,
  { digests, places }: RemovedReleases,
  { signal }: Context,
): Promise<string[]> {
  const files = await readConfigFolder(new RootFolder(folder), '', signal);
  return files.flatMap(({ path, text }) => {
    const objects = readObjects(text, path);
    const signed = [...signaturesIn(objects, path).keys()];
    const mirrors = objects.flatMap(listMirrorPlaces);
    const isSignature = signed.length > 0 && signed.every((digest) => digests.has(digest));
    const isMirrorSet = mirrors.length > 0 && mirrors.every((place) => places.has(place));
    return isSignature || isMirrorSet ? [path] : [];
  });
}

/** Lists the digests of the graph-data images that update services in a folder use. Throws the errors of reading. */
async function listConfiguredImages(folder: string, { signal }: Context): Promise<Digest[]> {
  const files = await readConfigFolder(new RootFolder(folder), '', signal);
  const objects = files.flatMap(({ path, text }) => readObjects(text, path));
  return objects
    .filter(({ kind }) => kind === 'UpdateService')
    .map((service) => digestIn(String(fieldsAt(service, 'spec')['graphDataImage'])))
    .filter(isDigest);
}

/**
 * Removes files below a folder that the user named. A missing file is no error. Throws `not-writable`, also for a link
 * on the way to a file.
 */
async function removeFiles(root: string, paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    try {
      await using folder = await OpenedFolder.open(root, relative(root, dirname(path)));
      await rm(folder.at(basename(path)), { force: true });
    } catch (error) {
      throw describeWriteError(error, path);
    }
  }
}

/**
 * Removes what is no longer in a mirror directory from its lists of where its releases and additional images came from.
 */
async function untagImages(root: string, context: Context): Promise<void> {
  const folder = new RootFolder(root);
  const repositories = (await listRepositories(root)).map((name) => new Directory(root, name, {}, context));
  const present = new Set((await Promise.all(repositories.map(listManifests))).flat());
  const releases = await readReleaseRepositories(folder);
  const keptReleases = [...releases].filter(([digest]) => present.has(digest));
  if (keptReleases.length < releases.size) {
    await writeTextFile(root, repositoriesPath, formatReleaseRepositories(new Map(keptReleases)));
  }
  const images = await readAdditionalImages(folder);
  const keptImages = images.filter(({ digest }) => present.has(digest));
  if (keptImages.length < images.length) {
    await writeTextFile(root, additionalImagesPath, formatAdditionalImages(keptImages));
  }
}

import { stat } from 'node:fs/promises';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import { Registries } from '../../content/registry/registries.ts';
import { formatPlace, releaseName, type Destination } from '../destination.ts';
import { compareVersions, parseReleaseTag } from '../../release/version.ts';
import type { MirroringAccess } from '../request.ts';
import { whileLocked } from '../directoryLock.ts';
import { withResumeHint } from '../interruption.ts';
import { readClusterNeeds, type ClusterNeeds } from './inUse.ts';
import { readInventory } from './inventory.ts';
import { listConfiguredImages, listPrunedFiles } from './prunedConfig.ts';
import { judgeReleases, planRepository, type JudgedRelease, type RepositoryPlan } from './prunePlan.ts';
import { checkEnded } from '../pruneRecord.ts';
import { removeReleases, type RepositoryResult } from './removal.ts';

/** The target to prune, and the releases that stay. */
export interface PruneRequest {
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
  readonly releases: readonly JudgedRelease[];
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
 * and `denied` if the registry does not remove images, `conflict` if the target changed, `busy` beside another run, and the errors of the cluster.
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
  const releases = judgeReleases(inventory, keep, cluster).sort((a, b) => compareVersions(a.version, b.version));
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

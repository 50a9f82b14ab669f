import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { removeFiles, untagImages } from './prunedConfig.ts';
import { digestsIn, type JudgedRelease, type RepositoryPlan } from './prunePlan.ts';
import { checkNoRun, describeRun, isRecordTag, writeRecord, type StoredRecord } from '../pruneRecord.ts';
import type { RemovedContent } from '../../content/store/directoryRemoval.ts';
import { ignoreUnreadable, type PrunedRepository } from './repository.ts';

interface Removal {
  readonly releases: readonly JudgedRelease[];
  readonly repositories: readonly RepositoryPlan[];
  readonly files: readonly string[];
  /** The folder that the user named, with the files. */
  readonly configRoot?: string;
}

/** What was done in a repository. */
export interface RepositoryResult extends RepositoryPlan {
  /** The manifests that the registry did not delete. Such a registry (Quay) keeps what they refer to as well. */
  readonly undeleted: readonly Digest[];
}

/**
 * Carries out a plan: release images first, then the images that only they need, then files. Throws `conflict` if the target
 * changed since it was read, or got tags meanwhile, and `busy` beside another run.
 */
export async function removeReleases(
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
  // A run that mirrors one of these releases may have looked for records before, and tag it now. If it tags it after this,
  // it finds that images are missing.
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
 * Writes the records of this run, and then checks that nothing changed since the plan was made. Other runs look for records
 * after their own changes, so that one of two runs always sees the other.
 */
async function writeRecords(
  repositories: readonly RepositoryPlan[],
  removed: readonly JudgedRelease[],
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

/** Throws `conflict` if the tags of a repository changed since they were read, and `busy` if another run removes from it. */
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

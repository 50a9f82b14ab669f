import type { CopiedImages, CopyGuard } from '#content/copy';
import { RequestLimiter } from '#content/http';
import { walkManifests, type ContentStore, Directory } from '#content/store';
import { type Context, awaitDone } from '#context';
import { isPluginError, PluginError } from '#errors';
import { checkNoRun } from './pruneRecord.ts';

/** The largest number of pages of tags to read. */
const pageLimit = 1000;
/** The time to wait for a run that removes releases, in milliseconds. */
const longestRemoval = 10 * 60_000;

/**
 * Returns a guard against runs that remove releases from the same repositories of a registry. Directories have a lock
 * instead. Throws `busy` before copies begin and before releases are tagged if there is such a run, and `conflict` if
 * images are no longer there because a shorter run removed them.
 *
 * A run that removes releases writes its record, removes, looks whether a tag is back, and removes its record. Releases
 * are tagged first, and then this guard looks for records and images. So one of the two sees the other, if the registry
 * answers a read with all that it accepted before. `visibleWithin`: how long accepted content may be invisible, in
 * milliseconds.
 */
export function guardCopies(concurrency: number, context: Context, visibleWithin = 8000): CopyGuard {
  const limiter = new RequestLimiter(concurrency);
  const whileLimited = async <T>(action: () => Promise<T>): Promise<T> => {
    const release = await limiter.take('plain', context.signal);
    return await action().finally(release);
  };
  /** Returns the tags that are read for it. */
  const checkNotPruned = async (stores: readonly ContentStore[]): Promise<TagsOf> => {
    const read = async (store: ContentStore) =>
      [store, await whileLimited(() => checkRecords(store, context))] as const;
    return new Map(await Promise.all(stores.filter(isShared).map(read)));
  };
  const checkStillThere = async (copied: readonly CopiedImages[], tagsOf?: TagsOf): Promise<void> => {
    const checks = copied.flatMap((each) =>
      listManifests(each, tagsOf?.get(each.store)).map(async ({ store, name, descriptor }) => {
        const find = async (): Promise<PluginError | undefined> => {
          if (await whileLimited(() => store.exists(descriptor))) return undefined;
          const message = `${store.name} accepted ${descriptor.digest} of ${name}, and does not have it any more`;
          const hint =
            'Another program may remove images there, or its replicas show later what it accepts. Run the same ' +
            'command again: it copies what is missing.';
          return new PluginError('conflict', message, { hint });
        };
        // Registries with replicas show a manifest only seconds after they have accepted it (Azure/acr #588).
        await awaitDone(find, { timeout: visibleWithin, interval: 500 }, context);
      }),
    );
    await Promise.all(checks);
  };
  const storesOf = (copied: readonly CopiedImages[]): ContentStore[] => copied.map(({ store }) => store);
  return {
    async beforeCopies(stores) {
      await checkNotPruned(stores);
    },
    async beforeReleases(copied) {
      // First the records: a run that removes releases writes its record first, and removes it last. It removes images
      // with their tags, so an image whose tag is listed needs no request of its own.
      await checkStillThere(copied, await checkNotPruned(storesOf(copied)));
    },
    async areThere(copied) {
      let isWaiting = false;
      const findRun = async (): Promise<PluginError | undefined> => {
        try {
          await checkNotPruned(storesOf(copied));
          return undefined;
        } catch (error) {
          if (!isPluginError(error, 'busy')) throw error;
          if (!isWaiting) context.log('info', `waiting: ${error.message}`);
          isWaiting = true;
          return error;
        }
      };
      // Not an error, because the release may have its tag, and the other run may remove components of it.
      await awaitDone(findRun, { timeout: longestRemoval, interval: 1000 }, context);
      try {
        await checkStillThere(copied);
        return true;
      } catch (error) {
        if (!isPluginError(error, 'conflict')) throw error;
        context.log('warn', `${error.message}: copying it again`);
        return false;
      }
    },
  };
}

/** Returns whether other runs may change a store meanwhile. A directory has a lock. */
function isShared(store: ContentStore): boolean {
  return !(store instanceof Directory);
}

/** The tags of each repository. */
type TagsOf = ReadonlyMap<ContentStore, ReadonlySet<string>>;

/**
 * Throws `busy` if releases are being removed from a repository, and returns its tags. A registry that lists no tags
 * cannot be checked.
 */
async function checkRecords(store: ContentStore, context: Context): Promise<ReadonlySet<string>> {
  const names = await store.knownTags?.(pageLimit);
  if (!names) context.log('debug', `${store.name} lists no tags`);
  await checkNoRun(store, [...(names ?? [])]);
  return names ?? new Set();
}

/** Lists the manifests of copied images, without images that have one of some tags. */
function listManifests({ store, images }: CopiedImages, tagged: ReadonlySet<string> = new Set()) {
  if (!isShared(store)) return [];
  const untagged = images.filter(({ tags = [] }) => !tags.some((tag) => tagged.has(tag)));
  const manifests = untagged.flatMap(({ name, root, manifests: own }) =>
    [...walkManifests(root.digest, (digest) => own.get(digest)?.manifest)].flatMap(({ digest }) => {
      const stored = own.get(digest);
      return stored ? [[digest, { store, name, descriptor: stored.descriptor }] as const] : [];
    }),
  );
  return [...new Map(manifests).values()];
}

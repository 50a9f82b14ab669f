import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { RequestLimiter } from '../http/requestLimiter.ts';
import type { CopiedImages } from '../release/mirror/mirror.ts';
import { walkManifests } from '../store/imageGraph.ts';
import type { ContentStore } from '../store/store.ts';
import { checkEnded, isRecordTag, readRecords } from './pruneRecord.ts';

/** Throws `busy` if releases are being removed from a repository of a registry. A registry that lists no tags cannot be checked. */
export async function checkNotPruned(store: ContentStore, context: Context): Promise<void> {
  const names = await store.tags().catch((error: unknown) => {
    if (!isPluginError(error) || error.code === 'interrupted') throw error;
    context.log('debug', `${store.name} lists no tags: ${error.message}`);
    return [];
  });
  for (const tag of names.filter(isRecordTag)) {
    const root = await store.resolve(tag).catch((error: unknown) => {
      if (!isPluginError(error, 'not-found')) throw error;
      return undefined;
    });
    const records = root ? await readRecords(store, new Map([[tag, root.digest]])) : [];
    for (const record of records) checkEnded(record, store.name, { resume: false });
  }
}

/**
 * Throws `busy` if releases are being removed from a registry that got images, and `conflict` if images are no longer there,
 * because a shorter run removed them. Directories have a lock instead.
 */
export async function checkStillThere(
  copied: readonly CopiedImages[],
  concurrency: number,
  context: Context,
): Promise<void> {
  const limiter = new RequestLimiter(concurrency);
  for (const { place, store, images } of copied) {
    if (place.kind === 'directory') continue;
    // First the records: a run that removes releases writes its record first, and removes it last.
    await checkNotPruned(store, context);
    const manifests = new Map(
      images.flatMap(({ name, root, manifests: own }) =>
        [...walkManifests(root.digest, (digest) => own.get(digest)?.manifest)].flatMap(({ digest }) => {
          const stored = own.get(digest);
          return stored ? [[digest, { name, descriptor: stored.descriptor }] as const] : [];
        }),
      ),
    );
    const checks = [...manifests.values()].map(async ({ name, descriptor }) => {
      const release = await limiter.take('plain', context.signal);
      const isThere = await store.exists(descriptor).finally(release);
      if (isThere) return;
      throw new PluginError('conflict', `${store.name} lost ${descriptor.digest} of ${name} while images were copied`, {
        hint: 'Another program removes images there. Run the same command again: it copies what is missing.',
      });
    });
    await Promise.all(checks);
  }
}

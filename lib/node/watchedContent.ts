import { isPluginError, PluginError } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/digest.ts';
import type { ContentSource } from '../store/store.ts';

/** What is told of content while it is read. */
export interface ContentWatcher {
  /** Content was read to its end; its size in bytes. */
  readonly onRead?: (digest: Digest, size: number) => void;
  /** Content could not be read, or is not what its digest says. */
  readonly onFault: (digest: Digest, error: PluginError) => void;
}

/**
 * The same content, of which a watcher hears what became of each reading: a program that gets it over HTTP only sees an
 * answer break off.
 */
export function watchContent(content: ContentSource, watcher: ContentWatcher): ContentSource {
  const noteFault = (digest: string | undefined, error: unknown): void => {
    const isFault = isPluginError(error) && error.code !== 'interrupted';
    if (isFault && digest?.startsWith('sha256:')) watcher.onFault(digest as Digest, error);
  };
  return {
    name: content.name,
    resolve: async (tagOrDigest) => {
      try {
        return await content.resolve(tagOrDigest);
      } catch (error) {
        noteFault(tagOrDigest, error);
        throw error;
      }
    },
    fetch: async (descriptor: Descriptor, start?: number) => {
      const { digest, size } = descriptor;
      const stream = await content.fetch(descriptor, start).catch((error: unknown) => {
        noteFault(digest, error);
        throw error;
      });
      stream.once('end', () => watcher.onRead?.(digest, size));
      return stream.once('error', (error) => {
        noteFault(digest, error);
      });
    },
    exists: async (descriptor) => {
      const found = await content.exists(descriptor);
      if (!found) {
        watcher.onFault(descriptor.digest, new PluginError('not-found', `${content.name} lacks ${descriptor.digest}`));
      }
      return found;
    },
    tags: () => content.tags(),
  };
}

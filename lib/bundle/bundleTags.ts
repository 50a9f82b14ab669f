import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import type { Bundle } from './open.ts';

/** The tags of a bundle’s repository with what they point to, sorted. A tag that leads to nothing readable is left out, with a warning. */
export async function readBundleTags(bundle: Bundle, context: Context): Promise<ReadonlyMap<string, Digest>> {
  const tags = (await bundle.content.tags()).sort();
  const resolve = async (tag: string): Promise<[string, Digest][]> => {
    try {
      return [[tag, (await bundle.content.resolve(tag)).digest]];
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      context.log('warn', `the tag ${tag} is left out: ${error.message}`);
      return [];
    }
  };
  return new Map((await Promise.all(tags.map(resolve))).flat());
}

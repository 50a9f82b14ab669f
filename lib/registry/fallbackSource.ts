import { Readable } from 'node:stream';
import { isPluginError, PluginError } from '../errors.ts';
import { manifestSizeLimit, type Descriptor } from '../oci/descriptor.ts';
import { readContent, type ContentSource } from '../store/store.ts';

/**
 * Asks one place after the other until one of them can answer. Throws what they all said, with the code of the last one,
 * but `not-found` where all that could be reached agree on that. An interruption and a full or failing disk end it at
 * once: no other place would help.
 */
export async function firstSuccess<Source extends { readonly name: string }, Result>(
  sources: readonly Source[],
  action: (source: Source) => Promise<Result>,
): Promise<Result> {
  const failures: { source: Source; error: PluginError }[] = [];
  for (const source of sources) {
    try {
      return await action(source);
    } catch (error) {
      if (!isPluginError(error) || ['interrupted', 'disk-full', 'not-writable'].includes(error.code)) throw error;
      failures.push({ source, error });
    }
  }
  const last = failures.at(-1)?.error ?? new PluginError('internal', 'there was no source to try');
  if (failures.length < 2) throw last;
  const reached = failures.filter(({ error }) => !isUnreached(error));
  const isNowhere = reached.length > 0 && reached.every(({ error }) => error.code === 'not-found');
  const messages = failures.map(({ source, error: { message } }) => {
    return message.includes(source.name) ? message : `${source.name}: ${message}`;
  });
  throw new PluginError(isNowhere ? 'not-found' : last.code, messages.join('; '), { hint: last.hint, cause: last });
}

function isUnreached({ code }: PluginError): boolean {
  return code === 'unreachable' || code === 'tls';
}

/** A repository that is to be had in several places, mirrors first: each call goes to the first that can answer it. */
export class FallbackSource implements ContentSource {
  readonly name: string;
  readonly #sources: readonly ContentSource[];
  readonly #onUnreachable: (reason: PluginError) => void;

  /**
   * `places` in the order to ask; the name is that of the last, the repository itself. `onUnreachable` is told why that could not be
   * asked for a tag or a digest that no mirror has, and that counts as absent therefore.
   */
  constructor(
    sources: readonly [ContentSource, ...ContentSource[]],
    onUnreachable: (reason: PluginError) => void = () => undefined,
  ) {
    this.#sources = sources;
    this.#onUnreachable = onUnreachable;
    this.name = (sources.at(-1) ?? sources[0]).name;
  }

  async resolve(tagOrDigest: string): Promise<Descriptor> {
    try {
      return await firstSuccess(this.#sources, (source) => source.resolve(tagOrDigest));
    } catch (error) {
      const last = isPluginError(error, 'not-found') ? error.cause : undefined;
      if (isPluginError(last) && isUnreached(last)) this.#onUnreachable(last);
      throw error;
    }
  }

  /** As ContentSource has it. Of a manifest and other small content, what a place has wrong is sought in the next one. */
  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    return firstSuccess(this.#sources, async (source) => {
      if (start > 0 || descriptor.size > manifestSizeLimit) return source.fetch(descriptor, start);
      return Readable.from([await readContent(source, descriptor)]);
    });
  }

  /** Whether one of the places has it; throws what those said that could not be asked, where nobody answered. */
  async exists(descriptor: Descriptor): Promise<boolean> {
    const found = await this.#find(async (source) => (await source.exists(descriptor)) || undefined);
    return found ?? false;
  }

  /** The tags of the first place that has any: a mirror that lacks the repository has none. */
  async tags(): Promise<string[]> {
    const found = await this.#find(async (source) => {
      const tags = await source.tags();
      return tags.length > 0 ? tags : undefined;
    });
    return found ?? [];
  }

  async #find<Result>(action: (source: ContentSource) => Promise<Result | undefined>): Promise<Result | undefined> {
    try {
      return await firstSuccess(this.#sources, async (source) => {
        const result = await action(source);
        if (result === undefined) throw new PluginError('not-found', `${source.name} does not have it`);
        return result;
      });
    } catch (error) {
      if (isPluginError(error, 'not-found')) return undefined;
      throw error;
    }
  }
}

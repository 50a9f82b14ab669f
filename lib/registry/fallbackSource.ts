import { Readable } from 'node:stream';
import { isPluginError, PluginError } from '../errors.ts';
import { manifestSizeLimit, type Descriptor } from '../oci/descriptor.ts';
import { readContent, type ContentSource } from '../store/store.ts';

/**
 * Asks one place after the other until one of them can answer. Throws what they all said, with the code of the last one,
 * but `not-found` where all that could be reached agree on that. An interruption and a full or failing disk end it at
 * once: no other place would help.
 */
export async function firstSuccess<Place extends { readonly name: string }, Result>(
  places: readonly Place[],
  ask: (place: Place) => Promise<Result>,
): Promise<Result> {
  const failures: { place: Place; error: PluginError }[] = [];
  for (const place of places) {
    try {
      return await ask(place);
    } catch (error) {
      if (!isPluginError(error) || ['interrupted', 'disk-full', 'not-writable'].includes(error.code)) throw error;
      failures.push({ place, error });
    }
  }
  const last = failures.at(-1)?.error ?? new PluginError('internal', 'there was no place to ask');
  if (failures.length < 2) throw last;
  const reached = failures.filter(({ error }) => !isSilence(error));
  const isNowhere = reached.length > 0 && reached.every(({ error }) => error.code === 'not-found');
  const said = failures.map(({ place, error: { message } }) => {
    return message.includes(place.name) ? message : `${place.name}: ${message}`;
  });
  throw new PluginError(isNowhere ? 'not-found' : last.code, said.join('; '), { hint: last.hint, cause: last });
}

function isSilence({ code }: PluginError): boolean {
  return code === 'unreachable' || code === 'tls';
}

/** A repository that is to be had in several places, mirrors first: each call goes to the first that can answer it. */
export class FallbackSource implements ContentSource {
  readonly name: string;
  readonly #places: readonly ContentSource[];
  readonly #onDoubt: (reason: PluginError) => void;

  /**
   * `places` in the order to ask; the name is that of the last, the repository itself. `onDoubt` is told why that could not be
   * asked for a tag or a digest that no mirror has, and that counts as absent therefore.
   */
  constructor(
    places: readonly [ContentSource, ...ContentSource[]],
    onDoubt: (reason: PluginError) => void = () => undefined,
  ) {
    this.#places = places;
    this.#onDoubt = onDoubt;
    this.name = (places.at(-1) ?? places[0]).name;
  }

  async resolve(tagOrDigest: string): Promise<Descriptor> {
    try {
      return await firstSuccess(this.#places, (place) => place.resolve(tagOrDigest));
    } catch (error) {
      const last = isPluginError(error, 'not-found') ? error.cause : undefined;
      if (isPluginError(last) && isSilence(last)) this.#onDoubt(last);
      throw error;
    }
  }

  /** As ContentSource has it. Of a manifest and other small content, what a place has wrong is sought in the next one. */
  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    return firstSuccess(this.#places, async (place) => {
      if (start > 0 || descriptor.size > manifestSizeLimit) return place.fetch(descriptor, start);
      return Readable.from([await readContent(place, descriptor)]);
    });
  }

  /** Whether one of the places has it; throws what those said that could not be asked, where nobody answered. */
  async exists(descriptor: Descriptor): Promise<boolean> {
    const found = await this.#find(async (place) => (await place.exists(descriptor)) || undefined);
    return found ?? false;
  }

  /** The tags of the first place that has any: a mirror that lacks the repository has none. */
  async tags(): Promise<string[]> {
    const found = await this.#find(async (place) => {
      const tags = await place.tags();
      return tags.length > 0 ? tags : undefined;
    });
    return found ?? [];
  }

  async #find<Result>(ask: (place: ContentSource) => Promise<Result | undefined>): Promise<Result | undefined> {
    try {
      return await firstSuccess(this.#places, async (place) => {
        const answer = await ask(place);
        if (answer === undefined) throw new PluginError('not-found', `${place.name} does not have it`);
        return answer;
      });
    } catch (error) {
      if (isPluginError(error, 'not-found')) return undefined;
      throw error;
    }
  }
}

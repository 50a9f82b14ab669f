import type { Readable } from 'node:stream';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { ContentSource } from './store.ts';

/**
 * Asks one place after the other until one of them can answer. Throws what the last one said, naming what the
 * others said before it. An interruption and a full or failing disk end it at once: no other place would help.
 */
export async function tryEach<Place extends { readonly name: string }, Result>(
  places: readonly Place[],
  ask: (place: Place) => Promise<Result>,
): Promise<Result> {
  const failures: string[] = [];
  for (const [index, place] of places.entries()) {
    try {
      return await ask(place);
    } catch (error) {
      const final = isPluginError(error) && ['interrupted', 'disk-full', 'not-writable'].includes(error.code);
      if (final || !isPluginError(error) || (index === places.length - 1 && failures.length === 0)) throw error;
      const message = messageOf(error);
      failures.push(message.includes(place.name) ? message : `${place.name}: ${message}`);
      if (index === places.length - 1) {
        throw new PluginError(error.code, failures.join('; '), { hint: error.hint, cause: error });
      }
    }
  }
  throw new PluginError('internal', 'there was no place to ask');
}

/** A repository that is to be had in several places, mirrors first: each call goes to the first that can answer it. */
export class Mirrored implements ContentSource {
  readonly name: string;
  readonly #places: readonly ContentSource[];

  /** `places` in the order to ask; the name is that of the last, the repository itself. */
  constructor(places: readonly [ContentSource, ...ContentSource[]]) {
    this.#places = places;
    this.name = (places.at(-1) ?? places[0]).name;
  }

  resolve(tagOrDigest: string): Promise<Descriptor> {
    return tryEach(this.#places, (place) => place.resolve(tagOrDigest));
  }

  fetch(descriptor: Descriptor, start?: number): Promise<Readable> {
    return tryEach(this.#places, (place) => place.fetch(descriptor, start));
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    for (const place of this.#places) if (await place.exists(descriptor)) return true;
    return false;
  }

  tags(): Promise<string[]> {
    return tryEach(this.#places, (place) => place.tags());
  }
}

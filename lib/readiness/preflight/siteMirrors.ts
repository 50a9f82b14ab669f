import { asFailure, ignoring, type PluginError } from '../../errors.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { formatReference, type Reference } from '../../content/oci/reference.ts';
import type { MirrorSets } from '../../content/registry/mirrors.ts';
import type { Registries } from '../../content/registry/registries.ts';
import type { ContentSource } from '../../content/store/store.ts';

/** Access to the mirrors of a site. */
export interface MirrorAccess {
  readonly registries: Registries;
  /** Returns the command that pushes the planned or the running release into a mirror (REGISTRY/REPOSITORY). */
  readonly pushCommand: (mirror: string, version: string) => string;
}

type DigestReference = Reference & { readonly digest: Digest };

/** The mirrors of a site. The first failure ends all questions, because each would take as long. */
export class SiteMirrors {
  readonly #sets: MirrorSets;
  readonly #registries: Registries;
  readonly #sources = new Map<string, ContentSource>();
  failure: PluginError | undefined;

  constructor(sets: MirrorSets, registries: Registries) {
    this.#sets = sets;
    this.#registries = registries;
  }

  /** Finds the first mirror that has an image, from which nodes pull it. */
  async find(image: DigestReference): Promise<ContentSource | undefined> {
    const own = formatReference({ registry: image.registry, repository: image.repository });
    for (const { registry, repository } of this.#sets.locationsOf(image)) {
      const name = formatReference({ registry, repository });
      if (name === own) continue;
      const source = this.#sources.get(name) ?? this.#registries.repository({ registry, repository });
      this.#sources.set(name, source);
      const found = await source.resolve(image.digest).catch(ignoring('not-found'));
      if (found) return source;
    }
    return undefined;
  }

  /** Does something with the mirrors. Returns undefined if they fail, and always after a failure. */
  async attempt<Result>(action: () => Promise<Result>): Promise<Result | undefined> {
    if (this.failure) return undefined;
    try {
      return await action();
    } catch (error) {
      const failure = asFailure(error);
      this.failure ??= failure;
      return undefined;
    }
  }
}

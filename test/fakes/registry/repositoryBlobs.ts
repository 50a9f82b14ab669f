import type { RegistryContent, StoredManifest } from './content.ts';

/**
 * The blobs of each repository of a registry. A blob is in a repository if it was linked there, if a manifest there
 * needs it, or if no repository has it.
 */
export class RepositoryBlobs {
  readonly #content: RegistryContent;
  readonly #links = new Map<string, Set<string>>();
  readonly #needs = new WeakMap<StoredManifest, ReadonlySet<string>>();

  constructor(content: RegistryContent) {
    this.#content = content;
  }

  /** Records that a blob was uploaded to a repository, or mounted there. */
  link(repository: string, digest: string): void {
    const links = this.#links.get(repository) ?? new Set();
    this.#links.set(repository, links.add(digest));
  }

  /** Returns whether a repository has a blob. */
  has(repository: string, digest: string): boolean {
    if (!this.#content.blobs.has(digest)) return false;
    if (this.#holds(repository, digest)) return true;
    const names = [...this.#content.repositories.keys(), ...this.#links.keys()];
    return !names.some((name) => this.#holds(name, digest));
  }

  #holds(repository: string, digest: string): boolean {
    if (this.#links.get(repository)?.has(digest)) return true;
    const manifests = this.#content.repositories.get(repository)?.manifests.values() ?? [];
    return [...manifests].some((manifest) => this.#needsOf(manifest).has(digest));
  }

  #needsOf(manifest: StoredManifest): ReadonlySet<string> {
    let needs = this.#needs.get(manifest);
    if (!needs) {
      needs = new Set(partsOf(manifest.bytes)?.blobs);
      this.#needs.set(manifest, needs);
    }
    return needs;
  }
}

/** Returns the digests that a manifest needs, and its media type; undefined if it is not a manifest. */
export function partsOf(
  bytes: Buffer,
): { blobs: string[]; manifests: string[]; mediaType: string | undefined } | undefined {
  try {
    const { mediaType, config, layers, manifests } = JSON.parse(bytes.toString()) as {
      mediaType?: string;
      config?: { digest: string };
      layers?: { digest: string }[];
      manifests?: { digest: string }[];
    };
    return {
      blobs: [...(config ? [config] : []), ...(layers ?? [])].map(({ digest }) => digest),
      manifests: (manifests ?? []).map(({ digest }) => digest),
      mediaType,
    };
  } catch {
    return undefined;
  }
}

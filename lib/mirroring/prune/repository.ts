import {
  childrenOf,
  isManifest,
  parseManifest,
  type Descriptor,
  type Manifest,
  digestOf,
  type Digest,
} from '#content/oci';
import type { Registries } from '#content/registry';
import {
  Directory,
  listManifests,
  removeEmptyFolders,
  removeFromDirectory,
  type RemovedContent,
  readContent,
  type ContentStore,
} from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { Place } from '../mirror/destination.ts';

/** A manifest with its size in bytes. */
export interface ReadManifest {
  readonly manifest: Manifest;
  readonly size: number;
}

/** A repository of the target, with the means to remove content. Reads each manifest once. */
export class PrunedRepository {
  readonly place: Place;
  readonly store: ContentStore;
  readonly tags = new Map<string, Digest>();
  readonly #tagsByDigest = new Map<Digest, string[]>();
  readonly #registries: Registries;
  readonly #corrupt = new Set<Digest>();
  readonly #deleted = new Set<Digest>();
  readonly #manifests = new Map<Digest, Promise<ReadManifest | undefined>>();

  constructor(place: Place, registries: Registries, context: Context) {
    this.place = place;
    this.#registries = registries;
    this.store =
      place.kind === 'registry'
        ? registries.repository(place)
        : new Directory(place.root, place.repository, {}, context);
  }

  /** Reads all tags. Leaves out tags that lead to nothing readable, because nothing is reachable by them. */
  async readTags(): Promise<void> {
    const names = await this.store.tags();
    const roots = await Promise.all(names.map((name) => this.store.resolve(name).catch(ignoreUnreadable)));
    for (const [index, name] of names.entries()) {
      const root = roots[index];
      if (!root) continue;
      this.tags.set(name, root.digest);
      const tags = this.#tagsByDigest.get(root.digest) ?? [];
      tags.push(name);
      this.#tagsByDigest.set(root.digest, tags);
    }
  }

  /** Returns the tags that lead to a manifest. */
  tagsOf(digest: Digest): readonly string[] {
    return this.#tagsByDigest.get(digest) ?? [];
  }

  /** Returns the manifests that are reachable from some digests, with their digests. Missing manifests are left out. */
  async reach(roots: Iterable<Digest>): Promise<Map<Digest, ReadManifest>> {
    const manifests = new Map<Digest, ReadManifest>();
    const visit = async (digest: Digest): Promise<void> => {
      if (manifests.has(digest)) return;
      const read = await this.#read(digest);
      if (!read || manifests.has(digest)) return;
      manifests.set(digest, read);
      const below = childrenOf(read.manifest).filter(isManifest);
      await Promise.all(below.map((child) => visit(child.digest)));
    };
    await Promise.all([...new Set(roots)].map(visit));
    return manifests;
  }

  /** Like reach, for images that stay. Throws `incomplete` if one is corrupt, because its content would be unknown. */
  async reachKept(roots: Iterable<Digest>): Promise<Map<Digest, ReadManifest>> {
    const all = [...roots];
    const manifests = await this.reach(all);
    const below = [...manifests.values()].flatMap(({ manifest }) => childrenOf(manifest).map(({ digest }) => digest));
    const corrupt = [...all, ...below].find((digest) => this.#corrupt.has(digest));
    if (corrupt === undefined) return manifests;
    throw new PluginError('incomplete', `the manifest ${corrupt} in ${this.store.name} is corrupt, and it stays`, {
      hint: 'Mirror its release again, and then prune.',
    });
  }

  /** Lists the manifests of a directory, also those without a tag; empty for a registry, which keeps their blobs. */
  async listManifests(): Promise<readonly Digest[]> {
    return this.store instanceof Directory ? listManifests(this.store) : [];
  }

  /** Lists the manifests that refer to an image, if the registry has the API for it. Those of the tag have that tag. */
  async referrers(subject: Digest): Promise<readonly Descriptor[]> {
    return (await this.store.referrers?.(subject).catch(ignoreUnreadable)) ?? [];
  }

  /** Throws `unsupported` or `denied` if the registry would not remove images. Changes nothing. */
  async checkRemovable(): Promise<void> {
    // No image has the digest of this text.
    if (this.place.kind === 'registry') await this.#registries.repository(this.place).remove(digestOf('no image'));
  }

  /**
   * Removes manifests with their tags; in a directory blobs too. Missing content is no error. Throws `unsupported` if
   * it stays.
   */
  async remove(content: RemovedContent): Promise<void> {
    const { place, store } = this;
    if (store instanceof Directory) await removeFromDirectory(store, content);
    else if (place.kind === 'registry') {
      for (const digest of await removeFromRegistry(this.#registries.repository(place), content))
        this.#deleted.add(digest);
    }
  }

  /** Returns the manifests that the registry kept, because it called them missing when they were to be removed. */
  async findUndeleted(manifests: readonly Digest[]): Promise<Digest[]> {
    const candidates = manifests.filter((digest) => this.place.kind === 'registry' && !this.#deleted.has(digest));
    const roots = await Promise.all(candidates.map((digest) => this.store.resolve(digest).catch(ignoreUnreadable)));
    return candidates.filter((_, index) => roots[index] !== undefined);
  }

  /** Removes the folders of a repository in a directory if nothing is left in them. */
  async removeFolders(): Promise<void> {
    if (this.store instanceof Directory) await removeEmptyFolders(this.store);
  }

  #read(digest: Digest): Promise<ReadManifest | undefined> {
    const manifest = this.#manifests.get(digest) ?? this.#fetch(digest);
    this.#manifests.set(digest, manifest);
    return manifest;
  }

  async #fetch(digest: Digest): Promise<ReadManifest | undefined> {
    try {
      const root = await this.store.resolve(digest);
      const bytes = await readContent(this.store, root);
      return { manifest: parseManifest(bytes, `${digest} in ${this.store.name}`), size: bytes.length };
    } catch (error) {
      ignoreUnreadable(error);
      if (!isPluginError(error, 'not-found')) this.#corrupt.add(digest);
      return undefined;
    }
  }
}

type Registry = ReturnType<Registries['repository']>;

/** Removes manifests with their tags. Returns the manifests that the registry deleted. */
async function removeFromRegistry(registry: Registry, { manifests, tags }: RemovedContent): Promise<Digest[]> {
  const find = (tagOrDigest: string | undefined): Promise<Descriptor | undefined> =>
    tagOrDigest === undefined ? Promise.resolve(undefined) : registry.resolve(tagOrDigest).catch(ignoreUnreadable);
  const [tag] = tags;
  const all: Digest[] = [];
  // A run that mirrors the same release may push it again at this moment.
  for (let attempt = 1; ; attempt += 1) {
    const removed = await removeManifests(registry, manifests);
    all.push(...removed);
    // Some registries, such as Quay, remove the tags at once, and a manifest under its digest later.
    const remainingManifest = await find(tag ?? removed[0]);
    if (!remainingManifest) return all;
    if (attempt === 2) {
      const message = `${registry.name} still has ${remainingManifest.digest}, although it answered that it deleted it`;
      const hint = 'Remove the releases with the tools of the registry.';
      throw new PluginError('unsupported', message, { hint });
    }
    // Some registries keep a tag, and what it leads to, until the tag is deleted too.
    if (!(await registry.exists(remainingManifest))) await Promise.all(tags.map((each) => registry.remove(each)));
  }
}

/** Removes manifests. Returns the manifests that the registry had. */
async function removeManifests(registry: Registry, manifests: readonly Digest[]): Promise<Digest[]> {
  const removed: Digest[] = [];
  for (let remaining = manifests; remaining.length > 0;) {
    const refused: Digest[] = [];
    let failure: unknown;
    const remove = async (digest: Digest): Promise<void> => {
      try {
        if (await registry.remove(digest)) removed.push(digest);
      } catch (error) {
        refused.push(digest);
        failure = error;
      }
    };
    await Promise.all(remaining.map(remove));
    // Some registries, such as Harbor and zot, refuse to remove a manifest before the lists of it.
    if (refused.length === remaining.length) throw failure;
    remaining = refused;
  }
  return removed;
}

/** Returns undefined for the error of content that is missing or damaged. Throws other errors. */
export function ignoreUnreadable(error: unknown): undefined {
  const codes = [
    'not-found',
    'incomplete',
    'invalid-manifest',
    'digest-mismatch',
    'size-mismatch',
    'too-large',
  ] as const;
  if (!codes.some((code) => isPluginError(error, code))) throw error;
}

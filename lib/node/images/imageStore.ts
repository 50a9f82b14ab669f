import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '#content/files';
import { digestOf, type Digest, parseJson, parseJsonIfValid } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { list, mapping, matches, nullable, object, optional, text, type Schema, type Static } from '#schema';
import { pathOnHost, type Host } from '../machine/host.ts';

/** A containers/storage folder, where CRI-O and podman keep images. Paths are those of the host. */
export interface ImageStore {
  readonly driver: string;
  readonly graphRoot: string;
  readonly runRoot: string;
}

/** An image of a bundle: its name with a digest, and that digest. */
export interface StoreImage {
  /** `quay.io/openshift-release-dev/ocp-release@sha256:…` */
  readonly name: string;
  readonly digest: Digest;
}

/** A layer of an image. Paths are those of the host. */
export interface StoredLayer {
  readonly id: string;
  /** The digest of its tar; undefined if the store does not know it. */
  readonly digest: string | undefined;
  /** The folder with its files, and the record of its tar (tar-split, gzip). */
  readonly folder: string;
  readonly record: string;
}

const imageRecord = object({
  id: text(),
  names: optional(nullable(list(text()))),
  layer: optional(text()),
  'big-data-digests': optional(nullable(mapping(text(), text()))),
});
type ImageRecord = Static<typeof imageRecord>;

const layerRecord = object({
  id: text(),
  parent: optional(text()),
  'diff-digest': optional(nullable(text())),
  'compressed-diff-digest': optional(nullable(text())),
  flags: optional(nullable(mapping(text()))),
});
type LayerRecord = Static<typeof layerRecord>;

/** Returns the paths of the files in which a store lists its images and layers. */
export function indexFiles({ graphRoot, driver }: ImageStore): [images: string, layers: string] {
  return [join(graphRoot, `${driver}-images`, 'images.json'), join(graphRoot, `${driver}-layers`, 'layers.json')];
}

/**
 * The content of a store at one moment, as its index files list it. containers/storage replaces these files atomically,
 * so that reading them needs no lock and no other program.
 */
export class StoreIndex {
  readonly #host: Host;
  readonly #store: ImageStore;
  readonly #records: readonly ImageRecord[];
  readonly #images = new Map<string, ImageRecord>();
  readonly #layers: ReadonlyMap<string, LayerRecord>;

  private constructor(host: Host, store: ImageStore, images: readonly ImageRecord[], layers: readonly LayerRecord[]) {
    this.#host = host;
    this.#store = store;
    this.#records = images;
    for (const image of images) for (const name of image.names ?? []) this.#images.set(name, image);
    this.#layers = new Map(layers.map((layer) => [layer.id, layer]));
  }

  /**
   * Reads the index of a store; a store that does not exist is empty. Throws `not-readable`, and `incomplete` for a
   * corrupt index.
   */
  static async read(host: Host, store: ImageStore): Promise<StoreIndex> {
    const [images, layers] = indexFiles(store);
    return new StoreIndex(
      host,
      store,
      await readRecords(host, images, imageRecord),
      await readRecords(host, layers, layerRecord),
    );
  }

  /** Whether the store has neither images nor layers. */
  get isEmpty(): boolean {
    return this.#images.size === 0 && this.#layers.size === 0;
  }

  /** The number of images and layers: reading the index takes as long as it has entries. */
  get size(): number {
    return this.#records.length + this.#layers.size;
  }

  /** Lists the digests of the layers and configurations in the store, which no program fetches again. */
  listBlobs(): Set<string> {
    const layers = [...this.#layers.values()].filter(({ flags }) => flags?.['incomplete'] !== true);
    const images = [...this.#images.values()];
    return new Set([
      ...layers.flatMap((layer) => layer['compressed-diff-digest'] ?? layer['diff-digest'] ?? []),
      ...images.flatMap((image) => Object.values(image['big-data-digests'] ?? {})),
    ]);
  }

  /** Returns the ID by which programs know an image; undefined for an image that the store does not have. */
  idOf({ name }: StoreImage): string | undefined {
    return this.#images.get(name)?.id;
  }

  /** Returns the images that the store does not have completely; see `check`. */
  async listMissing<T extends StoreImage>(images: readonly T[]): Promise<T[]> {
    const lacks = await Promise.all(images.map((image) => this.check(image)));
    return images.filter((_, position) => lacks[position] !== undefined);
  }

  /**
   * Returns what an image lacks in the store; undefined if it is complete. The image must have its full name, a
   * manifest and a configuration with the right digests, and every layer that the configuration names.
   */
  async check({ name, digest }: StoreImage): Promise<string | undefined> {
    const record = this.#images.get(name);
    if (!record) return 'the store does not have it';
    let manifest = await this.#readData(record, `manifest-${digest}`);
    if (digestOf(manifest ?? '') !== digest) return `the store has no manifest with the digest ${digest} for it`;
    let config = configIn(manifest);
    if (config === undefined) {
      // The digest is of a manifest list. The store also has the manifest of the image for this architecture.
      manifest = await this.#readData(record, 'manifest');
      config = configIn(manifest);
    }
    if (config === undefined) return 'its manifest names no configuration';
    const bytes = await this.#readData(record, config);
    if (digestOf(bytes ?? '') !== config) return `its configuration ${config} is missing or corrupt`;
    return this.#checkLayers(record.layer, diffsIn(bytes));
  }

  /** Returns the layers of an image, its own files first; none for an image that the store does not have. */
  layersOf({ name }: StoreImage): StoredLayer[] {
    const { graphRoot, driver } = this.#store;
    return this.#chainOf(this.#images.get(name)?.layer).map(({ id, 'diff-digest': digest }) => {
      const folder = driver === 'vfs' ? join(graphRoot, driver, 'dir', id) : join(graphRoot, driver, id, 'diff');
      const record = join(graphRoot, `${driver}-layers`, `${id}.tar-split.gz`);
      return { id, digest: digest ?? undefined, folder, record };
    });
  }

  /** Returns the images that have a layer, also such that no bundle has, by their names or else their IDs. */
  imagesWith(layer: string): { readonly id: string; readonly names: readonly string[] }[] {
    const having = this.#records.filter((image) => this.#chainOf(image.layer).some(({ id }) => id === layer));
    return having.map(({ id, names }) => ({ id, names: names?.length ? names : [id] }));
  }

  /** Returns a layer and those below it. */
  #chainOf(top: string | undefined): LayerRecord[] {
    const chain: LayerRecord[] = [];
    let layer = this.#layers.get(top ?? '');
    for (; layer && chain.length < this.#layers.size; layer = this.#layers.get(layer.parent ?? '')) chain.push(layer);
    return chain;
  }

  async #checkLayers(top: string | undefined, diffs: readonly string[]): Promise<string | undefined> {
    let id = top;
    for (const diff of diffs.toReversed()) {
      const layer = this.#layers.get(id ?? '');
      if (!layer) return `its layer ${diff} is missing`;
      if (layer.flags?.['incomplete'] === true) return `its layer ${diff} is incomplete`;
      // Layers of a partial pull are known by another digest.
      if (layer['diff-digest'] && layer['diff-digest'] !== diff) return `its layer ${diff} has another digest`;
      const fault = await this.#findFault(layer);
      if (fault !== undefined) return `its layer ${diff} cannot be mounted: ${fault}`;
      id = layer.parent;
    }
    return id ? 'it has more layers than its configuration names' : undefined;
  }

  /**
   * Finds images with a layer that cannot be mounted, also images that no bundle has: no program uses them, and each
   * reuses the layer, as the index lists it. Returns why, by the names of the images, or by the ID of one without
   * names.
   */
  async findBroken(): Promise<Map<string, string>> {
    const faults = new Map<string, string>();
    for (const layer of this.#layers.values()) {
      const isOrphan = layer.parent !== undefined && layer.parent !== '' && !this.#layers.has(layer.parent);
      const fault = isOrphan ? `the layer below ${layer.id} is missing` : await this.#findFault(layer);
      if (fault !== undefined) faults.set(layer.id, fault);
    }
    const broken = new Map<string, string>();
    if (faults.size === 0) return broken;
    for (const { id, layer, names } of this.#records) {
      const own = this.#chainOf(layer).find((each) => faults.has(each.id));
      if (own) for (const name of names?.length ? names : [id]) broken.set(name, faults.get(own.id) ?? '');
    }
    return broken;
  }

  /**
   * Returns why a layer cannot be mounted; undefined if it can. After a power failure, its folder or the files in it
   * may be missing or empty (containers/storage, drivers/overlay). Other programs rely on the index.
   */
  async #findFault({ id, parent }: LayerRecord): Promise<string | undefined> {
    const { graphRoot, driver } = this.#store;
    const folder = driver === 'vfs' ? join(graphRoot, driver, 'dir', id) : join(graphRoot, driver, id);
    const isFolder = async (path: string): Promise<boolean> =>
      (await stat(pathOnHost(this.#host, path)).catch(() => undefined))?.isDirectory() ?? false;
    if (!(await isFolder(folder))) return `its folder ${folder} is missing`;
    if (driver !== 'overlay') return undefined;
    if (!(await isFolder(`${folder}/diff`))) return `${folder}/diff is missing`;
    const texts = new Map<string, string>();
    for (const name of ['link', ...(parent ? ['lower'] : [])]) {
      texts.set(name, await this.#readText(`${folder}/${name}`));
      if (texts.get(name) === '') return `${folder}/${name} is missing or empty`;
    }
    const below = this.#chainOf(parent);
    for (const [depth, link] of (texts.get('lower') ?? '').split(':').entries()) {
      if (link === '' || (await isFolder(join(graphRoot, driver, link)))) continue;
      // The driver makes a missing link again, from the name that the layer below has for itself.
      const own = await this.#readText(join(graphRoot, driver, below[depth]?.id ?? '', 'link'));
      if (own !== '' && link !== `l/${own}`) return `${folder}/lower names ${link}, which no layer has`;
    }
    return undefined;
  }

  async #readText(path: string): Promise<string> {
    return (await readFile(pathOnHost(this.#host, path), 'utf8').catch(() => '')).trim();
  }

  async #readData({ id }: ImageRecord, key: string): Promise<Buffer | undefined> {
    const { graphRoot, driver } = this.#store;
    // containers/storage encodes other names in base64.
    const file = /^[a-z0-9.]+$/.test(key) ? key : `=${Buffer.from(key).toString('base64')}`;
    const path = join(graphRoot, `${driver}-images`, id, file);
    return readFile(pathOnHost(this.#host, path)).catch(() => undefined);
  }
}

/**
 * Returns the IDs of the images from which a store has containers, running or not: CRI-O and podman list both there
 * (containers/storage, containers.go). None if the lists cannot be read: podman then refuses to remove such an image.
 */
export async function readUsedImages(host: Host, { graphRoot, driver }: ImageStore): Promise<Set<string>> {
  const used = new Set<string>();
  // Those of CRI-O do not outlive a boot.
  for (const name of ['containers.json', 'volatile-containers.json']) {
    const path = join(graphRoot, `${driver}-containers`, name);
    const value = parse(await readFile(pathOnHost(host, path)).catch(() => undefined));
    if (Array.isArray(value)) for (const each of value) used.add(textOf(fieldsOf(each)['image']) ?? '');
  }
  return used;
}

async function readRecords<Value>(host: Host, path: string, record: Schema<Value>): Promise<readonly Value[]> {
  try {
    const json = await readFile(pathOnHost(host, path), 'utf8');
    // As containers/storage reads it (layers.go, images.go): a power failure may leave an empty file.
    const value: unknown = json === '' ? [] : parseJson(json);
    if (matches(list(record), value)) return value;
  } catch (cause) {
    if (isMissing(cause)) return [];
    if (!(cause instanceof SyntaxError)) {
      throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
    }
  }
  throw new PluginError('incomplete', `the index of the image store, ${path}, is corrupt`, {
    hint: 'No image of that store can be used. Remove the store, unless containers use it, and load again.',
  });
}

function configIn(manifest: Buffer | undefined): string | undefined {
  const value = parse(manifest) as { config?: { digest?: unknown } } | undefined;
  const digest = value?.config?.digest;
  return typeof digest === 'string' ? digest : undefined;
}

function diffsIn(config: Buffer | undefined): string[] {
  const value = parse(config) as { rootfs?: { diff_ids?: unknown } } | undefined;
  const diffs = value?.rootfs?.diff_ids;
  return Array.isArray(diffs) ? diffs.map(String) : [];
}

function parse(bytes: Buffer | undefined): unknown {
  return parseJsonIfValid(bytes?.toString() ?? 'null') ?? undefined;
}

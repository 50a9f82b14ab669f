import { Readable } from 'node:stream';
import { PluginError } from '#errors';
import { fieldsOf, type Fields } from '#fields';
import { isIndex, mediaTypes, type Descriptor, type Manifest, parseManifest } from '../oci/descriptor.ts';
import { type Digest, digestOf } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';
import { readContent, readImageManifest, type ContentSource, verifyStream, type LocalContent } from './store.ts';

/** A gzip layer of an image. */
export interface Layer {
  readonly bytes: Buffer;
  /** The digest of the tar that is packed in it. */
  readonly diffId: Digest;
}

/** The image, or the list of images, that gets additional layers. */
export interface BaseImage {
  readonly source: ContentSource;
  readonly root: Descriptor;
}

/** How an image differs from its base. */
interface Derivation {
  /** What the image is, for messages: `the graph-data image`. */
  readonly what: string;
  /** The layer to add, and the text for the history of the image. */
  readonly layer: Layer;
  readonly createdBy: string;
  /** The layers of the base to leave out. */
  readonly omitted?: ReadonlySet<Digest>;
  /** Returns the `config` of the new image. */
  readonly configure: (config: Fields) => Fields;
  /** What to use instead of a base that is not usable. */
  readonly hint: string;
}

/** An image to copy: its new content is in memory, the rest comes from its base. */
export interface DerivedImage {
  readonly root: Descriptor;
  readonly source: Overlay;
}

// The same inputs give the same image.
const created = '1980-01-01T00:00:00Z';

/**
 * Builds an image from a base: without some of its layers, with one more. A list gets such an image for each of its
 * Linux images. The same inputs give the same bytes. Throws `invalid-manifest` for a base that is not usable, and what
 * its source throws.
 */
export async function deriveImage(base: BaseImage, derivation: Derivation): Promise<DerivedImage> {
  const source = new Overlay(`${derivation.createdBy} on ${base.source.name}`, base.source);
  return { root: await derive(base.source, base.root, derivation, source), source };
}

async function derive(
  base: ContentSource,
  root: Descriptor,
  derivation: Derivation,
  overlay: Overlay,
): Promise<Descriptor> {
  const where = `${root.digest} in ${base.name}`;
  const manifest = await readImageManifest(base, root);
  if (!isIndex(manifest)) return deriveOne(base, manifest, derivation, overlay, where);
  const children = listPlatforms(manifest);
  const manifests: Descriptor[] = [];
  for (const child of children) {
    manifests.push({ ...(await derive(base, child, derivation, overlay)), platform: child.platform });
  }
  if (manifests.length === 0) throw unusable(derivation, where, 'it is a list without an image for linux');
  return addJson(overlay, manifest.mediaType, { schemaVersion: 2, mediaType: manifest.mediaType, manifests });
}

/** Lists the Linux images of a list, or those of one architecture. Other entries are attestations about the images. */
export function listPlatforms(
  { manifests }: Pick<Manifest, 'manifests'>,
  architecture?: string,
): (Descriptor & Required<Pick<Descriptor, 'platform'>>)[] {
  return manifests.flatMap((child) => {
    const { platform } = child;
    const isWanted = architecture === undefined || platform?.architecture === architecture;
    return platform?.os === 'linux' && isWanted && !isIndex(child) ? [{ ...child, platform }] : [];
  });
}

async function deriveOne(
  base: ContentSource,
  manifest: Manifest,
  derivation: Derivation,
  overlay: Overlay,
  where: string,
): Promise<Descriptor> {
  const { layer, createdBy, omitted = new Set(), configure } = derivation;
  if (!manifest.config) throw unusable(derivation, where, 'it has no configuration');
  const config = parseConfig(await readContent(base, manifest.config), derivation, where);
  if (config.diffIds.length !== manifest.layers.length || manifest.layers.length === 0) {
    throw unusable(derivation, where, 'its configuration does not match its layers');
  }
  const isDocker = manifest.mediaType === mediaTypes.dockerManifest;
  const added = overlay.add(
    isDocker ? 'application/vnd.docker.image.rootfs.diff.tar.gzip' : 'application/vnd.oci.image.layer.v1.tar+gzip',
    layer.bytes,
  );
  const kept = manifest.layers.flatMap((each, index) =>
    omitted.has(each.digest) ? [] : [{ layer: each, diffId: config.diffIds[index] }],
  );
  // Entries of the history do not say which layer they are for.
  const history = omitted.size > 0 ? undefined : config.history;
  return addJson(overlay, manifest.mediaType, {
    schemaVersion: 2,
    mediaType: manifest.mediaType,
    config: addJson(overlay, manifest.config.mediaType, {
      ...config.platform,
      created,
      config: configure(config.settings),
      rootfs: { type: 'layers', diff_ids: [...kept.map(({ diffId }) => diffId), layer.diffId] },
      ...(history && { history: [...history, { created, created_by: createdBy }] }),
    }),
    layers: [...kept.map((each) => each.layer), added],
  });
}

interface BaseConfig {
  readonly platform: Fields;
  /** The `config` of the base: environment, labels, command. */
  readonly settings: Fields;
  readonly diffIds: readonly unknown[];
  readonly history: readonly unknown[] | undefined;
}

function parseConfig(bytes: Buffer, derivation: Derivation, where: string): BaseConfig {
  let value: Fields;
  try {
    value = fieldsOf(parseJson(bytes.toString('utf8')));
  } catch (cause) {
    throw unusable(derivation, where, 'its configuration is not JSON', cause);
  }
  const { architecture, os, variant, config, rootfs, history } = value;
  if (typeof architecture !== 'string' || os !== 'linux') throw unusable(derivation, where, 'it is not for linux');
  const diffIds = fieldsOf(rootfs)['diff_ids'];
  return {
    platform: { architecture, os, variant },
    settings: fieldsOf(config),
    diffIds: Array.isArray(diffIds) ? (diffIds as unknown[]) : [],
    history: Array.isArray(history) ? (history as unknown[]) : undefined,
  };
}

function addJson(overlay: Overlay, mediaType: string, value: object): Descriptor {
  return overlay.add(mediaType, Buffer.from(JSON.stringify(value)));
}

function unusable({ what, hint }: Derivation, where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-manifest', `${what} cannot be built on ${where}: ${why}`, { hint, cause });
}

/** Content in memory, alone or on top of a repository, for an image that shares layers with another one. */
export class Overlay implements ContentSource, LocalContent {
  readonly name: string;
  readonly #base: ContentSource | undefined;
  readonly #own: Map<string, Buffer>;

  constructor(name: string, base: ContentSource | undefined, own: ReadonlyMap<Digest, Buffer> = new Map()) {
    this.name = name;
    this.#base = base;
    this.#own = new Map(own);
  }

  /** Adds content, and returns its descriptor. */
  add(mediaType: string, bytes: Buffer): Descriptor {
    const digest = digestOf(bytes);
    this.#own.set(digest, bytes);
    return { mediaType, digest, size: bytes.length };
  }

  /**
   * Returns the descriptor of an own manifest. Content of the base can be fetched, but not resolved. Throws
   * `not-found`.
   */
  async resolve(digest: string): Promise<Descriptor> {
    const bytes = this.#own.get(digest);
    if (!bytes) throw this.#lack(digest);
    const { mediaType } = parseManifest(bytes, `${digest} in ${this.name}`);
    return { mediaType, digest: digest as Digest, size: bytes.length };
  }

  /** Returns whether content was added here. */
  has(digest: string): boolean {
    return this.#own.has(digest);
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const bytes = this.#own.get(descriptor.digest);
    if (bytes) return verifyStream(Readable.from([bytes.subarray(start)]), descriptor, this.name, start);
    if (this.#base) return this.#base.fetch(descriptor, start);
    throw this.#lack(descriptor.digest);
  }

  /** Reads content that was added here. Throws `not-found` for that of the base. */
  async *chunks({ digest }: Pick<Descriptor, 'digest'>, start: number, end: number): AsyncGenerator<Buffer> {
    const bytes = this.#own.get(digest);
    if (!bytes) throw this.#lack(digest);
    yield bytes.subarray(start, end);
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    return this.#own.has(descriptor.digest) || (await this.#base?.exists(descriptor)) === true;
  }

  async tags(): Promise<string[]> {
    return [];
  }

  #lack(digest: string): PluginError {
    return new PluginError('not-found', `${this.name} does not have ${digest}`);
  }
}

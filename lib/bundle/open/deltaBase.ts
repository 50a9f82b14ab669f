import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { listVolumeSets } from '#content/archive';
import type { Descriptor } from '#content/oci';
import type { ContentSource, LocalContent } from '#content/store';
import type { Context } from '#context';
import { ignoreFailure, PluginError, nameSome } from '#errors';
import { listBelow } from '#text';
import type { BlobRecord, BundleBase, BundleMetadata } from '../metadata/metadata.ts';
import type { Bundle, OpenBundleOptions } from './bundle.ts';
import { openBundle } from './open.ts';

/** The places to search for the blobs that a delta bundle lacks. */
export interface CompleteOptions extends Pick<OpenBundleOptions, 'onMedium'> {
  /** Bundles or mirror directories that the user named. */
  readonly bases: readonly string[];
  /**
   * Lists the digests of blobs that the destination already has, so that they need not be found. Called only if blobs
   * are missing.
   */
  readonly listHeld?: () => Promise<ReadonlySet<string>>;
}

/** Opens a bundle and completes it. Throws the errors of openBundle and completeBundle. */
export async function openComplete(path: string, options: CompleteOptions, context: Context): Promise<Bundle> {
  return completeBundle(await openBundle(path, context, options), options, context);
}

/**
 * Adds to a delta bundle the blobs that it lacks, from the named bundles and from the bundles in its folder. Closing
 * the result closes all of them. Throws `incomplete` with the list of missing blobs, and the errors of openBundle and
 * `listHeld`, after closing everything.
 */
export async function completeBundle(
  opened: Bundle,
  { bases, listHeld }: Omit<CompleteOptions, 'onMedium'>,
  context: Context,
): Promise<Bundle> {
  const bundle = await addBases(opened, bases, context);
  try {
    const lacking = await listMissingBlobs(bundle);
    const held = lacking.length > 0 ? await listHeld?.() : undefined;
    const missing = lacking.filter(({ digest }) => held?.has(digest) !== true);
    if (missing.length > 0) throw missingError(bundle, missing);
    return bundle;
  } catch (error) {
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Adds to a delta bundle the content of its bases: of the named bundles and, if blobs are still missing, of the bundles
 * in its folder. Closing the result closes them. Returns any other bundle unchanged. Throws the errors of opening a
 * named bundle, after closing everything.
 */
export async function addBases(bundle: Bundle, bases: readonly string[], context: Context): Promise<Bundle> {
  if (!bundle.metadata.base) {
    if (bases.length > 0) context.log('warn', `${bundle.path} is not a delta bundle, and needs no base`);
    return bundle;
  }
  const others: Bundle[] = [];
  const close = async (): Promise<void> => {
    for (const opened of [...others, bundle]) await opened[Symbol.asyncDispose]();
  };
  try {
    for (const base of bases) others.push(await openBundle(base, context));
    const named = addContents(bundle, others);
    for (const path of (await listMissingBlobs(named)).length > 0 ? await listNeighbours(bundle) : []) {
      const other = await openBundle(path, context, { onMedium: true }).catch(ignoreFailure);
      if (other && (await hasAny(other.content, bundle.metadata))) others.push(other);
      else await other?.[Symbol.asyncDispose]();
    }
    if (others.length > 0) {
      const names = others.map(({ path }) => path).join(', ');
      context.log('info', `the base blobs of ${basename(bundle.path)} are read from ${names}`);
    }
    return {
      ...addContents(bundle, others),
      bases: others.map(({ content }) => content),
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Lists the blobs that neither a delta bundle nor its opened bases have. */
export async function listMissingBlobs({
  content,
  metadata,
}: Pick<Bundle, 'content' | 'metadata'>): Promise<BlobRecord[]> {
  const blobs = metadata.base?.blobs ?? [];
  const presence = await Promise.all(blobs.map((blob) => content.exists(descriptorOf(blob))));
  return blobs.filter((_, index) => presence[index] !== true);
}

/** Returns the hint for a delta bundle without its base. */
export function baseHint({ base }: BundleMetadata): string {
  const start = base?.images ? 'Create the bundle again from a new report of the site, or name' : 'Name';
  return `${start} the bundle of its base release ${base?.version ?? ''}, or copy it into the same folder.`;
}

/** Describes blobs of the base that are missing: their number, and the images of the site that have them. */
export function describeMissingBlobs(
  base: Pick<BundleBase, 'images'> | undefined,
  missing: readonly BlobRecord[],
): string {
  const count = countBlobs(missing);
  const lost = new Set(missing.map(({ digest }) => digest));
  const images = Object.entries(base?.images ?? {}).filter(([, blobs]) => blobs.some((digest) => lost.has(digest)));
  return images.length === 0 ? count : `${count} of ${nameSome(images.map(([image]) => image))}`;
}

function countBlobs({ length }: readonly BlobRecord[]): string {
  return length === 1 ? 'a blob' : `${length} blobs`;
}

/** Returns a descriptor for a blob whose media type is not needed. */
export function descriptorOf({ digest, size }: BlobRecord): Descriptor {
  return { mediaType: 'application/octet-stream', digest, size };
}

function missingError({ path, metadata }: Bundle, missing: readonly BlobRecord[]): PluginError {
  const { version = '', release = '', images } = metadata.base ?? {};
  const owners = new Map(Object.entries(images ?? {}).flatMap(([image, own]) => own.map((digest) => [digest, image])));
  const lines = missing.map(({ digest, size }) => {
    const owner = owners.get(digest);
    return `${digest} of ${size} bytes${owner === undefined ? '' : `, in ${owner}`}`;
  });
  const verb = missing.length === 1 ? 'is' : 'are';
  const count = countBlobs(missing);
  const what = images
    ? `${path} is for a site with ${version}, and ${count} that its nodes had ${verb} not there:`
    : `${path} is a delta bundle for ${release} (${version}), and ${count} of it ${verb} missing:`;
  return new PluginError('incomplete', listBelow(what, lines), {
    hint: baseHint(metadata),
    settings: ['base'],
  });
}

/** Returns a bundle whose content includes that of others; closing it does not close them. */
export function addContents(bundle: Bundle, others: readonly Pick<Bundle, 'content'>[]): Bundle {
  const contents = others.map(({ content }) => content);
  return { ...bundle, content: new LayeredContent(bundle.content, contents) };
}

/** Lists the other bundles in the folder of a bundle; none for a directory or a device. */
async function listNeighbours({ path, form, volumes }: Bundle): Promise<string[]> {
  if (form === 'directory' || volumes.some(({ size }) => size === Infinity)) return [];
  const folder = dirname(path);
  const tars = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.tar'));
  const names = new Set([...tars, ...(await listVolumeSets(folder).catch(() => []))]);
  names.delete(basename(path));
  return [...names].sort().map((name) => join(folder, name));
}

async function hasAny(content: ContentSource, { base }: BundleMetadata): Promise<boolean> {
  for (const blob of base?.blobs ?? []) if (await content.exists(descriptorOf(blob))) return true;
  return false;
}

/** The content of a store. Content that it lacks is read from other stores. */
class LayeredContent implements ContentSource, LocalContent {
  readonly name: string;
  readonly #own: Bundle['content'];
  readonly #others: readonly Bundle['content'][];

  constructor(own: Bundle['content'], others: readonly Bundle['content'][]) {
    this.name = own.name;
    this.#own = own;
    this.#others = others;
  }

  resolve(tagOrDigest: string): Promise<Descriptor> {
    return this.#own.resolve(tagOrDigest);
  }

  async fetch(descriptor: Descriptor, start?: number): Promise<Readable> {
    return ((await this.#find(descriptor)) ?? this.#own).fetch(descriptor, start);
  }

  async *chunks(descriptor: Descriptor, start: number, end: number): AsyncGenerator<Buffer> {
    yield* ((await this.#find(descriptor)) ?? this.#own).chunks(descriptor, start, end);
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    return (await this.#find(descriptor)) !== undefined;
  }

  tags(): Promise<string[]> {
    return this.#own.tags();
  }

  async #find(descriptor: Descriptor): Promise<Bundle['content'] | undefined> {
    for (const source of [this.#own, ...this.#others]) if (await source.exists(descriptor)) return source;
    return undefined;
  }
}

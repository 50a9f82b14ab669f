import { basename } from 'node:path/posix';
import type { Digest } from '#content/oci';
import type { Registries } from '#content/registry';
import { listRepositories } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { readPayload } from '#release/release';
import { releaseTag, usualRepository, type Architecture } from '#release/version';
import { formatPlace, releaseName, releaseOfTag, type Destination, type Place } from '../mirror/destination.ts';
import { ignoreUnreadable, PrunedRepository } from './repository.ts';

/** A release at the target, with its images there. */
export interface StoredRelease {
  readonly version: string;
  readonly arch: Architecture;
  /** Its version and architecture, as in its usual tag. */
  readonly tag: string;
  readonly digest: Digest;
  /** The digests of its manifests of single architectures. */
  readonly children: readonly Digest[];
  /** Its images: the release image, the components of its payload, and the images that were added to it. */
  readonly images: readonly StoredImage[];
  /** Another tag that leads to the release image. */
  readonly otherTag?: string;
}

/** An image of a release at the target. */
export interface StoredImage {
  readonly repository: PrunedRepository;
  readonly name: string;
  readonly digest: Digest;
  /** Its own tag, if that leads to it. */
  readonly tag: string | undefined;
  /**
   * The tags that it has from releases that are gone. A registry keeps the tags of an image that another release needs.
   */
  readonly formerTags: readonly string[];
}

/** The content of the target of a mirror. */
export interface Inventory {
  readonly repositories: readonly PrunedRepository[];
  readonly releases: readonly StoredRelease[];
  /** The graph data of releases that are gone. */
  readonly formerGraphData: readonly Pick<StoredRelease, 'version' | 'images'>[];
  /** The releases whose payload cannot be read, by their usual tags. Nothing is known about their images. */
  readonly unreadable: readonly string[];
}

/** The name of the graph-data image among the images of a release. */
export const graphDataName = 'graph-data';

/**
 * Reads what is at the target: its releases by their tags, and their images by the payloads. Throws `not-found` if it
 * has no release, and the errors of the target.
 */
export async function readInventory(
  destination: Destination,
  registries: Registries,
  context: Context,
): Promise<Inventory> {
  const repositories = new Map<string, PrunedRepository>();
  const open = async (place: Place): Promise<PrunedRepository> => {
    const openedRepository = repositories.get(formatPlace(place));
    if (openedRepository) return openedRepository;
    const repository = new PrunedRepository(place, registries, context);
    repositories.set(formatPlace(place), repository);
    await repository.readTags();
    return repository;
  };
  const releases: (FoundRelease & { readonly own: PrunedRepository })[] = [];
  const broken: string[] = [];
  for (const place of await listReleasePlaces(destination, registries)) {
    const repository = await open(place);
    context.log('info', `reading the releases in ${repository.store.name}`);
    for (const [tag, digest] of repository.tags) {
      const named = releaseOfTag(tag, releaseName, destination);
      if (!named || formatPlace(destination(releaseName, named).place) !== formatPlace(place)) continue;
      const release = await readRelease(repository, { ...named, digest }, context);
      const own = { repository, name: releaseName, digest, tag };
      if (release)
        releases.push({ ...release, own: repository, images: await listImages(release, own, destination, open) });
      else broken.push(releaseTag(named.version, named.arch));
    }
  }
  const releaseTags = new Set(releases.map(({ images: [own] }) => own?.tag));
  const present = new Set([...releases.map(({ tag }) => tag), ...broken]);
  const formerOf = (tag: string, name: string): NamedVersion | undefined => {
    const release = releaseOfTag(tag, name, destination);
    return release && !present.has(releaseTag(release.version, release.arch)) ? release : undefined;
  };
  const storedReleases = releases.map(({ own, ...release }) => ({
    ...release,
    images: release.images.map((image) => ({ ...image, formerTags: listFormerTags(image, formerOf) })),
    otherTag: findOtherTag(release, own, releaseTags),
  }));
  const opened = [...repositories.values()];
  const formerGraphData = opened.flatMap((repository) => findGraphData(repository, destination, formerOf));
  return { repositories: opened, releases: storedReleases, formerGraphData, unreadable: broken };
}

type NamedVersion = Pick<StoredRelease, 'version' | 'arch'>;

function findGraphData(
  repository: PrunedRepository,
  destination: Destination,
  formerOf: (tag: string, name: string) => NamedVersion | undefined,
): Inventory['formerGraphData'] {
  return [...repository.tags].flatMap(([tag, digest]) => {
    const release = formerOf(tag, graphDataName);
    if (!release || formatPlace(destination(graphDataName, release).place) !== formatPlace(repository.place)) return [];
    return [{ version: release.version, images: [{ repository, name: graphDataName, digest, tag, formerTags: [] }] }];
  });
}

function listFormerTags(
  { repository, name, digest }: FoundImage,
  formerOf: (tag: string, name: string) => NamedVersion | undefined,
): string[] {
  return repository.tagsOf(digest).filter((tag) => formerOf(tag, name) !== undefined);
}

/** Finds a tag that leads to a release image, and that is no tag of a release. */
function findOtherTag(
  { digest, children }: FoundRelease,
  repository: PrunedRepository,
  releaseTags: ReadonlySet<string | undefined>,
): string | undefined {
  return [digest, ...children].flatMap((root) => repository.tagsOf(root)).find((tag) => !releaseTags.has(tag));
}

type FoundImage = Omit<StoredImage, 'formerTags'>;

interface FoundRelease extends Omit<StoredRelease, 'images'> {
  readonly images: readonly FoundImage[];
}

type NamedRelease = NamedVersion & Pick<StoredRelease, 'digest'>;

interface PayloadImages extends Pick<StoredRelease, 'version' | 'arch' | 'tag' | 'digest' | 'children'> {
  readonly components: ReadonlyMap<string, Digest>;
}

async function readRelease(
  { store }: PrunedRepository,
  { version, arch, digest }: NamedRelease,
  context: Context,
): Promise<PayloadImages | undefined> {
  try {
    const expectedRelease = { version, arch, repository: usualRepository };
    const { images, children } = await readPayload(store, await store.resolve(digest), expectedRelease, context);
    const components = new Map([...images].map(([name, image]) => [name, image.digest] as const));
    const tag = releaseTag(version, arch);
    return { version, arch, tag, digest, children: children.map((child) => child.digest), components };
  } catch (error) {
    if (isPluginError(error, 'invalid-release')) return undefined;
    ignoreUnreadable(error);
    return undefined;
  }
}

async function listImages(
  release: PayloadImages,
  own: FoundImage,
  destination: Destination,
  open: (place: Place) => Promise<PrunedRepository>,
): Promise<FoundImage[]> {
  const images = [own];
  for (const [name, digest] of release.components) {
    const { place, tag } = destination(name, release);
    const repository = await open(place);
    images.push({ repository, name, digest, tag: repository.tags.get(tag ?? '') === digest ? tag : undefined });
  }
  const graphData = destination(graphDataName, release);
  const beside = await open(graphData.place);
  const [head = '', tail = ''] = (destination('extra-0', release).tag ?? '').split('extra-0');
  for (const [tag, digest] of beside.tags) {
    // The tag of an extra image has the beginning of its digest.
    const isExtra = tag.startsWith(`${head}extra-`) && tag.endsWith(`-${digest.slice(7, 19)}${tail}`);
    if (!isExtra && tag !== graphData.tag) continue;
    const name = isExtra ? tag.slice(head.length, tag.length - tail.length) : graphDataName;
    images.push({ repository: beside, name, digest, tag });
  }
  return images;
}

/** Lists the repositories that may have release images; several if the destination has the version in their names. */
async function listReleasePlaces(destination: Destination, registries: Registries): Promise<Place[]> {
  const placeOf = (version: string): Place => destination(releaseName, { version, arch: 'x86_64' }).place;
  const place = placeOf('0.0.0');
  if (formatPlace(place) === formatPlace(placeOf('1.1.1'))) return [place];
  const parts = place.repository.split('0.0.0');
  const names = place.kind === 'directory' ? await listRepositories(place.root) : await readCatalog(place, registries);
  const isLike = (name: string): boolean => name.startsWith(parts[0] ?? '') && name.endsWith(parts.at(-1) ?? '');
  return names.filter(isLike).map((repository) => ({ ...place, repository }));
}

async function readCatalog(
  { registry, repository }: Place & { kind: 'registry' },
  registries: Registries,
): Promise<string[]> {
  try {
    return await registries.repositories(registry);
  } catch (cause) {
    if (!isPluginError(cause) || cause.code === 'interrupted') throw cause;
    const name = basename(repository);
    throw new PluginError(
      cause.code,
      `${registry} does not list its repositories, and ${name} has the version in it: ${cause.message}`,
      {
        hint: 'Name the repository of one release, without ${version}.',
        cause,
      },
    );
  }
}

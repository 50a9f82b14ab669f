import { basename } from 'node:path/posix';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import type { Digest } from '../../oci/digest.ts';
import type { Registries } from '../../registry/registries.ts';
import { formatPlace, releaseName, type Destination, type Place } from '../../release/mirror/destination.ts';
import { readPayload } from '../../release/release.ts';
import { parseReleaseTag, releaseTag, usualRepository, type Architecture } from '../../release/version.ts';
import { listRepositories } from '../../store/repositories.ts';
import { ignoreUnreadable, PrunedRepository } from './repository.ts';

/** A release at the target, with its images there. */
export interface StoredRelease {
  readonly version: string;
  readonly arch: Architecture;
  readonly tag: string;
  readonly digest: Digest;
  /** The digests of its manifests of single architectures. */
  readonly children: readonly Digest[];
  /** Its images: the release image, the components of its payload, and the images that were added to it. */
  readonly images: readonly StoredImage[];
  /** Another tag that leads to the release image. */
  readonly otherTag?: string | undefined;
}

/** An image of a release at the target. */
export interface StoredImage {
  readonly repository: PrunedRepository;
  readonly name: string;
  readonly digest: Digest;
  /** Its own tag, if that leads to it. */
  readonly tag: string | undefined;
}

/** The content of the target of a mirror. */
export interface Inventory {
  readonly repositories: readonly PrunedRepository[];
  readonly releases: readonly StoredRelease[];
  /** The tags of releases whose payload cannot be read. Nothing is known about their images. */
  readonly unreadable: readonly string[];
}

/** The name of the graph-data image among the images of a release. */
export const graphDataName = 'graph-data';

/**
 * Reads what is at the target: its releases by their tags, and their images by the payloads. Throws `not-found` if it has no
 * release, and the errors of the target.
 */
export async function readInventory(
  destination: Destination,
  registries: Registries,
  context: Context,
): Promise<Inventory> {
  const repositories = new Map<string, PrunedRepository>();
  const open = async (place: Place): Promise<PrunedRepository> => {
    const known = repositories.get(formatPlace(place));
    if (known) return known;
    const repository = new PrunedRepository(place, registries, context);
    repositories.set(formatPlace(place), repository);
    await repository.readTags();
    return repository;
  };
  const releases: (StoredRelease & { readonly own: PrunedRepository })[] = [];
  const broken: string[] = [];
  for (const place of await listReleasePlaces(destination, registries)) {
    const repository = await open(place);
    context.log('info', `reading the releases in ${repository.store.name}`);
    for (const [tag, digest] of repository.tags) {
      const named = parseReleaseTag(tag);
      if (!named || formatPlace(destination(releaseName, named).place) !== formatPlace(place)) continue;
      const release = await readRelease(repository, { ...named, digest }, context);
      if (release)
        releases.push({
          ...release,
          own: repository,
          images: await listImages(release, repository, destination, open),
        });
      else broken.push(tag);
    }
  }
  const known = new Set(releases.map(({ tag }) => tag));
  const found = releases.map(({ own, ...release }) => ({ ...release, otherTag: findOtherTag(release, own, known) }));
  return { repositories: [...repositories.values()], releases: found, unreadable: broken };
}

/** Finds a tag that leads to a release image, and that is no tag of a release. */
function findOtherTag(
  { digest, children }: StoredRelease,
  { tags }: PrunedRepository,
  known: ReadonlySet<string>,
): string | undefined {
  const roots = [digest, ...children];
  return [...tags.keys()].find((tag) => !known.has(tag) && roots.some((each) => tags.get(tag) === each));
}

type NamedRelease = Pick<StoredRelease, 'version' | 'arch' | 'digest'>;

interface PayloadImages extends Pick<StoredRelease, 'version' | 'arch' | 'tag' | 'digest' | 'children'> {
  readonly components: ReadonlyMap<string, Digest>;
}

async function readRelease(
  { store }: PrunedRepository,
  { version, arch, digest }: NamedRelease,
  context: Context,
): Promise<PayloadImages | undefined> {
  try {
    const wanted = { version, arch, repository: usualRepository };
    const { images, children } = await readPayload(store, await store.resolve(digest), wanted, context);
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
  own: PrunedRepository,
  destination: Destination,
  open: (place: Place) => Promise<PrunedRepository>,
): Promise<StoredImage[]> {
  const images: StoredImage[] = [{ repository: own, name: releaseName, digest: release.digest, tag: release.tag }];
  for (const [name, digest] of release.components) {
    const { place, tag } = destination(name, release);
    const repository = await open(place);
    images.push({ repository, name, digest, tag: repository.tags.get(tag ?? '') === digest ? tag : undefined });
  }
  const graphData = destination(graphDataName, release);
  const beside = await open(graphData.place);
  for (const [tag, digest] of beside.tags) {
    // The tag of an extra image has the beginning of its digest.
    const isExtra = tag.startsWith(`${release.tag}-extra-`) && tag.endsWith(`-${digest.slice(7, 19)}`);
    if (!isExtra && tag !== graphData.tag) continue;
    images.push({ repository: beside, name: isExtra ? tag.slice(release.tag.length + 1) : graphDataName, digest, tag });
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

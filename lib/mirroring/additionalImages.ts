import { join as joinNames } from 'node:path/posix';
import {
  additionalImagesPath,
  formatAdditionalImages,
  readAdditionalImages,
  type AdditionalImageName,
} from '../bundle/originalNames.ts';
import type { LocalExtraImage, ReleaseSource } from '../bundle/create/releaseSource.ts';
import { describeExtraImages } from '../bundle/extraImages.ts';
import { extraImageTag, resolveExtraImage } from '../bundle/images.ts';
import { writeTextFile } from '../config/manifestFile.ts';
import type { MirroredSource } from '../config/mirrorSets.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { RootFolder } from '../content/files/rootFolder.ts';
import { formatReference, parseReference, type Reference } from '../content/oci/reference.ts';
import type { Registries } from '../content/registry/registries.ts';
import { formatPlace, formatTarget, type Destination, type Target } from './destination.ts';
import type { MirrorImage } from './mirrorGroup.ts';
import type { Release } from '../release/release.ts';
import type { ContentSource } from '../content/store/store.ts';

/** An image in addition to those of a release, with its original name if it is known. */
export interface AdditionalImage extends MirrorImage {
  readonly origin: AdditionalImageName | undefined;
}

/** The places of a run: the destination and the release that additional images accompany. */
interface Accompanied {
  readonly release: Pick<Release, 'version' | 'arch'>;
  readonly destination: Destination;
}

/**
 * Finds the images to mirror in addition to those of a release: the named ones, and those beside a release in a
 * directory or bundle. The release signature covers none of them. In a registry, each has a repository of its own, beside that of
 * the release. Throws `not-found` for a named image that a directory lacks, `usage` for two images with one target, and the
 * errors of the sources.
 */
export async function findAdditionalImages(
  names: readonly string[],
  source: ReleaseSource,
  { release, destination }: Accompanied,
  registries: Registries,
  context: Context,
): Promise<AdditionalImage[]> {
  const place = (name: string, origin: AdditionalImageName | undefined): Target =>
    targetOf(name, origin, { release, destination });
  const images = source.isLocal
    ? listLocal(names, source).map(({ name, digest, origin }) => {
        const named = origin && { ...origin, digest };
        return { name, digest, source: source.found.source, target: place(name, named), origin: named };
      })
    : await fetchNamed(names, place, registries);
  const words = describeExtraImages(images.map(({ name }) => name));
  if (words !== undefined) context.log('warn', words);
  checkTargets(images);
  return images;
}

/** Returns the mirrors of additional images in registries, apart for images by digest and by tag. */
export function listAdditionalMirrors(
  images: readonly AdditionalImage[],
): Readonly<Record<'digest' | 'tag', MirroredSource[]>> {
  const mirrored = images.flatMap(({ origin, target: { place } }) => {
    if (!origin || place.kind !== 'registry') return [];
    const { registry, repository, tag } = origin;
    const source = formatReference({ registry, repository });
    const mirror = formatPlace(place);
    return mirror === source ? [] : [{ pulls: tag === undefined ? 'digest' : 'tag', source, mirrors: [mirror] }];
  });
  const listFor = (kind: string): MirroredSource[] =>
    mirrored.flatMap(({ pulls, ...each }) => (pulls === kind ? [each] : []));
  return { digest: listFor('digest'), tag: listFor('tag') };
}

/** Writes the original names of additional images into the mirror directories that have them. Throws the errors of `writeTextFile`. */
export async function noteAdditionalImages(images: readonly AdditionalImage[]): Promise<void> {
  for (const { origin, target } of images) {
    if (!origin || target.place.kind !== 'directory') continue;
    const folder = new RootFolder(target.place.root);
    const names = await readAdditionalImages(folder);
    await writeTextFile(folder.path, additionalImagesPath, formatAdditionalImages([...names, origin]));
  }
}

async function fetchNamed(
  names: readonly string[],
  place: (name: string, origin: AdditionalImageName) => Target,
  registries: Registries,
): Promise<AdditionalImage[]> {
  const sources = new Map<string, ContentSource>();
  const sourceOf = (reference: Reference): ContentSource => {
    const key = formatReference(reference);
    const source = sources.get(key) ?? registries.sourceOf(reference);
    sources.set(key, source);
    return source;
  };
  const images = names.map(async (text) => {
    const resolvedReference = await resolveExtraImage(text, { sourceOf });
    const { registry, repository, digest } = resolvedReference;
    const reference = { registry, repository, digest };
    // Nodes ignore the tag of a name that has a digest too.
    const named = parseReference(text).digest === undefined ? resolvedReference : reference;
    const origin = { ...registries.originalOf(named), digest };
    const name = extraImageTag('', origin).slice(1);
    return { name, digest, source: sourceOf(reference), reference, target: place(name, origin), origin };
  });
  return Promise.all(images);
}

function listLocal(
  names: readonly string[],
  { extraImages, found: { source } }: ReleaseSource,
): readonly LocalExtraImage[] {
  for (const text of names) {
    const { registry, repository, tag, digest } = parseReference(text);
    const isNamed = ({ origin }: LocalExtraImage): boolean =>
      origin?.registry === registry &&
      origin.repository === repository &&
      (digest === undefined ? origin.tag === (tag ?? 'latest') : origin.digest === digest);
    if (extraImages.some(isNamed)) continue;
    throw new PluginError('not-found', `${source.name} does not have ${text} beside the release`, {
      hint: 'Mirror it to the directory first, together with the release.',
    });
  }
  return extraImages;
}

/** Returns the target of an image: a repository beside that of the release, or in a directory a tag beside those of the release. */
function targetOf(
  name: string,
  origin: AdditionalImageName | undefined,
  { release, destination }: Accompanied,
): Target {
  const beside = destination(name, release);
  if (!origin || beside.place.kind === 'directory') return beside;
  const repository = joinNames(beside.place.repository, '..', origin.repository);
  return { place: { ...beside.place, repository }, tag: origin.tag ?? `digest-${origin.digest.slice(7, 19)}` };
}

function checkTargets(images: readonly AdditionalImage[]): void {
  const targets = Map.groupBy(images, ({ target }) => formatTarget(target));
  for (const [target, same] of targets) {
    if (new Set(same.map(({ digest }) => digest)).size < 2) continue;
    const names = same.map(({ name, origin }) => (origin ? formatReference(origin) : name)).join(' and ');
    throw new PluginError('usage', `${names} would both become ${target}`, { hint: 'Name one of them by its digest.' });
  }
}

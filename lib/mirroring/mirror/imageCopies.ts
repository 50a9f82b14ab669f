import { formatReleaseRepositories, readReleaseRepositories, repositoriesPath } from '#bundle/metadata';
import { writeTextFile } from '#config/manifest';
import { RootFolder } from '#content/files';
import { formatReference } from '#content/oci';
import type { Registries } from '#content/registry';
import { Directory, type ContentStore } from '#content/store';
import type { Context } from '#context';
import type { Release } from '#release/release';
import { type NamedResult, checkReleaseImages, finderIn, readerOf, requireVerified } from '#release/sigstore';
import { usualRepository } from '#release/version';
import { guardCopies } from '../prune/pruneGuard.ts';
import type { Place, MirrorGroup, MirrorImage } from './destination.ts';
import { namedImages } from './images.ts';
import { measureMirror, type MirrorMeasure, checkDirectorySpace } from './measure.ts';
import { type FilledRepositories, planMirror, runMirror, type MirrorResult } from './plan.ts';
import type { MirroringRequest } from './request.ts';

/** The result of copying images. */
interface Copied {
  readonly result?: MirrorResult;
  /** In a dry run, what would be copied. */
  readonly measure?: MirrorMeasure;
}

/** The images to copy, and the results of the image policies of their release. */
interface PlannedCopies {
  readonly groups: readonly MirrorGroup[];
  readonly policies: readonly NamedResult[];
}

/**
 * Reads the manifests of images, and checks the images that clusters would refuse. Throws what planMirror and
 * checkPlannedImages throw.
 */
export async function planCopies(
  images: readonly MirrorImage[],
  release: Release,
  allowUnsigned: boolean,
  context: Context,
): Promise<PlannedCopies> {
  if (images.length === 0) return { groups: [], policies: [] };
  context.log('info', `reading the manifests of ${images.length} images`);
  const groups = await planMirror(images, context);
  return { groups, policies: await checkPlannedImages(groups, release, allowUnsigned, context) };
}

/** Mirrors planned images, or in a dry run measures them. Does nothing without images. Throws what runMirror throws. */
export async function mirrorImages(
  groups: readonly MirrorGroup[],
  { verifyExisting, concurrency, dryRun }: Pick<MirroringRequest, 'verifyExisting' | 'concurrency' | 'dryRun'>,
  filled: FilledRepositories,
  registries: Registries,
  context: Context,
): Promise<Copied> {
  if (groups.length === 0) return {};
  const openStore = (place: Place): ContentStore =>
    place.kind === 'registry'
      ? registries.repository(place)
      : new Directory(place.root, place.repository, { verifyExisting }, context);
  if (dryRun !== undefined) return { measure: await measureMirror(groups, openStore) };
  await checkDirectorySpace(groups, context);
  const guard = guardCopies(concurrency, context);
  const download = registries.download.bind(registries);
  return { result: await runMirror(groups, { concurrency, filled, openStore, guard, download }, context) };
}

/**
 * Writes into mirror directories the repository that a release came from, if it is not the default. Throws the errors
 * of `writeTextFile`.
 */
export async function noteRepository(
  images: readonly MirrorImage[],
  { digest, reference: { registry, repository } }: Pick<Release, 'digest' | 'reference'>,
): Promise<void> {
  const published = formatReference({ registry, repository });
  for (const { target, isRelease } of images) {
    if (!isRelease || target.place.kind !== 'directory') continue;
    const folder = new RootFolder(target.place.root);
    const repositories = await readReleaseRepositories(folder);
    if ((repositories.get(digest) ?? usualRepository) === published) continue;
    const text = formatReleaseRepositories(new Map([...repositories, [digest, published]]));
    await writeTextFile(folder.path, repositoriesPath, text);
  }
}

/**
 * Checks images that are about to be mirrored against the image policies of their release, which clusters enforce from
 * 4.21 on. Reads only the signatures from the sources. Throws what requireVerified throws.
 */
async function checkPlannedImages(
  groups: readonly MirrorGroup[],
  release: Release,
  allowUnsigned: boolean,
  context: Context,
): Promise<NamedResult[]> {
  if (release.imagePolicies.length === 0) return [];
  const planned = new Map(groups.flatMap(({ images }) => images.map((each) => [each.image.name, each])));
  const checked = await Promise.all(
    namedImages(release, false).map(async ([name, reference]) => {
      const { image, graph } = planned.get(name) ?? {};
      if (!image || !graph) return [];
      const reader = {
        ...readerOf(() => image.source),
        ...finderIn(graph.manifests, (tag) => graph.attachments.get(tag)?.digest),
      };
      const named = { name, reference: { ...reference, digest: image.digest } };
      return checkReleaseImages([named], release.imagePolicies, reader, context.signal);
    }),
  );
  const results = checked.flat();
  requireVerified(results, release.pullspec, allowUnsigned, context);
  return results;
}

import { join } from 'node:path';
import { formatReleaseRepositories, readReleaseRepositories, repositoriesPath } from '../bundle/releaseRepositories.ts';
import { writeTextFile } from '../config/manifestFile.ts';
import { RootFolder } from '../files/rootFolder.ts';
import { formatReference } from '../oci/reference.ts';
import type { Release } from '../release/release.ts';
import { usualRepository } from '../release/version.ts';
import type { Context } from '../context.ts';
import type { Place } from '../release/mirror/destination.ts';
import { findPresent, planMirror, runMirror, type MirrorResult } from '../release/mirror/mirror.ts';
import type { MirrorImage } from '../release/mirror/mirrorGroup.ts';
import type { Registries } from '../registry/registries.ts';
import { Directory } from '../store/directory.ts';
import type { ContentStore } from '../store/store.ts';
import { warnOfRefusedImages } from './policyCheck.ts';
import type { MirroringRequest } from './request.ts';

/** The result of copying images. */
interface Copied {
  readonly result?: MirrorResult;
  readonly present?: ReadonlySet<MirrorImage>;
}

/** Mirrors images. In a dry run, finds the images that are present. Does nothing without images. */
export async function mirrorImages(
  images: readonly MirrorImage[],
  release: Release,
  { verifyExisting, concurrency, dryRun }: MirroringRequest,
  registries: Registries,
  context: Context,
): Promise<Copied> {
  if (images.length === 0) return {};
  const openStore = (place: Place): ContentStore =>
    place.kind === 'registry'
      ? registries.repository(place)
      : new Directory(place.root, place.repository, { verifyExisting }, context);
  context.log('info', `reading the manifests of ${images.length} images`);
  const groups = await planMirror(images, context);
  await warnOfRefusedImages(groups, release, context);
  if (dryRun !== undefined) return { present: await findPresent(groups, openStore) };
  const download = registries.download.bind(registries);
  return { result: await runMirror(groups, { concurrency, openStore, download }, context) };
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
    const known = await readReleaseRepositories(folder);
    if ((known.get(digest) ?? usualRepository) === published) continue;
    const text = formatReleaseRepositories(new Map([...known, [digest, published]]));
    await writeTextFile(join(folder.path, repositoriesPath), text);
  }
}

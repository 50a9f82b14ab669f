import { rm } from 'node:fs/promises';
import { basename, dirname, relative } from 'node:path';
import {
  additionalImagesPath,
  formatAdditionalImages,
  formatReleaseRepositories,
  readAdditionalImages,
  readReleaseRepositories,
  repositoriesPath,
} from '../../bundle/originalNames.ts';
import { readConfigFolder } from '../../bundle/bundledConfig.ts';
import { writeTextFile } from '../../config/manifestFile.ts';
import { listMirrorPlaces } from '../../config/mirrorSets.ts';
import { readObjects } from '../../config/objects.ts';
import { signaturesIn } from '../../config/signatures.ts';
import type { Context } from '../../context.ts';
import { describeWriteError } from '../../content/files/disk.ts';
import { OpenedFolder } from '../../content/files/openedFolder.ts';
import { RootFolder } from '../../content/files/rootFolder.ts';
import { fieldsAt } from '../../fields.ts';
import { isDigest, type Digest } from '../../content/oci/digest.ts';
import { digestIn } from '../../content/oci/reference.ts';
import { Directory } from '../../content/store/directory.ts';
import { listManifests } from '../../content/store/directoryRemoval.ts';
import { listRepositories } from '../../content/store/repositories.ts';

/** What the configuration in a folder may belong to. */
export interface RemovedReleases {
  /** The digests of removed releases, and of their images of single architectures. */
  readonly digests: ReadonlySet<Digest>;
  /** The repositories that nothing is left in. */
  readonly places: ReadonlySet<string>;
}

/**
 * Lists the files of a folder that belong to removed releases alone: their signatures, and mirror sets that lead only to
 * repositories that nothing is left in. Throws the errors of reading.
 */
export async function listPrunedFiles(
  folder: string,
  { digests, places }: RemovedReleases,
  { signal }: Context,
): Promise<string[]> {
  const files = await readConfigFolder(new RootFolder(folder), '', signal);
  return files.flatMap(({ path, text }) => {
    const objects = readObjects(text, path);
    const signed = [...signaturesIn(objects, path).keys()];
    const mirrors = objects.flatMap(listMirrorPlaces);
    const isSignature = signed.length > 0 && signed.every((digest) => digests.has(digest));
    const isMirrorSet = mirrors.length > 0 && mirrors.every((place) => places.has(place));
    return isSignature || isMirrorSet ? [path] : [];
  });
}

/** Lists the digests of the graph-data images that update services in a folder use. Throws the errors of reading. */
export async function listConfiguredImages(folder: string, { signal }: Context): Promise<Digest[]> {
  const files = await readConfigFolder(new RootFolder(folder), '', signal);
  const objects = files.flatMap(({ path, text }) => readObjects(text, path));
  return objects
    .filter(({ kind }) => kind === 'UpdateService')
    .map((service) => digestIn(String(fieldsAt(service, 'spec')['graphDataImage'])))
    .filter(isDigest);
}

/**
 * Removes files below a folder that the user named. A missing file is no error. Throws `not-writable`, also for a link on
 * the way to a file.
 */
export async function removeFiles(root: string, paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    try {
      await using folder = await OpenedFolder.open(root, relative(root, dirname(path)));
      await rm(folder.at(basename(path)), { force: true });
    } catch (error) {
      throw describeWriteError(error, path);
    }
  }
}

/** Removes what is no longer in a mirror directory from its lists of where its releases and additional images came from. */
export async function untagImages(root: string, context: Context): Promise<void> {
  const folder = new RootFolder(root);
  const repositories = (await listRepositories(root)).map((name) => new Directory(root, name, {}, context));
  const present = new Set((await Promise.all(repositories.map(listManifests))).flat());
  const releases = await readReleaseRepositories(folder);
  const keptReleases = [...releases].filter(([digest]) => present.has(digest));
  if (keptReleases.length < releases.size) {
    await writeTextFile(root, repositoriesPath, formatReleaseRepositories(new Map(keptReleases)));
  }
  const images = await readAdditionalImages(folder);
  const keptImages = images.filter(({ digest }) => present.has(digest));
  if (keptImages.length < images.length) {
    await writeTextFile(root, additionalImagesPath, formatAdditionalImages(keptImages));
  }
}

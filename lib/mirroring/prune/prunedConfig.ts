import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readConfigFolder } from '../../bundle/bundledConfig.ts';
import {
  formatReleaseRepositories,
  readReleaseRepositories,
  repositoriesPath,
} from '../../bundle/releaseRepositories.ts';
import { writeTextFile } from '../../config/manifestFile.ts';
import { listMirrorPlaces } from '../../config/mirrorSets.ts';
import { readObjects } from '../../config/objects.ts';
import { signaturesIn } from '../../config/signatures.ts';
import type { Context } from '../../context.ts';
import { describeWriteError } from '../../files/disk.ts';
import { RootFolder } from '../../files/rootFolder.ts';
import type { Digest } from '../../oci/digest.ts';

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

/** Removes files. A missing file is no error. Throws `not-writable`. */
export async function removeFiles(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    await rm(path, { force: true }).catch((error: unknown) => {
      throw describeWriteError(error, path);
    });
  }
}

/** Removes releases from the list of a mirror directory of where its releases came from. */
export async function forgetReleases(root: string, digests: ReadonlySet<Digest>): Promise<void> {
  const known = await readReleaseRepositories(new RootFolder(root));
  const kept = [...known].filter(([digest]) => !digests.has(digest));
  if (kept.length === known.size) return;
  await writeTextFile(join(root, repositoriesPath), formatReleaseRepositories(new Map(kept)));
}

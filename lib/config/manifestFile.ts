import { constants } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { describeWriteError, makeFolders } from '../content/files/disk.ts';
import { partialName } from '../content/files/partials.ts';
import { writeAtomically } from '../content/files/atomicWrite.ts';
import { ignoreMissing } from '../content/files/fileContent.ts';
import { OpenedFolder } from '../content/files/openedFolder.ts';
import { openRegular } from '../content/files/regularFile.ts';
import { readWhole } from '../content/files/smallFile.ts';

/** The outcome of writing a file, in the words of kubectl. */
export type FileOutcome = 'created' | 'configured' | 'unchanged';

/** The largest existing file that is compared, in bytes. */
const comparedSize = 16 * 1024 * 1024;

/**
 * Writes a small text file atomically, by its path below a folder that the user named, unless it already has this
 * content. Creates the folders. Follows no link below the named folder. With `dryRun`, only returns the outcome. Throws
 * `disk-full` and `not-writable`.
 */
export async function writeTextFile(root: string, path: string, text: string, dryRun = false): Promise<FileOutcome> {
  const whole = join(root, path);
  const name = basename(path);
  try {
    await using folder = await prepareFolder(root, dirname(path), dryRun);
    const before = folder && (await readText(folder, name));
    if (before === text) return 'unchanged';
    if (folder && !dryRun)
      await writeAtomically(folder.at(name), text, { partial: folder.at(partialName(name)), name: whole });
    return before === undefined ? 'created' : 'configured';
  } catch (error) {
    const described = describeWriteError(error, whole);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `${whole} cannot be written: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Opens a folder below one that the user named, and creates both. With `dryRun`, returns undefined if it does not exist.
 * Throws `not-writable` for a link below the named folder, and the system’s errors.
 */
export async function prepareFolder(root: string, path: string, dryRun: boolean): Promise<OpenedFolder | undefined> {
  if (dryRun) return OpenedFolder.open(root, path).catch(ignoreMissing);
  await makeFolders(root);
  return OpenedFolder.open(root, path, true);
}

/** Returns the content of a file; undefined if it does not exist or cannot be read. Throws for a special file. */
async function readText(folder: OpenedFolder, name: string): Promise<string | undefined> {
  try {
    await using file = await openRegular(folder.at(name), constants.O_RDONLY, join(folder.path, name));
    return String(await readWhole(file, name, comparedSize));
  } catch (error) {
    if (isPluginError(error, 'not-writable')) throw error;
    return isPluginError(error, 'too-large') ? '' : undefined;
  }
}

/** The largest number of manifests in a folder, and of entries of any kind to search. */
const folderLimits = { manifests: 1000, entries: 100_000 };

/**
 * Lists the files with a manifest's extension in a folder, at any depth, in no order. Does not follow links to folders,
 * as the `recursive` of readdir would, because some lead in circles. Throws `too-large` above the limits, and the
 * errors of readdir.
 */
export async function findManifestFiles(folder: string): Promise<string[]> {
  const paths: string[] = [];
  const folders = [folder];
  let entries = 0;
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    for (const entry of await readdir(next, { withFileTypes: true })) {
      const path = join(next, entry.name);
      entries += 1;
      if (entry.isDirectory()) folders.push(path);
      else if (/\.(?:ya?ml|json)$/.test(entry.name)) paths.push(path);
      if (paths.length <= folderLimits.manifests && entries <= folderLimits.entries) continue;
      throw new PluginError('too-large', `${folder} has more files than the configuration of releases may have`, {
        hint: `At most ${folderLimits.manifests} manifests are read: take out what does not belong there.`,
      });
    }
  }
  return paths;
}

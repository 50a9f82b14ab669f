import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { describeWriteError, makeFolders } from '../files/disk.ts';
import { partialName } from '../files/partials.ts';
import { writeAtomically } from '../files/atomicWrite.ts';

/** The outcome of writing a file, in the words of kubectl. */
export type FileOutcome = 'created' | 'configured' | 'unchanged';

/**
 * Writes a small text file atomically, with its parent folders, unless it already has this content. With `dryRun`, only
 * returns the outcome. Throws `disk-full` and `not-writable`.
 */
export async function writeTextFile(path: string, text: string, dryRun = false): Promise<FileOutcome> {
  const before = await readFile(path, 'utf8').catch(() => undefined);
  if (before === text) return 'unchanged';
  if (!dryRun) await replaceFile(path, text);
  return before === undefined ? 'created' : 'configured';
}

async function replaceFile(path: string, text: string): Promise<void> {
  const folder = dirname(path);
  try {
    await makeFolders(folder);
    await writeAtomically(path, text, { mode: 0o644, partial: join(folder, partialName(basename(path))) });
  } catch (error) {
    const described = describeWriteError(error, path);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `${path} cannot be written: ${messageOf(error)}`, { cause: error });
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
  const found: string[] = [];
  const folders = [folder];
  let entries = 0;
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    for (const entry of await readdir(next, { withFileTypes: true })) {
      const path = join(next, entry.name);
      entries += 1;
      if (entry.isDirectory()) folders.push(path);
      else if (/\.(?:ya?ml|json)$/.test(entry.name)) found.push(path);
      if (found.length <= folderLimits.manifests && entries <= folderLimits.entries) continue;
      throw new PluginError('too-large', `${folder} has more files than the configuration of releases may have`, {
        hint: `At most ${folderLimits.manifests} manifests are read: take out what does not belong there.`,
      });
    }
  }
  return found;
}

import { mkdir, open, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { describeWriteError } from '../store/disk.ts';
import { partialName, placeFile } from '../store/partials.ts';

/** What became of a file, in the words that kubectl has for objects. */
export type FileOutcome = 'created' | 'configured' | 'unchanged';

/**
 * Writes a small text file, and the folders above it, unless it is there with this content: whole or not at all. With `dryRun` it is only told
 * what would become of it. Throws `disk-full` and `not-writable`.
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
    // The reason why the last part cannot be made is told by mkdir without `recursive` only.
    await mkdir(folder, { recursive: true }).catch(() => mkdir(folder));
    await placeFile(join(folder, partialName(basename(path))), path, async (partial) => {
      await using file = await open(partial, 'wx', 0o644);
      await file.writeFile(text);
      await file.sync();
    });
  } catch (error) {
    const described = describeWriteError(error, path);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `${path} cannot be written: ${messageOf(error)}`, { cause: error });
  }
}

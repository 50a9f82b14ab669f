import { join } from 'node:path';
import { readTarStream, encodeHeader, endSize, roundToBlock } from '#content/archive';
import type { Context } from '#context';
import type { HostCommands } from '#node/machine';
import { imagesFolder, isBackupPath, type BackupEntry, type PackedFile } from './backupFormat.ts';
import type { Backup } from './backupReader.ts';

/** Folder in which restored content is complete before it gets its place. */
const scratchName = '.oc-mirror-registry';

/** Folders that are not part of the content: Quay’s unfinished uploads, and ours. */
const excluded = ['uploads', scratchName];

/** GNU tar says so if a file was removed or changed while it was read. */
const changedCode = 1;

/** Lists the files of a storage: the size in bytes by path. Throws `command-failed`. */
export async function listContent(commands: HostCommands, folder: string): Promise<Map<string, number>> {
  const skipped = excluded.flatMap((name) => ['-path', `./${name}`, '-prune', '-o']);
  const words = ['find', '.', '-xdev', ...skipped, '-type', 'f', '-printf', '%s %P\\0'];
  const sizes = new Map<string, number>();
  let rest = '';
  for await (const chunk of commands.readInFolder(folder, words)) {
    const lines = (rest + chunk.toString('latin1')).split('\0');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [size = '', ...path] = line.split(' ');
      sizes.set(path.join(' '), Number(size));
    }
  }
  return sizes;
}

/**
 * Reads the listed files of a storage while the registry runs. Files never change once they are complete. Files that
 * changed or were removed since are skipped, with a warning. Throws `command-failed`.
 */
export async function* packStorage(
  commands: HostCommands,
  folder: string,
  listed: ReadonlyMap<string, number>,
  { log }: Context,
): AsyncGenerator<PackedFile> {
  let count = 0;
  const skipped = excluded.map((name) => `--exclude=./${name}`);
  const words = ['tar', '--create', '--format=gnu', '--one-file-system', ...skipped, '--file=-', '.'];
  const output = commands.readInFolder(folder, words, [0, changedCode]);
  for await (const { path, size, content } of readTarStream(output, folder)) {
    const name = imagesFolder + path;
    if (listed.get(path) !== size || !isBackupPath(name)) continue;
    count += 1;
    yield { path: name, size, content };
  }
  if (count < listed.size) {
    log('warn', `${listed.size - count} files of ${folder} are not in the backup: they changed, or are not Quay’s`);
  }
}

/** Lists the files of a backup with the content of images that a storage does not have. Throws `command-failed`. */
export async function listMissingContent(
  { manifest }: Backup,
  commands: HostCommands,
  folder: string,
): Promise<BackupEntry[]> {
  const present = await listContent(commands, folder);
  const isPresent = ({ path, size }: BackupEntry): boolean => present.get(path.slice(imagesFolder.length)) === size;
  return manifest.files.filter((entry) => entry.path.startsWith(imagesFolder) && !isPresent(entry));
}

/**
 * Adds files of a backup to a storage while the registry runs. None gets its place before all are complete and
 * verified. Throws `digest-mismatch`, `command-failed`.
 */
export async function addContent(
  backup: Backup,
  entries: readonly BackupEntry[],
  commands: HostCommands,
  folder: string,
): Promise<void> {
  if (entries.length === 0) return;
  const place = `rm -rf "$0" && mkdir "$0" && tar -xf - -C "$0" && cp -rlf "$0/." . && rm -rf "$0"`;
  await commands.runAsQuay(folder, ['sh', '-c', place, scratchName], packContent(backup, entries, commands.signal));
}

async function* packContent(
  backup: Backup,
  entries: readonly BackupEntry[],
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (const entry of entries) {
    const path = join('.', entry.path.slice(imagesFolder.length));
    yield encodeHeader({ path, content: Buffer.alloc(0) }, entry.size);
    yield* backup.content(entry, signal);
    yield Buffer.alloc(roundToBlock(entry.size) - entry.size);
  }
  yield Buffer.alloc(endSize);
}

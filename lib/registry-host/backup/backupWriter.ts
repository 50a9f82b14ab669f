import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { endSize, roundToBlock } from '../../content/archive/tarLayout.ts';
import { PluginError } from '../../errors.ts';
import { renameDurably } from '../../content/files/atomicWrite.ts';
import { describeWriteError } from '../../content/files/disk.ts';
import {
  headerOf,
  manifestName,
  type BackupEntry,
  type BackupFacts,
  type BackupManifest,
  type PackedFile,
} from './backupFormat.ts';

/**
 * Writes a backup: a tar that only the current user can read, with a manifest as its last file. It gets its name when it
 * is complete and on the disk. Throws `disk-full`, `not-writable`, and as the content of files.
 */
export async function writeBackup(
  path: string,
  facts: BackupFacts,
  packed: AsyncIterable<PackedFile>,
): Promise<BackupManifest> {
  const partial = `${path}.partial`;
  try {
    await rm(partial, { force: true });
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    await using file = await open(partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    const files: BackupEntry[] = [];
    for await (const each of packed) files.push(await writeFile(file, each));
    const manifest = { ...facts, files };
    const text = Buffer.from(JSON.stringify(manifest));
    await writeFile(file, { path: manifestName, size: text.length, content: [text] });
    await file.writeFile(Buffer.alloc(endSize));
    await file.sync();
    await renameDurably(partial, path);
    return manifest;
  } catch (error) {
    await rm(partial, { force: true }).catch(() => undefined);
    throw describeWriteError(error, path);
  }
}

async function writeFile(file: FileHandle, { path, size, content }: PackedFile): Promise<BackupEntry> {
  await file.writeFile(headerOf(path, size));
  const hash = createHash('sha256');
  let written = 0;
  for await (const chunk of content) {
    hash.update(chunk);
    written += chunk.length;
    await file.writeFile(chunk);
  }
  if (written !== size) {
    throw new PluginError('not-readable', `${path} has ${written} bytes instead of ${size}: it changed meanwhile`, {
      hint: 'Try again.',
    });
  }
  await file.writeFile(Buffer.alloc(roundToBlock(size) - size));
  return { path, size, sha256: hash.digest('hex') };
}

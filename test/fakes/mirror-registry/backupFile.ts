import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { layOutTar } from '../../../lib/content/archive/tarLayout.ts';
import type { BackupFacts } from '../../../lib/registry-host/backup/backupFormat.ts';

/** Writes a backup with any files, also ones that `writeBackup` does not write. `changed`: fields of its manifest. */
export async function writeBackupFile(
  path: string,
  facts: BackupFacts,
  files: Readonly<Record<string, string | Buffer>>,
  changed: object = {},
): Promise<void> {
  const entries = Object.entries(files).map(([name, text]) => ({ path: name, content: Buffer.from(text) }));
  const listed = entries.map(({ path: name, content }) => {
    return { path: name, size: content.length, sha256: createHash('sha256').update(content).digest('hex') };
  });
  await writeEntries(path, [
    ...entries,
    { path: 'manifest.json', content: Buffer.from(JSON.stringify({ ...facts, files: listed, ...changed })) },
  ]);
}

/** Writes a tar with the headers of a backup, with or without a manifest. */
export async function writeEntries(
  path: string,
  entries: readonly { readonly path: string; readonly content: Buffer }[],
): Promise<void> {
  const { entries: placed, size } = layOutTar(entries);
  const tar = Buffer.alloc(size);
  for (const { entry, header, position, start } of placed) {
    header.copy(tar, position);
    if ('content' in entry) entry.content.copy(tar, start);
  }
  await writeFile(path, tar, { mode: 0o600 });
}

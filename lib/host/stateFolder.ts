import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describeWriteError } from '../store/disk.ts';
import { takeLock } from '../store/lock.ts';
import type { HostFiles } from './hostFiles.ts';
import type { Installation } from './installation.ts';

/** The folder of this program beside a registry, as the host has it: the lock, the journal and the backups. */
export function stateFolderOf({ quayRoot }: Installation): string {
  return join(quayRoot.value, '.oc-mirror-registry');
}

/** Keeps other runs out of an installation, and returns how to let them in again. Throws `busy`, `disk-full`, `not-writable`. */
export async function takeStateLock(files: HostFiles, installation: Installation): Promise<() => Promise<void>> {
  const folder = files.locate(stateFolderOf(installation));
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw describeWriteError(error, folder);
  }
  return takeLock(join(folder, 'lock'), `the mirror registry in ${installation.quayRoot.value}`);
}

import { chmod, chown, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { describeWriteError, syncFolder } from '../store/disk.ts';

/** A file of the host that is to have other bytes. */
export interface FileChange {
  /** As the host has it. */
  readonly path: string;
  /** Undefined for a file that is not there yet. */
  readonly before: Buffer | undefined;
  readonly after: Buffer;
  /** Permissions of a new file; one that was there keeps its own. */
  readonly mode?: number;
}

/**
 * Gives a file its new bytes in one step, durably: whatever ends this leaves the old file or the new one. The path is one of this machine.
 * Mode and owner stay; a new file has `mode`, and its folder is made for its owner alone. What a symbolic link leads to is replaced, not
 * the link. SELinux labels come with the folder, and podman sets those of its mounts at each start. Throws `disk-full` and `not-writable`.
 */
export async function replaceFile(named: string, content: Buffer | string, mode?: number): Promise<void> {
  const path = await realpath(named).catch(() => named);
  const partial = `${path}.partial`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const old = await stat(path).catch(() => undefined);
    await rm(partial, { force: true });
    {
      // Before anybody may read it, it has to be known who may.
      await using file = await open(partial, 'wx', 0o600);
      await file.writeFile(content);
      await file.sync();
    }
    if (old && (old.uid !== process.getuid?.() || old.gid !== process.getgid?.())) {
      await chown(partial, old.uid, old.gid);
    }
    await chmod(partial, old ? old.mode & 0o7777 : (mode ?? 0o644));
    await rename(partial, path);
    await syncFolder(dirname(path));
  } catch (error) {
    await rm(partial, { force: true }).catch(() => undefined);
    throw describeWriteError(error, path);
  }
}

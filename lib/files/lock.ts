import { lstat, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { PluginError } from '../errors.ts';
import { describeWriteError } from './disk.ts';
import { isMissing } from './fileContent.ts';
import { bootId, isRunning, machineId, processNamespace, startTimeOf } from './process.ts';

/**
 * Takes a lock file for this process and returns how to let go of it. A lock whose process has ended is taken over.
 * Throws `busy` when another process has it, or this one; `disk-full`, `not-writable`.
 */
export async function takeLock(path: string, what: string): Promise<() => Promise<void>> {
  const mine = JSON.stringify({
    host: machineIdentity(),
    kernel: bootIdentity(),
    pid: process.pid,
    started: startTimeOf(process.pid),
  });
  try {
    while (!(await create(path, mine))) {
      const theirs = await readLock(path, what);
      if (theirs !== undefined) await removeStale(path, theirs);
    }
  } catch (error) {
    throw describeWriteError(error, path);
  }
  return () => rm(path, { force: true });
}

/** Throws `busy` when a process has a lock file, and leaves it as it is. */
export async function checkLock(path: string, what: string): Promise<void> {
  try {
    await readLock(path, what);
  } catch (error) {
    throw describeWriteError(error, path);
  }
}

/** What a lock file says that nobody holds; undefined where there is none. Throws `busy`. */
async function readLock(path: string, what: string): Promise<string | undefined> {
  const content = (await unlessMissing(readFile(path, 'utf8'))) ?? ((await isLink(path)) ? '' : undefined);
  if (content === undefined) return undefined;
  if (isHeld(content) || (content === '' && (await isRecent(path)))) throw busy(path, what);
  return content;
}

/** Writes a lock file; returns false where there is one already. */
async function create(path: string, content: string): Promise<boolean> {
  try {
    await using file = await open(path, 'wx');
    await file.writeFile(content).catch(async (error: unknown) => {
      await rm(path, { force: true });
      throw error;
    });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a lock of an ended process, unless another process took it over a moment ago. */
async function removeStale(path: string, content: string): Promise<void> {
  const aside = `${path}.${process.pid}`;
  await unlessMissing(rename(path, aside));
  const moved = (await unlessMissing(readFile(aside, 'utf8'))) ?? content;
  if (moved === content) await rm(aside, { force: true });
  else await unlessMissing(rename(aside, path));
}

/** What an action on a file gives; undefined when the file is gone, since another process may have been faster. */
function unlessMissing<T>(action: Promise<T>): Promise<T | undefined> {
  return action.catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
}

function isHeld(content: string): boolean {
  try {
    const { host, kernel, pid, started } = JSON.parse(content) as Record<'host' | 'started', string> & {
      readonly kernel?: string;
      readonly pid: number;
    };
    // Of the processes of another machine, or another container, nothing is known. Containers that see all processes of the same
    // machine see each other’s, whatever their host names: those of pods change.
    const isSeen = host === machineIdentity() || (kernel !== undefined && kernel !== '' && kernel === bootIdentity());
    if (!isSeen) return true;
    return started === startTimeOf(pid) && isRunning(pid);
  } catch {
    return false;
  }
}

/** Tells the processes that are seen from here from those of other machines and containers, which may have the same name and the same folder. */
function machineIdentity(): string {
  return [hostname(), machineId(), processNamespace()].filter((part) => part !== '').join(' ');
}

/** Tells which processes there are to see, by the kernel that runs now; '' where that is not known. */
function bootIdentity(): string {
  const [boot, space] = [bootId(), processNamespace()];
  return boot === '' || space === '' ? '' : `${boot} ${space}`;
}

/** Whether there is a symbolic link: one that leads nowhere is in the way, and yet cannot be read. */
async function isLink(path: string): Promise<boolean> {
  return (await unlessMissing(lstat(path)))?.isSymbolicLink() ?? false;
}

/** Whether a lock that says nothing may still be about to be written. */
async function isRecent(path: string): Promise<boolean> {
  const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: 0 }));
  return Date.now() - mtimeMs < 10_000;
}

function busy(path: string, what: string): PluginError {
  return new PluginError('busy', `another run is writing ${what}`, {
    hint: `Wait for it to end. If no other machine or container is working in that folder, remove ${path} and try again.`,
  });
}

import { constants } from 'node:fs';
import { lstat, rename, rm } from 'node:fs/promises';
import { PluginError } from '../../errors.ts';
import { fieldsWith, isCount, isText } from '../../fields.ts';
import { describeWriteError } from './disk.ts';
import { ignoreMissing } from './fileContent.ts';
import { openRegular } from './regularFile.ts';
import { readWhole } from './smallFile.ts';
import { identifyProcess, processState, type ProcessIdentity } from './process.ts';

const isIdentity = fieldsWith({
  host: isText,
  kernel: isText,
  // 0 and negative numbers name groups of processes.
  pid: (value) => isCount(value) && Number(value) > 0,
  started: isText,
});

/**
 * Takes a lock file for this process, until it is disposed. Takes over a lock whose process has
 * ended. `shown` is its path in messages. Throws `busy` if this or another process has it, `disk-full`, and
 * `not-writable`, also for a special file.
 */
export async function takeLock(path: string, what: string, shown = path): Promise<AsyncDisposable> {
  const mine = JSON.stringify(identifyProcess());
  try {
    while (!(await create(path, mine))) {
      const theirs = await readLock(path, what, shown);
      if (theirs !== undefined) await removeStale(path, theirs);
    }
  } catch (error) {
    throw describeWriteError(error, shown);
  }
  return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
}

/** Throws `busy` if a process has a lock file. Does not change the file. */
export async function checkLock(path: string, what: string): Promise<void> {
  try {
    await readLock(path, what);
  } catch (error) {
    throw describeWriteError(error, path);
  }
}

/** Returns the process ID of the running process that has a lock file; undefined if there is none, or if it is not visible. */
export async function readHolder(path: string): Promise<number | undefined> {
  const content = await readContent(path).catch(() => '');
  return stateOf(content) === 'running' ? parseIdentity(content)?.pid : undefined;
}

/** Returns the content of a lock file whose process has ended; undefined if there is no lock file. Throws `busy`. */
async function readLock(path: string, what: string, shown = path): Promise<string | undefined> {
  const content = await readContent(path).catch(ignoreMissing);
  if (content === undefined) return undefined;
  if (stateOf(content) !== 'ended' || (content === '' && (await isRecent(path)))) throw busy(shown, what);
  return content;
}

/** Creates a lock file. Returns false if it exists. */
async function create(path: string, content: string): Promise<boolean> {
  try {
    const { O_WRONLY, O_CREAT, O_EXCL } = constants;
    await using file = await openRegular(path, O_WRONLY | O_CREAT | O_EXCL);
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

/** Removes a lock of an ended process, unless another process has just taken it over. */
async function removeStale(path: string, content: string): Promise<void> {
  const aside = `${path}.${process.pid}`;
  await rename(path, aside).catch(ignoreMissing);
  const moved = (await readContent(aside).catch(ignoreMissing)) ?? content;
  if (moved === content) await rm(aside, { force: true });
  else await rename(aside, path).catch(ignoreMissing);
}

/** Returns the state of the process that wrote a lock. A lock that no process can have written is of none. */
function stateOf(content: string): ReturnType<typeof processState> {
  const identity = parseIdentity(content);
  return identity ? processState(identity) : 'ended';
}

function parseIdentity(content: string): ProcessIdentity | undefined {
  try {
    const value: unknown = JSON.parse(content);
    return isIdentity(value) ? (value as ProcessIdentity) : undefined;
  } catch {
    return undefined;
  }
}

/** The largest lock file in bytes. */
const sizeLimit = 64 * 1024;

/** Returns the content of a lock file; empty for a link, which no process writes. */
async function readContent(path: string): Promise<string> {
  if ((await lstat(path)).isSymbolicLink()) return '';
  await using file = await openRegular(path);
  return String(await readWhole(file, path, sizeLimit));
}

/** Returns whether an empty lock is so recent that its process may still write it. */
async function isRecent(path: string): Promise<boolean> {
  const stats = await lstat(path).catch(() => undefined);
  // After a power failure, the clock may be behind.
  return stats?.isFile() === true && Math.abs(Date.now() - stats.mtimeMs) < 10_000;
}

function busy(path: string, what: string): PluginError {
  return new PluginError('busy', `another run is writing ${what}`, {
    hint: `Wait for it to end. If no other machine or container is working in that folder, remove ${path} and try again.`,
  });
}

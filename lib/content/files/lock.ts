import { constants, readFileSync, readlinkSync } from 'node:fs';
import { lstat, rename, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { PluginError } from '#errors';
import { count, matches, object, text, type Static } from '#schema';
import { digestOf, hexOf } from '../oci/reference.ts';
import { describeWriteError } from './disk.ts';
import { ignoreMissing } from './fileRange.ts';
import { openRegular, readWhole } from './smallFile.ts';

/** The statement of a process, in a form that other processes and machines can read. */
export const processIdentity = object({
  /** The machine or container. Another one may have the same host name. */
  host: text(),
  /** The current boot and the process namespace; '' if unknown. */
  kernel: text(),
  // 0 and negative numbers name groups of processes.
  pid: count({ minimum: 1 }),
  started: text(),
});

/** See `processIdentity`. */
export type ProcessIdentity = Static<typeof processIdentity>;

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

/**
 * Returns the process ID of the running process that has a lock file; undefined if there is none, or if it is not
 * visible.
 */
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
    return matches(processIdentity, value) ? value : undefined;
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
    hint:
      `Wait for it to end. If no other machine or container is working in that folder, remove ${path} and try ` +
      'again.',
  });
}

/**
 * Returns the host, the boot, the process ID and the start time of this process, by which others see whether it still
 * runs.
 */
export function identifyProcess(): ProcessIdentity {
  const space = processNamespace();
  const boot = readBoot();
  const machine = readOrEmpty(() => readFileSync('/etc/machine-id', 'utf8'));
  return {
    host: [hostname(), machine, space].filter((part) => part !== '').join(' '),
    kernel: boot === '' || space === '' ? '' : `${boot} ${space}`,
    pid: process.pid,
    started: startTimeOf(process.pid),
  };
}

/** Identifies the current boot of the machine, by the kernel; '' if unknown. */
export function readBoot(): string {
  return readOrEmpty(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'));
}

/** Replaces what identifies a machine by digests, for other machines: its ID is confidential (machine-id(5)). */
export function hideMachine(identity: ProcessIdentity): ProcessIdentity {
  const hide = (text: string): string => (text === '' ? '' : hexOf(digestOf(text)).slice(0, 32));
  return { ...identity, host: hide(identity.host), kernel: hide(identity.kernel) };
}

/**
 * Returns whether a process is running; `unknown` for one of another machine or container, whose processes are
 * invisible.
 */
export function processState(
  { host, kernel, pid, started }: ProcessIdentity,
  own = identifyProcess(),
): 'running' | 'ended' | 'unknown' {
  // Containers that see all processes of a machine see those of each other, even if their host
  // names change, as in pods.
  if (host !== own.host && (kernel === '' || kernel !== own.kernel)) return 'unknown';
  return started === startTimeOf(pid) && isRunning(pid) ? 'running' : 'ended';
}

/**
 * Returns whether a process of this machine and process namespace is running. One that has ended stays in the table of
 * processes until its parent reads its end, which the first process of some containers never does.
 */
export function isRunning(pid: number): boolean {
  if (['Z', 'X'].includes(readStat(pid)[0] ?? '')) return false;
  try {
    // oxlint-disable-next-line no-restricted-properties -- signal 0 ends nothing
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Returns the start time of a process, in the units of the kernel, because process IDs are reused; '' if unknown. */
function startTimeOf(pid: number): string {
  return readStat(pid)[19] ?? '';
}

/** Reads what the kernel says about a process, from its state on (proc_pid_stat(5)); [''] if unknown. */
function readStat(pid: number): string[] {
  return readOrEmpty(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
    .replace(/^.*\) /s, '')
    .split(' ');
}

/**
 * Identifies the process namespace; '' if unknown. Process IDs are unique in one namespace only, and containers may
 * share a host name.
 */
export function processNamespace(): string {
  return readOrEmpty(() => readlinkSync('/proc/self/ns/pid'));
}

function readOrEmpty(read: () => string): string {
  try {
    return read().trim();
  } catch {
    return '';
  }
}

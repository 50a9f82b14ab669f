import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { describeHost, pathOnHost, type Host } from './host.ts';

/** The result of a program. `code` is -1 if a signal ended it. */
export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Options of running a program of a host. */
export interface ProgramOptions {
  /** Run with the lowest priority for processor and disk. */
  readonly gentle?: boolean;
  /** Variables in addition to those of the host. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The encoding of its output; `latin1` keeps each byte. */
  readonly encoding?: 'utf8' | 'latin1';
  /** Its standard input; empty by default. */
  readonly input?: AsyncIterable<Buffer>;
}

/** The environment of a run, and the signal that ends it. */
export interface RunOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  readonly input?: ProgramOptions['input'] | undefined;
  /** The encoding of its output; utf8 by default. */
  readonly encoding?: ProgramOptions['encoding'];
  /** Run it in a process group of its own: signals for the group of this process, such as Ctrl-C, do not reach it. */
  readonly ownGroup?: boolean;
}

const folders = ['/usr/bin', '/usr/sbin', '/bin', '/sbin', '/usr/local/bin', '/usr/local/sbin'];
const outputLimit = 16 * 1024 * 1024;

/** Finds a program on the PATH of an environment, as a shell does; undefined if it is missing. */
export function findOnPath(name: string, environment: Host['environment']): Promise<string | undefined> {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  const paths = (environment['PATH'] ?? '').split(delimiter).map((folder) => join(folder || '.', name + suffix));
  return firstExecutable(paths, (path) => path);
}

/**
 * Finds a program of a host, on its PATH and in the usual folders, as a path of the host; undefined if it is missing.
 */
export function findProgram(host: Host, name: string): Promise<string | undefined> {
  const own = host.root === '/' ? (host.environment['PATH'] ?? '').split(':').filter((folder) => folder !== '') : [];
  const paths = [...new Set([...own, ...folders])].map((folder) => join(folder, name));
  return firstExecutable(paths, (path) => pathOnHost(host, path));
}

/** Returns the command line that runs a program of a host within the host’s file system. */
export function commandOnHost(host: Host, program: string, args: readonly string[]): [string, ...string[]] {
  return host.root === '/' ? [program, ...args] : ['chroot', host.root, program, ...args];
}

/**
 * Runs a program of the host until it ends, within the host’s file system. Ends it if the context is interrupted. Any
 * exit code is a result. Throws `not-found` if the program is missing, and `interrupted`.
 */
export async function runProgram(
  host: Host,
  name: string,
  args: readonly string[],
  context: Context,
  options: ProgramOptions = {},
): Promise<ProgramResult> {
  const { signal } = context;
  checkInterrupted(signal);
  const program = await findProgram(host, name);
  if (program === undefined) throw new PluginError('not-found', `${describeHost(host)} has no ${name}`);
  const command = commandOnHost(host, program, args);
  context.log('debug', `run: ${[name, ...args].join(' ')}`);
  const environment = { ...host.environment, ...options.environment };
  const { gentle, encoding, input } = options;
  return runCommand(gentle ? [...(await gentlePrefix()), ...command] : command, {
    environment,
    signal,
    encoding,
    input,
  });
}

/**
 * Does the same as `runProgram` until a limit ends, which also ends the program. Returns undefined if it has not ended
 * by itself.
 */
export async function runProgramWithin(
  host: Host,
  name: string,
  args: readonly string[],
  limit: AbortSignal,
  context: Context,
): Promise<ProgramResult | undefined> {
  try {
    return await runProgram(host, name, args, { ...context, signal: AbortSignal.any([context.signal, limit]) });
  } catch (error) {
    if (context.signal.aborted || !limit.aborted) throw error;
    return undefined;
  }
}

/**
 * Runs a program of this machine, by name or path, until it ends. Any exit code is a result. Throws `interrupted`, the
 * system’s error if the program cannot be started, and the error of `input`.
 */
export async function runCommand(
  [command = '', ...args]: readonly string[],
  { environment, signal, input, encoding, ownGroup = false }: RunOptions,
): Promise<ProgramResult> {
  checkInterrupted(signal);
  const stdio = [input ? 'pipe' : 'ignore', 'pipe', 'pipe'] as const;
  const options = { env: { ...environment }, ...(!ownGroup && { signal }) };
  const child = spawn(command, args, { ...options, stdio: [...stdio], detached: ownGroup });
  using _group = ownGroup ? endWith(child, signal) : undefined;
  const [stdout, stderr] = [collect(child.stdout, encoding), collect(child.stderr)];
  const writing = input && child.stdin ? pipeline(input, child.stdin) : undefined;
  writing?.catch(() => undefined);
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', (error) => {
      // After an interruption, wait for the end, because the program may still be writing.
      if (!signal.aborted) reject(error);
    });
    child.once('exit', () => {
      // Programs that it started may keep these open for longer.
      if (signal.aborted) for (const stream of [child.stdout, child.stderr]) stream?.destroy();
    });
    child.once('close', (status) => {
      resolve(status ?? -1);
    });
  });
  checkInterrupted(signal);
  try {
    await writing;
  } catch (error) {
    // A program that fails before it has read everything explains its own failure.
    if (code === 0 || isPluginError(error)) throw error;
  }
  return { code, stdout: stdout(), stderr: stderr() };
}

/** The process groups of running programs. */
const groups = new Set<number>();

/** Ends the process group of a program when the signal is aborted or this process exits, until it is disposed. */
function endWith({ pid }: ChildProcess, signal: AbortSignal): Disposable | undefined {
  if (pid === undefined) return undefined;
  if (groups.size === 0) process.on('exit', endGroups);
  groups.add(pid);
  const end = (): void => void endGroup(pid);
  signal.addEventListener('abort', end);
  return {
    [Symbol.dispose]: () => {
      signal.removeEventListener('abort', end);
      groups.delete(pid);
      if (groups.size === 0) process.off('exit', endGroups);
    },
  };
}

function endGroups(): void {
  groups.forEach(endGroup);
}

function endGroup(pid: number): void {
  try {
    // oxlint-disable-next-line no-restricted-properties -- these are processes that this one started
    process.kill(-pid, 'SIGTERM');
  } catch {
    // It has ended.
  }
}

/**
 * Runs a program of this machine, by name or path, and yields its output. Ends it if the reader stops earlier. Throws
 * `command-failed` if its exit code is not among `codes`, `interrupted`, and the system’s error if it cannot be
 * started.
 */
export async function* readCommand(
  [command = '', ...args]: readonly string[],
  { environment, signal, ownGroup = false }: RunOptions,
  codes: readonly number[] = [0],
): AsyncGenerator<Buffer> {
  checkInterrupted(signal);
  const options = { env: { ...environment }, signal, detached: ownGroup };
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const stderr = collect(child.stderr);
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => {
      resolve(status ?? -1);
    });
  });
  ended.catch(() => undefined);
  try {
    yield* child.stdout as AsyncIterable<Buffer>;
    const code = await ended;
    if (codes.includes(code)) return;
    const why = stderr().trim().split('\n').at(-1) || `exit status ${code}`;
    throw new PluginError('command-failed', `${command} failed: ${why}`);
  } catch (error) {
    checkInterrupted(signal);
    throw error;
  } finally {
    child.kill();
  }
}

async function firstExecutable(
  paths: readonly string[],
  locate: (path: string) => string,
): Promise<string | undefined> {
  for (const path of paths) {
    try {
      await access(locate(path), constants.X_OK);
      if ((await stat(locate(path))).isFile()) return path;
    } catch {
      // The next folder may have it.
    }
  }
  return undefined;
}

/** Returns the command line that runs a program with the lowest priority, of the programs that this machine has. */
async function gentlePrefix(): Promise<string[]> {
  const here = { root: '/', environment: {} };
  const [nice, ionice] = await Promise.all([findProgram(here, 'nice'), findProgram(here, 'ionice')]);
  return [
    ...(nice === undefined ? [] : [nice, '-n', '19']),
    // -t: run the program even if the idle class is not allowed.
    ...(ionice === undefined ? [] : [ionice, '-t', '-c', '3']),
  ];
}

function collect(stream: Readable | null, encoding: ProgramOptions['encoding'] = 'utf8'): () => string {
  let text = '';
  stream?.setEncoding(encoding).on('data', (chunk: string) => {
    if (text.length < outputLimit) text += chunk;
  });
  return () => text;
}

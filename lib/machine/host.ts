import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';

/** The machine whose image store and configuration are meant: this one, or one whose file system is mounted somewhere. */
export interface Host {
  /** Where its file system begins: `/`, or `/host` in a container that has it there. */
  readonly root: string;
  /** What its programs get as their environment. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** How a program ended; `code` is -1 for one that was killed. */
export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** How to run a program. */
export interface ProgramOptions {
  /** After everybody else, for the processor and for the disk. */
  readonly gentle?: boolean;
  /** Variables besides those of the host. */
  readonly environment?: Readonly<Record<string, string>>;
}

const folders = ['/usr/bin', '/usr/sbin', '/bin', '/sbin', '/usr/local/bin', '/usr/local/sbin'];
const outputLimit = 16 * 1024 * 1024;

/** Where a path of the host is for this process. */
export function pathOnHost(host: Host, path: string): string {
  return join(host.root, path);
}

/** Where the host has a program, as a path of its own; undefined where it has none of that name. */
export async function findProgram(host: Host, name: string): Promise<string | undefined> {
  const own = host.root === '/' ? (host.environment['PATH'] ?? '').split(':').filter((folder) => folder !== '') : [];
  for (const folder of new Set([...own, ...folders])) {
    const path = join(folder, name);
    const found = await access(pathOnHost(host, path), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return path;
  }
  return undefined;
}

/**
 * Runs a program of the host to its end, within the host’s file system, and ends it when the context is interrupted. A program
 * that fails is a result; throws `not-found` for one that is not there, and `interrupted`.
 */
export async function runProgram(
  host: Host,
  name: string,
  args: readonly string[],
  context: Context,
  options: ProgramOptions = {},
): Promise<ProgramResult> {
  checkInterrupted(context.signal);
  const program = await findProgram(host, name);
  if (program === undefined) throw new PluginError('not-found', `${describeHost(host)} has no ${name}`);
  const inside = host.root === '/' ? [program, ...args] : ['chroot', host.root, program, ...args];
  const [command = name, ...rest] = [...(options.gentle ? await gentleWords() : []), ...inside];
  context.log('debug', `run: ${[name, ...args].join(' ')}`);
  const result = await new Promise<ProgramResult>((resolve, reject) => {
    const child = spawn(command, rest, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...host.environment, ...options.environment },
      signal: context.signal,
    });
    const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)];
    child.once('error', (error) => {
      // Of one that is being ended the end itself is waited for: it may still be writing.
      if (!context.signal.aborted) reject(error);
    });
    child.once('exit', () => {
      // Whatever it began itself may hold these open for longer.
      if (context.signal.aborted) for (const stream of [child.stdout, child.stderr]) stream.destroy();
    });
    child.once('close', (code) => {
      resolve({ code: code ?? -1, stdout: stdout(), stderr: stderr() });
    });
  });
  checkInterrupted(context.signal);
  return result;
}

/** What to call a host in a message. */
export function describeHost(host: Host): string {
  return host.root === '/' ? 'this machine' : `the machine at ${host.root}`;
}

/** The words that make a program wait for all others, as far as this machine has them. */
async function gentleWords(): Promise<string[]> {
  const here = { root: '/', environment: {} };
  const [nice, ionice] = await Promise.all([findProgram(here, 'nice'), findProgram(here, 'ionice')]);
  // Where the idle class is not allowed or means nothing, the program runs all the same.
  return [
    ...(nice === undefined ? [] : [nice, '-n', '19']),
    ...(ionice === undefined ? [] : [ionice, '-t', '-c', '3']),
  ];
}

function collect(stream: NodeJS.ReadableStream): () => string {
  let text = '';
  stream.on('data', (chunk: Buffer) => {
    if (text.length < outputLimit) text += chunk.toString();
  });
  return () => text;
}

import { AssertionError } from 'node:assert';
import { getPriority, setPriority } from 'node:os';
import { basename, join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Program } from '../../../cmd/cli/command.ts';
import { execute } from '../../../cmd/execute.ts';
import { mirrorRegistry } from '../../../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../../../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../../../cmd/upgrade-bundle/commands.ts';
import { KilledRun } from './kill.ts';
import { expectOutput } from './outputs.ts';

/** The result of a program. */
export interface Execution {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The options of a program: its folder, its environment, and the signal that interrupts it. */
export interface ExecutionOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** The standard input. */
  readonly stdin?: string;
  readonly signal?: AbortSignal;
  /** Gets all that the program has printed, each time that it prints. */
  readonly onOutput?: (stdout: string) => void;
  /** The step at which it is killed, as `KilledRun` takes it. The code is -1 then. */
  readonly killedAt?: number | string;
}

const sources = fileURLToPath(new URL('../../../cmd', import.meta.url));

/** The programs by the names of their executables. */
const programs: Readonly<Record<string, Program | undefined>> = {
  'oc-adm_upgrade_bundle': upgradeBundle,
  'oc-adm_release_mirror_config': releaseMirrorConfig,
  'oc-adm_mirror_registry': mirrorRegistry,
};

/**
 * Runs a program of this project in this process, by the name of its executable or the path of its source. Checks the
 * fields of the JSON that it prints. Use a separate process only for tests of signals, kills and memory.
 */
export async function executeProgram(
  name: string,
  args: readonly string[],
  options: ExecutionOptions = {},
): Promise<Execution> {
  const program = programs[basename(name, '.ts')];
  if (!program) throw new AssertionError({ message: `there is no program ${name}` });
  const { cwd = process.cwd(), env = process.env, signal = new AbortController().signal } = options;
  const stdin = Readable.from(options.stdin === undefined ? [] : [Buffer.from(options.stdin)]);
  for (const name of Object.keys(env))
    if (/^(NODE_(OPTIONS|EXTRA|TLS)|SSL_|KILL_AT$|TZ$)/.test(name) && env[name] !== process.env[name])
      throw new AssertionError({ message: `${name} is read when a process starts: this needs a process of its own` });
  const [stdout, stderr] = [new Sink(options.onOutput), new Sink()];
  const executable = join(sources, `${basename(name, '.ts')}.ts`);
  // On a slow machine too, stderr has only the output of the command.
  const firstProgress = 2 ** 31 - 1;
  const io = { stdout, stderr, environment: { ...env }, stdin, executable, firstProgress, signal };
  const before = stateOfProcess();
  const priority = getPriority();
  const code = await inFolder(cwd, async () => {
    if (options.killedAt === undefined) return execute(program, args, io);
    return (await new KilledRun(options.killedAt).run(() => execute(program, args, io))) ?? -1;
  });
  restorePriority(priority);
  const after = stateOfProcess();
  if (before !== after) throw new AssertionError({ message: `${args.join(' ')} left traces: ${before} → ${after}` });
  expectOutput(program, args, stdout.text);
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** Returns the state that a program could leave behind in a process. */
function stateOfProcess(): string {
  const listeners = ['SIGINT', 'SIGTERM', 'uncaughtException', 'unhandledRejection'];
  return JSON.stringify([process.exitCode, ...listeners.map((event) => process.listenerCount(event))]);
}

/** Other tests of this process need not run with the low priority of a program. Only root can restore it. */
function restorePriority(priority: number): void {
  try {
    if (getPriority() !== priority) setPriority(priority);
  } catch {
    // The tests are only slower.
  }
}

class Sink extends Writable {
  readonly #chunks: Buffer[] = [];
  readonly #onOutput: ((text: string) => void) | undefined;

  constructor(onOutput?: (text: string) => void) {
    super();
    this.#onOutput = onOutput;
  }

  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    this.#onOutput?.(this.text);
    done();
  }
}

/** The current folder of programs, the number of programs in it, and the folder to return to. */
let place:
  | { readonly folder: string; readonly before: string; count: number; left: PromiseWithResolvers<void> }
  | undefined;

/** Works in a folder. A process has only one at a time, so work in another folder waits. */
async function inFolder<Result>(folder: string, work: () => Promise<Result>): Promise<Result> {
  while (place && place.folder !== folder) await place.left.promise;
  if (!place) {
    place = { folder, before: process.cwd(), count: 0, left: Promise.withResolvers() };
    process.chdir(folder);
  }
  place.count += 1;
  try {
    return await work();
  } finally {
    place.count -= 1;
    if (place.count === 0) {
      process.chdir(place.before);
      place.left.resolve();
      place = undefined;
    }
  }
}

import { basename, dirname, join } from 'node:path';
import { ignoreMissing } from '#content/files';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError, ignoreFailure } from '#errors';
import type { Host } from './host.ts';
import { openMachineFolder } from './hostFiles.ts';
import { readCommand, runCommand, type ProgramResult, type RunOptions, runProgramWithin } from './programs.ts';

/** The programs of a host, by name or path, their environment, and the signal that ends them. */
interface HostPrograms {
  readonly podman: string;
  readonly systemctl: string;
  readonly environment: NodeJS.ProcessEnv;
  readonly signal: AbortSignal;
}

/** Runs podman and systemctl, for the system or for the current user. */
export class HostCommands {
  readonly #programs: HostPrograms;
  readonly scope: Scope;

  constructor(programs: HostPrograms, scope: Scope) {
    this.#programs = programs;
    this.scope = scope;
  }

  /** The signal that ends the commands. */
  get signal(): AbortSignal {
    return this.#programs.signal;
  }

  /** Returns the same commands for steps that an interruption must not stop. */
  uninterrupted(): HostCommands {
    return new HostCommands({ ...this.#programs, signal: new AbortController().signal }, this.scope);
  }

  /**
   * Runs podman with an optional standard input, and returns its output. Throws `command-failed`, `interrupted`, and
   * the errors of `input`.
   */
  podman(args: readonly string[], input?: AsyncIterable<Buffer>): Promise<string> {
    return this.#run(this.#programs.podman, args, input);
  }

  /**
   * Returns whether podman has an object of a kind, by its name. Throws `interrupted`, and `command-failed` if podman
   * cannot tell, such as on a full disk.
   */
  async exists(kind: 'container' | 'image' | 'pod' | 'secret' | 'volume', name: string): Promise<boolean> {
    // Before podman 4.5, secrets have no such command.
    const verb = kind === 'secret' ? 'inspect' : 'exists';
    const args = [kind, verb, name];
    const options = { environment: this.#environment, signal: this.signal };
    const result = await execute(this.#programs.podman, args, options);
    if (result.code === 0) return true;
    if (verb === 'exists' ? result.code === 1 : /no such secret|no secret with name/i.test(result.stderr)) return false;
    throw failureOf(this.#programs.podman, args, result);
  }

  /** Runs podman, and yields its output. Throws `command-failed`, `interrupted`. */
  readPodman(args: readonly string[]): AsyncIterable<Buffer> {
    return readCommand([this.#programs.podman, ...args], {
      environment: this.#environment,
      signal: this.signal,
      ownGroup: true,
    });
  }

  /** Runs systemctl and returns its output. Throws `command-failed`, `interrupted`. */
  systemctl(args: readonly string[]): Promise<string> {
    return this.#run(this.#programs.systemctl, this.scope === 'user' ? ['--user', ...args] : args);
  }

  /**
   * Copies a file with its owner and mode, and replaces an existing file or symbolic link. Files of rootless containers
   * belong to users that only podman can use. Throws `command-failed`.
   */
  async copy(from: string, to: string): Promise<void> {
    await this.#act(['cp', '-p', '-P', '--remove-destination', from, to]);
  }

  /** Copies a file as the current user. Throws `command-failed`. */
  async copyAsOwn(from: string, to: string): Promise<void> {
    await this.#act(['cp', from, to]);
  }

  /** Writes a file to the disk, and then renames it, with the rights of `copy`. Throws `command-failed`. */
  async rename(from: string, to: string): Promise<void> {
    await this.#act(['sh', '-c', 'sync "$0" && mv -f -T "$0" "$1"', from, to]);
  }

  /** Removes a file with the rights of `copy`. Throws `command-failed`. */
  async remove(path: string): Promise<void> {
    await this.#act(['rm', '-f', path]);
  }

  /**
   * Copies the content of a folder with owners and modes into another one, which is created. Throws `command-failed`.
   */
  async copyFolder(from: string, to: string): Promise<void> {
    await this.#hold(from, (held) => this.#act(['cp', '-a', `${held}/.`, to]));
  }

  /**
   * Replaces the content, the owner and the mode of a folder by those of another one, on its own file system only.
   * Containers have no access to the folder until everything is on the disk. Throws `command-failed`.
   */
  async replaceFolder(from: string, to: string): Promise<void> {
    const owner = this.scope === 'user' ? '0:0' : `${process.geteuid?.() ?? 0}:${process.getegid?.() ?? 0}`;
    await this.#hold(to, async (held) => {
      const target = `${held}/.`;
      await this.setAttributes(target, owner, '0700');
      await this.#act(['find', target, '-xdev', '-mindepth', '1', '-delete']);
      const copy = ['-exec', 'cp', '-a', '-t', target, '{}', '+'];
      await this.#act(['find', from, '-mindepth', '1', '-maxdepth', '1', ...copy]);
      await this.#act(['sh', '-c', `sync -f "$1" && ${copyAttributes}`, from, target]);
    });
  }

  /** Returns the size of a folder with everything in it, in bytes. Throws `command-failed`. */
  async sizeOfFolder(path: string): Promise<number> {
    const measure = (held: string): Promise<string> => this.#act(['du', '--summarize', '--bytes', `${held}/.`]);
    return parseInt(await this.#hold(path, measure), 10);
  }

  /**
   * Returns a digest of the names and the content of files in a folder, with the rights of `copy`. `criteria` are those
   * of find. Throws `command-failed`.
   */
  async digestOf(folder: string, criteria: readonly string[]): Promise<string> {
    const list = 'cd -- "$0" && find . "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum | sha256sum';
    return (await this.#act(['sh', '-c', list, folder, ...criteria])).slice(0, 64);
  }

  /** Removes a folder with all its content, on its own file system only. Throws `command-failed`. */
  async removeFolder(path: string): Promise<void> {
    const remove = (parent: string): Promise<string> =>
      this.#act(['rm', '-rf', '--one-file-system', join(parent, basename(path))]);
    await this.#hold(dirname(path), remove).catch(ignoreMissing);
  }

  /** Lists the files of a folder with the rights of `copy`. Throws `command-failed`. */
  async list(folder: string): Promise<{ readonly name: string; readonly size: number; readonly isFile: boolean }[]> {
    const printed = await this.#act(['find', folder, '-mindepth', '1', '-maxdepth', '1', '-printf', '%y %s %f\n']);
    return [...printed.matchAll(/^(\S) (\d+) (.*)$/gm)].map(([, type, size = '0', name = '']) => {
      return { name, size: Number(size), isFile: type === 'f' };
    });
  }

  /** Does what `setAttributes` does for a folder that another user may replace meanwhile. */
  async setFolderAttributes(path: string, owner: string, mode: string): Promise<void> {
    await this.#hold(path, (held) => this.setAttributes(`${held}/.`, owner, mode));
  }

  /** Gives a file an owner and group, as containers see them, and a mode. Throws `command-failed`. */
  async setAttributes(path: string, owner: string, mode: string): Promise<void> {
    const command = 'chown --no-dereference "$1" "$0" && chmod "$2" "$0"';
    await this.#act(['sh', '-c', command, path, owner, mode]);
  }

  /** Gives a file the owner, group and mode of another. Throws `command-failed`. */
  async copyAttributes(from: string, to: string): Promise<void> {
    await this.#act(['sh', '-c', copyAttributes, from, to]);
  }

  /**
   * Runs a program in a folder with the rights of the user in Quay’s container, and returns its output. Throws
   * `command-failed`, `interrupted`, and as `input`.
   */
  runAsQuay(folder: string, words: readonly string[], input?: AsyncIterable<Buffer>): Promise<string> {
    return this.#hold(folder, (held) => this.#act([...asQuay, held, ...words], input));
  }

  /**
   * Runs a program in a folder, which Quay may write but not list, and yields its output. The program must not follow
   * links. Exit codes other than `codes` are errors. Throws `command-failed`, `interrupted`.
   */
  async *readInFolder(path: string, words: readonly string[], codes?: readonly number[]): AsyncGenerator<Buffer> {
    const act = this.scope === 'user' ? [this.#programs.podman, 'unshare'] : [];
    await using folder = this.scope === 'user' ? undefined : await openMachineFolder(path);
    const command = [...act, ...inFolder, folder?.held ?? path, ...words];
    yield* readCommand(command, { environment: this.#environment, signal: this.signal, ownGroup: true }, codes);
  }

  /**
   * Calls `use` with a path of a folder that leads to the same folder until `use` ends, for programs that root runs.
   * Another user may own the folder, and replace it by a link meanwhile.
   */
  async #hold<T>(path: string, use: (held: string) => Promise<T>): Promise<T> {
    if (this.scope === 'user') return use(path);
    await using folder = await openMachineFolder(path);
    return await use(folder.held);
  }

  /** Runs a program as the user that owns the containers. */
  #act(words: readonly [string, ...string[]], input?: AsyncIterable<Buffer>): Promise<string> {
    const [program, ...args] = words;
    return this.scope === 'user' ? this.podman(['unshare', ...words], input) : this.#run(program, args, input);
  }

  get #environment(): NodeJS.ProcessEnv {
    const { environment } = this.#programs;
    // cron and su do not set the runtime folder of the user’s systemd.
    const bus = { XDG_RUNTIME_DIR: `/run/user/${process.getuid?.() ?? 0}` };
    return this.scope === 'user' ? { ...bus, ...environment } : environment;
  }

  async #run(program: string, args: readonly string[], input?: AsyncIterable<Buffer>): Promise<string> {
    return run(program, args, { environment: this.#environment, signal: this.signal, input });
  }
}

/** A command that gives the file `$1` the owner, group and mode of `$0`. */
const copyAttributes = 'chown --reference="$0" "$1" && chmod --reference="$0" "$1"';

/** Words that run a program in a folder. */
const inFolder = ['sh', '-c', 'cd -- "$0" && exec "$@"'] as const;

/**
 * Words that run a program in a folder as the user of Quay’s image, 1001 with the group 0. Quay can plant links in that
 * folder; a program with more rights would follow them.
 */
const asQuay = [
  'sh',
  '-c',
  'cd -- "$0" && exec setpriv --reuid=1001 --regid=0 --clear-groups -- "$@"',
] as const satisfies readonly [string, ...string[]];

async function run(program: string, args: readonly string[], options: RunOptions): Promise<string> {
  const result = await execute(program, args, options);
  if (result.code === 0) return result.stdout;
  throw failureOf(program, args, result);
}

async function execute(program: string, args: readonly string[], options: RunOptions): Promise<ProgramResult> {
  return await runCommand([program, ...args], { ...options, ownGroup: true }).catch((error: unknown) => {
    if (isPluginError(error)) throw error;
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new PluginError('command-failed', `${titleOf(program, args)}: ${messageOf(error)}`, {
      ...(isMissing && { hint: 'Give the path of the program.' }),
      settings: isMissing ? [program.includes('podman') ? 'podman' : 'systemctl'] : [],
      cause: error,
    });
  });
}

/** Returns how an error begins. A script of a shell is no name of a command. */
function titleOf(program: string, args: readonly string[]): string {
  const words = args.slice(0, 2).filter((word) => !word.includes(' '));
  return `${[program, ...words].join(' ')} failed`;
}

function failureOf(program: string, args: readonly string[], { code, stderr }: ProgramResult): PluginError {
  const why = stderr.trim().split('\n').at(-1) || (code === -1 ? 'it was killed' : `exit status ${code}`);
  const cause = stderr === '' ? undefined : new Error(stderr.trim());
  return new PluginError('command-failed', `${titleOf(program, args)}: ${why}`, {
    hint: removalHint(stderr) ?? policyHint(stderr),
    cause,
  });
}

/** Returns what to do if podman 6 refuses something that it has removed, by the words of podman 6.1.1. */
function removalHint(stderr: string): string | undefined {
  return removals.find(([words]) => words.test(stderr))?.[1];
}

const removals: readonly (readonly [words: RegExp, hint: string])[] = [
  [/Cgroups v1 not supported/i, 'podman 6 needs cgroup v2: boot this host with it, or keep podman 5.'],
  [
    /BoltDB database backend was removed/i,
    'Remove database_backend from containers.conf, and restart the host, or run “podman system migrate” to ' +
      'move to SQLite.',
  ],
  [/unsupported network backend "cni"/i, 'Remove network_backend from containers.conf: podman 6 has netavark only.'],
  [/slirp4netns support has been removed/i, 'Use pasta in the unit instead of slirp4netns.'],
];

function policyHint(stderr: string): string | undefined {
  const [, scope] = /docker:\/\/(127\.0\.0\.1:\d+)\S* is rejected by policy/.exec(stderr) ?? [];
  if (scope === undefined) return undefined;
  return (
    'The policy of this host (/etc/containers/policy.json) rejects images without a signature. The images were ' +
    'verified before podman ' +
    `pulls them. Allow it with "transports": {"docker": {"${scope}": [{"type": "insecureAcceptAnything"}]}}.`
  );
}

/** The systemd instance that runs the registry. */
export type Scope = 'system' | 'user';

/** The time for the answer of the host, in milliseconds. */
const limit = 5000;

/**
 * Returns whether the clock of a host is synchronized (NTP), by the kernel as timedatectl tells it. Undefined if the
 * host does not say so within five seconds.
 */
export async function isClockSynchronized(host: Host, context: Context): Promise<boolean | undefined> {
  const args = ['show', '--property=NTPSynchronized', '--value'];
  const ended = AbortSignal.timeout(limit);
  const result = await runProgramWithin(host, 'timedatectl', args, ended, context).catch(ignoreFailure);
  const answer = result?.stdout.trim();
  return answer === 'yes' || answer === 'no' ? answer === 'yes' : undefined;
}

import { AsyncLocalStorage } from 'node:async_hooks';
import childProcess from 'node:child_process';
import { existsSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import fs, { type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';
import { silentChild, spawnLocal } from './localPrograms.ts';

const runs = new AsyncLocalStorage<KilledRun>();

/** Programs that change nothing. */
const readOnly =
  /^(?:podman \w+ (?:inspect|exists)|podman (?:info|ps|exec quay-postgres pg_)|systemctl show|du|sync)\b/;

/**
 * A run of a program in this process that ends as `kill -9` ends a process: from one of its steps on, nothing of it
 * happens. A step renames or removes a file or folder, creates a folder or runs a program, and changes something. Its
 * name is such as `rename config.yaml`, `rm journal.json` or `systemctl stop quay-app.service`.
 */
export class KilledRun {
  #wanted: number | string;
  readonly #ended = Promise.withResolvers<undefined>();
  readonly #handles = new Set<FileHandle>();
  readonly #locks = new Set<string>();
  #count = 0;
  isDead = false;

  /**
   * `wanted` is the number of steps that happen, or the name of the last one; with `before` in front, of the first one
   * that does not happen.
   */
  constructor(wanted: number | string) {
    this.#wanted = wanted;
  }

  /** Runs a program. Returns its result; undefined if it was killed. */
  async run<T>(program: () => Promise<T>): Promise<T | undefined> {
    const result = await Promise.race([runs.run(this, program), this.#ended.promise]);
    if (this.isDead) await this.#release();
    return result;
  }

  /** Counts a step. Returns whether the run has ended. */
  isDeadAt(name: string): boolean {
    this.isDead ||= this.#count === this.#wanted || this.#wanted === `before ${name}`;
    this.#count += 1;
    if (this.#wanted === name) this.#wanted = this.#count;
    if (this.isDead) this.#ended.resolve(undefined);
    return this.isDead;
  }

  /** Notes an open file. */
  hold(handle: FileHandle, path: string): void {
    this.#handles.add(handle);
    // The path may lead through a descriptor that the end closes.
    if (basename(path) === 'lock') this.#locks.add(realpathSync(path));
  }

  /** Does what the kernel does for a process that ended. */
  async #release(): Promise<void> {
    await Promise.all([...this.#handles].map((handle) => handle.close().catch(() => undefined)));
    for (const path of this.#locks) {
      if (!existsSync(path)) continue;
      const lock = JSON.parse(readFileSync(path, 'utf8')) as object;
      writeFileSync(path, JSON.stringify({ ...lock, started: 'in a process that ended' }));
    }
  }
}

const never = new Promise<never>(() => undefined);

async function step(name: string, isChange = true): Promise<void> {
  const run = runs.getStore();
  if (isChange ? run?.isDeadAt(name) : run?.isDead) await never;
}

const { rename, rm, mkdir, open } = fs;
const { spawn } = childProcess;

fs.rename = async (from, to) => {
  await step(`rename ${basename(String(to))}`);
  await rename(from, to);
};
fs.rm = async (path, options) => {
  await step(`rm ${basename(String(path))}`, existsSync(path));
  await rm(path, options);
};
fs.mkdir = (async (path: string, options?: object) => {
  await step(`mkdir ${basename(path)}`, !existsSync(path));
  return mkdir(path, options);
}) as typeof mkdir;
fs.open = async (path, flags, mode) => {
  // What a new file has is a step only when the file gets its name.
  await step('open', false);
  const handle = await open(path, flags, mode);
  runs.getStore()?.hold(handle, String(path));
  return handle;
};
childProcess.spawn = ((command: string, args: string[] = [], options: childProcess.SpawnOptions = {}) => {
  const name = [basename(command), ...args].join(' ');
  if (!readOnly.test(name) && runs.getStore()?.isDeadAt(name)) return silentChild();
  return runs.exit(() => spawnLocal(command, args, options)) ?? spawn(command, args, options);
}) as typeof spawn;
syncBuiltinESMExports();

import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Context } from '#context';
import { ignoring, PluginError } from '#errors';
import { isOlder } from '#release/version';
import { pathOnHost, type Host } from '../machine/host.ts';
import {
  commandOnHost,
  findProgram,
  runCommand,
  runProgram,
  runProgramWithin,
  type ProgramResult,
} from '../machine/programs.ts';
import { readStorageConfig, type StorageConfig, type StorageRules } from '../runtime/storageConfig.ts';
import { copyPrograms, type CopyProgram } from './copyImage.ts';
import { indexFiles, StoreIndex, type ImageStore } from './imageStore.ts';

interface CachedIndex {
  /** Changes with each change of the index files and of their paths. */
  readonly version: string;
  readonly index: StoreIndex;
}

/** The time that programs have to name their store, in milliseconds. */
const answerTime = 30_000;

/** The image storage of a host. Reads storage.conf once, and the index of its store again only if it changed. */
export class HostStorage {
  readonly host: Host;
  readonly config: StorageConfig;
  /** How the program that copies images reads storage.conf. */
  readonly rules: StorageRules;
  #cached: CachedIndex | undefined;
  #podmanStore: readonly string[] | undefined;

  private constructor(host: Host, rules: StorageRules, config: StorageConfig, cached: CachedIndex | undefined) {
    this.host = host;
    this.rules = rules;
    this.config = config;
    this.#cached = cached;
  }

  /**
   * Reads storage.conf as the program that copies images does; `earlier` is a storage of the same host, whose index is
   * kept. Throws `not-readable` and `invalid-file`.
   */
  static async open(host: Host, earlier?: HostStorage): Promise<HostStorage> {
    // Another version of the program comes with another operating system, and another agent.
    const rules = earlier?.rules ?? (await findRules(host));
    return new HostStorage(host, rules, await readStorageConfig(host, rules), earlier ? earlier.#cached : undefined);
  }

  /** The store that the programs of the host use by default. */
  get main(): ImageStore {
    const { driver, graphRoot, runRoot } = this.config;
    return { driver, graphRoot, runRoot };
  }

  /**
   * Returns the options that name the main store to podman: none if podman itself uses it. It may read storage.conf by
   * other rules than the program that copies, such as podman 6 beside skopeo 1.22. Asks podman once.
   */
  async namePodmanStore(context: Context): Promise<readonly string[]> {
    if (this.#podmanStore) return this.#podmanStore;
    const { driver, graphRoot, runRoot, mountProgram } = this.config;
    // With a named store, podman ignores the options of storage.conf, and accepts only short paths.
    const own = await runProgram(this.host, 'podman', ['info', '--format', '{{.Store.GraphRoot}}'], context);
    const isSame = own.code !== 0 || resolve(own.stdout.trim()) === resolve(graphRoot);
    const options = mountProgram === undefined ? [] : ['--storage-opt', `overlay.mount_program=${mountProgram}`];
    const named = ['--root', graphRoot, '--runroot', runRoot, '--storage-driver', driver, ...options];
    return (this.#podmanStore = isSame ? [] : named);
  }

  /** Reads the index of the main store. Throws the errors of StoreIndex.read. */
  async readIndex(): Promise<StoreIndex> {
    // Before the files are read, so that a change meanwhile gives another version the next time.
    const version = (await Promise.all(indexFiles(this.main).map((path) => this.#versionOf(path)))).join();
    if (this.#cached?.version === version) return this.#cached.index;
    const index = await StoreIndex.read(this.host, this.main);
    this.#cached = { version, index };
    return index;
  }

  /** containers/storage replaces its index files, so that each version has another inode. */
  async #versionOf(path: string): Promise<string> {
    const stats = await stat(pathOnHost(this.host, path), { bigint: true }).catch(() => undefined);
    return `${path} ${stats ? `${stats.ino} ${stats.size} ${stats.mtimeNs}` : ''}`;
  }
}

/** Finds how the program that copies images reads storage.conf, by the store that it names. */
async function findRules(host: Host): Promise<StorageRules> {
  const oneFile = await readStorageConfig(host, 'one-file');
  // An invalid drop-in concerns only programs that read it, and they say so.
  const dropIns = await readStorageConfig(host, 'drop-ins').catch(ignoring('invalid-file', 'not-readable'));
  if (!dropIns || isDeepStrictEqual(oneFile, dropIns)) return 'one-file';
  for (const [name, args, version] of storeQuestions) {
    const program = await findProgram(host, name);
    if (program === undefined) continue;
    const options = { environment: host.environment, signal: AbortSignal.timeout(answerTime) };
    const { stdout, stderr } = await runCommand(commandOnHost(host, program, args), options);
    const [, graphRoot] = /\[[a-z0-9]+@([^+\]]+)\+/.exec(`${stdout} ${stderr}`) ?? [];
    const isOnly = oneFile.graphRoot !== dropIns.graphRoot;
    if (isOnly && graphRoot !== undefined) return graphRoot === dropIns.graphRoot ? 'drop-ins' : 'one-file';
    const printed = await runCommand(commandOnHost(host, program, ['-v']), options);
    return isOlder(/\d+\.\d+\.\d+/.exec(printed.stdout)?.[0] ?? '', version) ? 'one-file' : 'drop-ins';
  }
  return 'one-file';
}

/**
 * How to ask a program for its store, which it names as `[driver@graphroot+runroot]`, and its first version with
 * drop-ins.
 */
const storeQuestions: readonly (readonly [CopyProgram, readonly string[], string])[] = [
  // The answer is that there is no such image in the store.
  ['skopeo', ['inspect', 'containers-storage:localhost/oc-upgrade-bundle/none'], '1.23.0'],
  ['podman', ['info', '-f', '[{{.Store.GraphDriverName}}@{{.Store.GraphRoot}}+]'], '6.0.0'],
];

/**
 * Checks that the store to load is the one from which CRI-O starts containers, if the host has a running CRI-O. Throws
 * `unsupported` if it is another one, or if images have a store of their own.
 */
export async function requireRuntimeStore({ host, main, config }: HostStorage, context: Context): Promise<void> {
  if (config.imageStore !== undefined) throw otherStore(`storage.conf has an imagestore (${config.imageStore})`);
  if ((await findProgram(host, 'crio')) === undefined) return;
  const answer = await runProgramWithin(host, 'crio', ['status', 'info'], AbortSignal.timeout(answerTime), context);
  const { code, stdout, stderr } = answer ?? { code: 1, stdout: '', stderr: 'it does not answer' };
  if (code !== 0) {
    context.log('warn', `CRI-O does not say which store it uses, ${main.graphRoot} is loaded: ${stderr.trim()}`);
    return;
  }
  // cri-o, internal/criocli/status.go: “storage graph root” from 1.28 on, “storage root” before.
  const valueOf = (name: RegExp): string => new RegExp(`^storage ${name.source}: *(.*)$`, 'm').exec(stdout)?.[1] ?? '';
  const [root, images] = [valueOf(/(?:graph )?root/), valueOf(/image/)];
  if (images !== '') throw otherStore(`CRI-O has an imagestore (${images})`);
  if (root === '' || resolve(root) === resolve(main.graphRoot)) return;
  throw otherStore(`CRI-O uses ${root}, and ${copyPrograms[0]} would fill ${main.graphRoot}`);
}

/**
 * Runs podman on the main store of a host; undefined if the host has no podman. Throws `interrupted`.
 */
export async function runPodman(
  storage: HostStorage,
  args: readonly string[],
  context: Context,
): Promise<ProgramResult | undefined> {
  if ((await findProgram(storage.host, 'podman')) === undefined) return undefined;
  return runProgram(storage.host, 'podman', [...(await storage.namePodmanStore(context)), ...args], context);
}

function otherStore(why: string): PluginError {
  return new PluginError('unsupported', `images would not be loaded into the store of the node: ${why}`, {
    hint:
      'Set graphroot in /etc/containers/storage.conf, which all versions of the programs read, and no imagestore ' +
      'or other root in storage.conf.d or crio.conf.d.',
  });
}

import { realpath, stat, readFile } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readHolder } from '#content/files';
import type { Context } from '#context';
import { asFailure, isPluginError, messageOf } from '#errors';
import { pathOnHost, type Host, runProgram } from '#node/machine';
import {
  DeviceEvents,
  Media,
  type MediaOptions,
  HungDevices,
  mountLock,
  examineFiles,
  listFiles,
  readHead,
  type Findings,
  type FoundBundle,
  type Rejected,
  type RejectedKind,
  type WrittenReport,
} from '#node/media';

/** The places where an agent searches for bundles. */
export interface AgentMediaOptions extends MediaOptions {
  /** Folders of the host that are searched in addition to the media. */
  readonly folders: readonly string[];
}

/** Why a drive cannot be used; `empty`: it has nothing like a bundle. */
export type UnusableKind = RejectedKind | 'empty';

/** The findings in a folder. They are valid until the folder changes. */
interface Examined {
  readonly fingerprint: string;
  readonly findings: Findings;
}

/**
 * The bundles on the media of a node and in configured folders. None of them is verified. Only the folders are searched
 * if the agent may not mount media.
 */
export class AgentMedia {
  readonly #host: Host;
  readonly #folders: readonly string[];
  readonly #media: Media | undefined;
  readonly #events: DeviceEvents | undefined;
  readonly #context: Context;
  readonly #hung: HungDevices;
  /** By the path of the folder, or of the named device or file. */
  readonly #examined = new Map<string, Examined>();
  #searched: readonly string[] = [];
  /** The named device, if it has neither a bundle nor anything like one. */
  #emptyDevice: string | undefined;
  readonly #warned = new Set<string>();
  /** The empty drives of the first search. */
  #firstEmpty: Set<string> | undefined;

  private constructor(
    { host, folders, deviceTimeout }: AgentMediaOptions,
    media: Media | undefined,
    events: DeviceEvents | undefined,
    context: Context,
  ) {
    this.#host = host;
    this.#folders = folders;
    this.#media = media;
    this.#events = events;
    this.#context = context;
    this.#hung = new HungDevices(deviceTimeout, context);
  }

  /** Prepares the search. Throws `busy` if another process searches. */
  static async open(options: AgentMediaOptions, context: Context): Promise<AgentMedia> {
    await endFormerAgent(options.host, mountLock(options.host, options.place), context);
    const media = await Media.open(options, context).catch((error: unknown) => {
      if (!isPluginError(error) || error.code === 'busy') throw error;
      context.log('warn', `media are not searched: ${error.message}`);
      return undefined;
    });
    const events = media && (await DeviceEvents.open(options.host, context));
    return new AgentMedia(options, media, events, context);
  }

  /**
   * Returns the present bundles on media and in folders, or only those of the named device or file. Throws
   * `interrupted`.
   */
  async find(named?: string): Promise<readonly FoundBundle[]> {
    const device = named === undefined ? undefined : await this.#findDevice(named);
    await this.#updateMedia(device);
    const onDevice = device === undefined ? undefined : this.#media?.findingsOn(device);
    this.#emptyDevice = onDevice?.bundles.length === 0 && onDevice.rejected.length === 0 ? named : undefined;
    if (onDevice) {
      this.#searched = [];
      return onDevice.bundles;
    }
    this.#searched = named === undefined ? this.#folders : [named];
    const bundles = named === undefined ? [...(this.#media?.bundles ?? [])] : [];
    for (const path of this.#searched) {
      const search = (): Promise<void> => (named === undefined ? this.#searchFolder(path) : this.#searchAt(path));
      await this.#hung.attempt(path, search);
      const hung = this.#hung.reasonFor(path);
      if (hung !== undefined) this.#warnOnce(hung);
      bundles.push(...(this.#examined.get(path)?.findings.bundles ?? []));
    }
    return bundles;
  }

  /** Descriptions of files and devices in the last search that look like a bundle but cannot be used. */
  get problems(): readonly string[] {
    const inFolders = this.#searched.flatMap((path) => this.#examined.get(path)?.findings.rejected ?? []);
    const hung = this.#searched.flatMap((path) => this.#hung.reasonFor(path) ?? []);
    const empty =
      this.#emptyDevice === undefined
        ? []
        : [`${this.#emptyDevice} has neither a bundle written to it nor a file upgrade-*.tar in a file system`];
    return [...[...(this.#media?.rejected ?? []), ...inFolders].map(describeProblem), ...hung, ...empty];
  }

  /**
   * The drives of the last search that cannot be used, by a name that stays until they are removed. Drives without
   * anything like a bundle count only if they were inserted since the start.
   */
  get unusable(): ReadonlyMap<string, UnusableKind> {
    const usable = new Set(this.#media?.bundles.map(({ device }) => device));
    const rejected = (this.#media?.rejected ?? []).filter(({ device }) => !usable.has(device));
    const empty = (this.#media?.empty ?? []).filter((drive) => this.#firstEmpty?.has(drive) === false);
    return new Map([
      ...rejected.map(({ device, kind }) => [device, kind] as const),
      ...empty.map((drive) => [drive, 'empty'] as const),
    ]);
  }

  /** Writes a report onto the drive of a found bundle: see Media.writeReport. Undefined for a bundle in a folder. */
  async writeReport(...args: Parameters<Media['writeReport']>): Promise<WrittenReport | undefined> {
    return await this.#media?.writeReport(...args);
  }

  /** Waits for a number of milliseconds, a device event, or the signal. */
  async wait(time: number, signal: AbortSignal): Promise<void> {
    if (this.#events) return this.#events.next(time, signal);
    await sleep(time, undefined, { signal }).catch(() => undefined);
  }

  /** Unmounts all media. */
  async close(): Promise<void> {
    this.#events?.close();
    await this.#media?.close();
  }

  /**
   * Returns the kernel name of a block device in /dev, also by a link to it; undefined for a file and a missing device.
   */
  async #findDevice(named: string): Promise<string | undefined> {
    if (!resolve('/', named).startsWith('/dev/')) return undefined;
    const path = pathOnHost(this.#host, named);
    const stats = await stat(path).catch(() => undefined);
    return stats?.isBlockDevice() === true ? basename(await realpath(path)) : undefined;
  }

  async #updateMedia(named?: string): Promise<void> {
    try {
      for (const event of (await this.#media?.search(named)) ?? []) {
        if (event.event === 'rejected') this.#warnOnce(describeProblem(event));
        if (event.event === 'found') this.#context.log('info', `${event.device} has ${event.version} ${event.arch}`);
        if (event.event === 'removed') this.#context.log('info', `${event.device} was removed`);
      }
      const empty = this.#media?.empty ?? [];
      this.#firstEmpty ??= new Set(empty);
      // A drive that was removed counts when it is inserted again.
      for (const drive of this.#firstEmpty) if (!empty.includes(drive)) this.#firstEmpty.delete(drive);
    } catch (error) {
      this.#warnOnce(`cannot search the media: ${asFailure(error).message}`);
    }
  }

  async #searchFolder(folder: string): Promise<void> {
    const path = pathOnHost(this.#host, folder);
    const files = await listFiles(path).catch((error: unknown) => {
      this.#warnOnce(messageOf(error));
      return new Map<string, string>();
    });
    await this.#examine(folder, path, files.keys(), [...files].join());
  }

  async #searchAt(named: string): Promise<void> {
    const path = pathOnHost(this.#host, named);
    // Devices have links such as /dev/disk/by-label.
    const isInDev = resolve('/', named).startsWith('/dev/');
    const stats = await stat(path).catch(() => undefined);
    if (!stats) {
      this.#examined.delete(named);
      return;
    }
    const isDevice = isInDev && stats.isBlockDevice();
    // In another process, before this one reads the device.
    if (isDevice) await readHead(this.#host, named, this.#context);
    const fingerprint = `${stats.size} ${stats.mtimeMs}`;
    await this.#examine(named, dirname(path), [basename(path)], fingerprint, isDevice ? path : dirname(path));
  }

  /** Examines the files of a folder, and keeps the findings by the searched path. */
  async #examine(
    searched: string,
    folder: string,
    names: Iterable<string>,
    fingerprint: string,
    device = folder,
  ): Promise<void> {
    if (this.#examined.get(searched)?.fingerprint === fingerprint) return;
    const findings = await examineFiles(folder, names, { device }, this.#context);
    for (const rejected of findings.rejected) this.#warnOnce(describeProblem(rejected));
    // A file that is still being written changes, and is examined again.
    this.#examined.set(searched, { fingerprint, findings });
  }

  /** Logs each message once. */
  #warnOnce(words: string): void {
    if (!this.#warned.has(words)) this.#context.log('warn', words);
    this.#warned.add(words);
  }
}

function describeProblem({ device, path, reason }: Rejected): string {
  return reason.includes(path) ? reason : `${path === device ? path : `${path} on ${device}`}: ${reason}`;
}

/** The time for an agent to end before it is killed, in milliseconds. */
const gracePeriod = 10_000;
const interval = 100;

/**
 * Ends the agent that holds a lock, if it runs the same command as this process. After a wipe of its storage, a
 * container runtime no longer knows the running containers and starts another agent, so the former one is an orphan.
 * Leaves other programs alone. `own` are the words of this process up to its command.
 */
export async function endFormerAgent(
  host: Host,
  lock: string,
  context: Context,
  own?: readonly string[],
): Promise<void> {
  const pid = await readHolder(lock);
  if (pid === undefined || pid === process.pid) return;
  const words = own ?? agentCommand(await readWords('self'));
  const theirs = await readWords(pid);
  if (words.length === 0 || !words.every((word, position) => theirs[position] === word)) return;
  context.log('warn', `another agent runs on this node, as process ${pid}: stopping it, because this one replaces it`);
  await runProgram(host, 'kill', ['-TERM', String(pid)], context);
  for (let waited = 0; waited < gracePeriod && (await isHolder(lock, pid)); waited += interval) await sleep(interval);
  if (await isHolder(lock, pid)) await runProgram(host, 'kill', ['-KILL', String(pid)], context);
  while (await isHolder(lock, pid)) await sleep(interval);
}

async function isHolder(lock: string, pid: number): Promise<boolean> {
  return (await readHolder(lock)) === pid;
}

/** Returns the words of a command line up to the name of this command; none if it is another command. */
function agentCommand(words: readonly string[]): readonly string[] {
  return words.slice(0, words.indexOf('agent') + 1);
}

async function readWords(process: number | 'self'): Promise<readonly string[]> {
  return (await readFile(`/proc/${process}/cmdline`, 'utf8').catch(() => '')).split('\0');
}

import { lstat, stat } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { DeviceEvents } from '../../node/media/deviceEvents.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { Media, type MediaOptions } from '../../node/media/media.ts';
import { examineFiles, listFiles, type Findings, type FoundBundle, type Rejected } from '../../node/media/medium.ts';

/** Where an agent looks for bundles. */
export interface AgentMediaOptions extends MediaOptions {
  /** Folders of the host, besides the media. */
  readonly folders: readonly string[];
}

/** What was found in a folder, until something in it changes. */
interface Examined {
  readonly fingerprint: string;
  readonly findings: Findings;
}

/**
 * The bundles that a node can read: on its media, and in folders that somebody named. Nothing in them has been verified. Where
 * nothing may be mounted, the folders are all there is.
 */
export class AgentMedia {
  readonly #host: Host;
  readonly #folders: readonly string[];
  readonly #media: Media | undefined;
  readonly #events: DeviceEvents | undefined;
  readonly #context: Context;
  readonly #examined = new Map<string, Examined>();
  readonly #told = new Set<string>();

  private constructor(
    { host, folders }: AgentMediaOptions,
    media: Media | undefined,
    events: DeviceEvents | undefined,
    context: Context,
  ) {
    this.#host = host;
    this.#folders = folders;
    this.#media = media;
    this.#events = events;
    this.#context = context;
  }

  /** Gets ready to look. Throws `busy` where another run does. */
  static async open(options: AgentMediaOptions, context: Context): Promise<AgentMedia> {
    const media = await Media.open(options, context).catch((error: unknown) => {
      if (!isPluginError(error) || error.code === 'interrupted' || error.code === 'busy') throw error;
      context.log('warn', `media are not looked at: ${error.message}`);
      return undefined;
    });
    const events = media && (await DeviceEvents.open(options.host, context));
    return new AgentMedia(options, media, events, context);
  }

  /**
   * Looks once and gives what is there now: on media and in the folders, or, where a device or a file is named, only that. Throws
   * `interrupted`.
   */
  async look(named?: string): Promise<readonly FoundBundle[]> {
    await this.#lookAtMedia();
    if (named !== undefined) return this.#lookAtPath(named);
    const places = await Promise.all(
      this.#folders.map(async (folder) => {
        const path = pathOnHost(this.#host, folder);
        const files = await listFiles(path).catch((error: unknown) => {
          this.#tell(messageOf(error));
          return new Map<string, string>();
        });
        return this.#examine(path, files.keys(), [...files].join());
      }),
    );
    return [...(this.#media?.bundles ?? []), ...places.flat()];
  }

  /** What the last look found that looks like a bundle and cannot be used, and why. */
  get complaints(): readonly string[] {
    const inFolders = [...this.#examined.values()].flatMap(({ findings }) => findings.rejected);
    return [...(this.#media?.rejected ?? []), ...inFolders].map(complain);
  }

  /** Waits so many milliseconds, or until a device comes or goes, or the signal ends it. */
  async wait(patience: number, signal: AbortSignal): Promise<void> {
    if (this.#events) return this.#events.next(patience, signal);
    await sleep(patience, undefined, { signal }).catch(() => undefined);
  }

  /** Releases everything that was mounted. */
  async close(): Promise<void> {
    this.#events?.close();
    await this.#media?.close();
  }

  async #lookAtMedia(): Promise<void> {
    try {
      for (const event of (await this.#media?.look()) ?? []) {
        if (event.event === 'rejected') this.#tell(complain(event));
        if (event.event === 'found') this.#context.log('info', `${event.device} has ${event.version} ${event.arch}`);
        if (event.event === 'removed') this.#context.log('info', `${event.device} is gone`);
      }
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      this.#tell(`media cannot be looked at: ${error.message}`);
    }
  }

  async #lookAtPath(named: string): Promise<readonly FoundBundle[]> {
    const path = pathOnHost(this.#host, named);
    // Devices have links such as /dev/disk/by-label; files of a medium may have links to anything.
    const isInDev = resolve('/', named).startsWith('/dev/');
    const found = await (isInDev ? stat : lstat)(path).catch(() => undefined);
    if (!found) return [];
    const device = isInDev && found.isBlockDevice() ? path : dirname(path);
    const fingerprint = `${named} ${found.size} ${found.mtimeMs}`;
    return this.#examine(dirname(path), [basename(path)], fingerprint, device);
  }

  async #examine(
    folder: string,
    names: Iterable<string>,
    fingerprint: string,
    device = folder,
  ): Promise<readonly FoundBundle[]> {
    const known = this.#examined.get(folder);
    if (known?.fingerprint === fingerprint) return known.findings.bundles;
    const findings = await examineFiles(folder, names, { device }, this.#context);
    for (const rejected of findings.rejected) this.#tell(complain(rejected));
    // What is still being copied changes, and is looked at again.
    this.#examined.set(folder, { fingerprint, findings });
    return findings.bundles;
  }

  /** Says something once. */
  #tell(words: string): void {
    if (!this.#told.has(words)) this.#context.log('warn', words);
    this.#told.add(words);
  }
}

function complain({ device, path, reason }: Rejected): string {
  return reason.includes(path) ? reason : `${path === device ? path : `${path} on ${device}`}: ${reason}`;
}

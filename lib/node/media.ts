/** Removable media: finding, mounting and writing them. */

import { spawn, type ChildProcess } from 'node:child_process';
import { realpath } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf } from '#content/oci';
import type { Context } from '#context';
import { hintOf, isPluginError, messageOf, PluginError } from '#errors';
import { pathOnHost, type Host } from './machine/host.ts';
import { commandOnHost, findProgram } from './machine/programs.ts';
import {
  classifyDevice,
  isOpen,
  type BlockDevice,
  type CandidateDevice,
  type Probe,
  listDevices,
  probeDevice,
  HungDevices,
} from './media/blockDevices.ts';
import {
  examineFiles,
  examineTar,
  listFiles,
  listMisplaced,
  readHead,
  readSequence,
  readWrites,
  type Findings,
  type FoundBundle,
  type Rejected,
  withoutBases,
} from './media/medium.ts';
import { PrivateMounts } from './media/privateMounts.ts';
import type { Region, StoredReport } from './media/reportRegion.ts';
import { findReportPartition, writeAfterBundle, writeToPartition, type WrittenReport } from './media/reportWriter.ts';

export { HungDevices, firstEntryOf } from './media/blockDevices.ts';
export { checkDevice, writeDevice } from './media/deviceWriter.ts';
export {
  examineFiles,
  identityOf,
  isFileOn,
  listFiles,
  readHead,
  withoutBases,
  type Findings,
  type FoundBundle,
  type Rejected,
  type RejectedKind,
} from './media/medium.ts';
export { mountLock } from './media/privateMounts.ts';
export { isRegion, readReports, reportRegionOf, scanReports, type Region } from './media/reportRegion.ts';
export { reportFile, type WrittenReport } from './media/reportWriter.ts';

/** A change of the media of a machine. */
export type MediaEvent =
  | ({ readonly event: 'found' | 'removed' } & FoundBundle)
  | ({ readonly event: 'rejected' } & Rejected)
  /** Several different bundles are present, so none is chosen. */
  | { readonly event: 'conflict'; readonly paths: readonly string[] };

/** The devices to search, and the folder for mounts. */
export interface MediaOptions {
  readonly host: Host;
  /** A folder of the host, which is created. */
  readonly place: string;
  /** Devices to search even if they are not removable, in use, or read over a network. */
  readonly devices: readonly string[];
  /** The time to wait for each device, in milliseconds. */
  readonly deviceTimeout?: number;
}

interface Medium {
  readonly device: BlockDevice;
  /** A text that changes with the medium. */
  readonly fingerprint: string;
  /** Whether this program mounted the medium. */
  readonly isMounted: boolean;
  readonly findings: Findings;
}

type Standing = ({ readonly event: 'found' } & FoundBundle) | ({ readonly event: 'rejected' } & Rejected);

/** The unit of the numbers of written sectors in sysfs, in bytes. */
const sectorSize = 512;

const nothing: Findings = { bundles: [], rejected: [] };

/**
 * Finds bundles on USB drives, discs and disks: on the device itself, or as files on file systems that are removable or
 * have a label of this program. Mounts them read-only, and unmounts them if they have no bundle or are removed. Runs no
 * program on them, and follows no link.
 */
export class Media {
  readonly #options: MediaOptions;
  readonly #mounts: PrivateMounts;
  readonly #context: Context;
  readonly #hung: HungDevices;
  readonly #known = new Map<string, Medium>();
  /** The devices of the last search. */
  #searched: readonly string[] = [];
  /** The findings at the end of the last search. */
  #reported: ReadonlyMap<string, Standing> = new Map();
  #conflict = '';
  /** The kernel name of a device that is searched as if the options named it. */
  #named: string | undefined;
  /** The kernel names of the devices that the options name, also by links such as /dev/disk/by-id. */
  #chosen: readonly string[] = [];

  private constructor(options: MediaOptions, mounts: PrivateMounts, context: Context) {
    this.#options = options;
    this.#mounts = mounts;
    this.#context = context;
    this.#hung = new HungDevices(options.deviceTimeout, context);
  }

  /** Prepares the search. Throws `busy` if another run searches, and `not-writable` if the user may not mount. */
  static async open(options: MediaOptions, context: Context): Promise<Media> {
    return new Media(options, await PrivateMounts.open(options.host, options.place, context), context);
  }

  /** The bundles of the last search. Files can be read until their medium is removed, or this object is closed. */
  get bundles(): FoundBundle[] {
    return [...this.#known.values()].flatMap(({ findings }) => findings.bundles);
  }

  /** Files and devices of the last search that look like a bundle but cannot be used. */
  get rejected(): Rejected[] {
    const hung = this.#searched.flatMap((path): Rejected[] => {
      const reason = this.#hung.reasonFor(path);
      return reason === undefined ? [] : [{ kind: 'silent', device: path, path, reason, hint: undefined }];
    });
    return [...this.#known.values()].flatMap(({ findings }) => findings.rejected).concat(hung);
  }

  /**
   * The kernel names of removable drives of the last search that have neither a bundle nor anything like one, on none
   * of their partitions.
   */
  get empty(): string[] {
    const parts = [...this.#known.values()].filter(({ device }) => device.removable && device.mountpoint === undefined);
    const drives = Map.groupBy(parts, ({ device }) => device.above.at(-1) ?? device.kernelName);
    return [...drives].flatMap(([drive, own]) => {
      const isEmpty = own.every(({ findings: { bundles, rejected } }) => bundles.length + rejected.length === 0);
      return isEmpty ? [drive] : [];
    });
  }

  /**
   * Returns the findings on a device by its kernel name, and on its partitions; undefined if none of them is searched.
   */
  findingsOn(kernelName: string): Findings | undefined {
    const own = [...this.#known.values()].filter(({ device }) => isPartOf(device, kernelName));
    if (own.length === 0) return undefined;
    return {
      bundles: own.flatMap(({ findings }) => findings.bundles),
      rejected: own.flatMap(({ findings }) => findings.rejected),
    };
  }

  /**
   * Searches all devices, and returns the changes since the last search. `named` is the kernel name of a further device
   * to search, which may have any file system. Skips a device that does not answer; a later
   * search reports its bundles. Throws `not-found` without lsblk, and `interrupted`.
   */
  async search(named?: string): Promise<MediaEvent[]> {
    this.#named = named;
    const { host, devices: chosen } = this.#options;
    this.#chosen = await Promise.all(
      chosen.map(async (path) => basename(await realpath(pathOnHost(host, path)).catch(() => path))),
    );
    const devices = (await this.#list()).filter((device) => isOpen(device, this.#isNamed(device)));
    this.#searched = devices.map(({ path }) => path);
    const gone = [...this.#known.values()].filter(({ device }) => !this.#searched.includes(device.path));
    for (const medium of gone) await this.#forget(medium);
    for (const device of devices) await this.#hung.attempt(device.path, () => this.#searchDevice(device));
    const before = this.#reported;
    const after = this.#all();
    this.#reported = after;
    return [
      ...[...before].flatMap(([key, event]) =>
        event.event === 'found' && !after.has(key) ? [{ ...event, event: 'removed' } satisfies MediaEvent] : [],
      ),
      ...[...after].flatMap(([key, event]) => (before.has(key) ? [] : [event])),
      ...this.#compare(),
    ];
  }

  /** Searches again after each device event, and periodically, until the signal is aborted. */
  async watch(interval: number, onEvent: (event: MediaEvent) => void): Promise<void> {
    const events = await DeviceEvents.open(this.#options.host, this.#context);
    try {
      while (!this.#context.signal.aborted) {
        for (const event of await this.search()) onEvent(event);
        await events.next(interval, this.#context.signal);
      }
    } catch (error) {
      if (!isPluginError(error, 'interrupted')) throw error;
    } finally {
      events.close();
    }
  }

  /** Unmounts all media. */
  close(): Promise<void> {
    return this.#mounts.close();
  }

  async #list(): Promise<BlockDevice[]> {
    const devices = await listDevices(this.#options.host, this.#context);
    // Mounts of this program do not count as use.
    return devices.map((device) =>
      this.#known.get(device.path)?.isMounted ? { ...device, mountpoint: undefined } : device,
    );
  }

  async #searchDevice(device: BlockDevice): Promise<void> {
    const medium = this.#known.get(device.path);
    const { host } = this.#options;
    const head = await readHead(host, device.path, this.#context);
    const probe = await probeDevice(host, device.path, this.#context);
    const candidate = classifyDevice(device, head, probe, this.#isNamed(device));
    const fingerprint = await this.#fingerprintOf(device, candidate.kind, probe, head);
    const folder = this.#folderOf(device, medium);
    const files = folder === undefined ? undefined : await listFiles(folder).catch(() => undefined);
    const changed = [fingerprint, ...(files ?? [])].join();
    if (medium?.fingerprint === changed && (folder === undefined || files)) return;
    if (medium) await this.#forget(medium);
    await this.#examine(device, candidate, fingerprint);
  }

  /** Returns a text that changes with the medium in a drive. */
  async #fingerprintOf(
    device: BlockDevice,
    kind: CandidateDevice['kind'],
    probe: Probe,
    head: Buffer,
  ): Promise<string> {
    const sys = pathOnHost(this.#options.host, '/sys');
    const sequence = await readSequence(device, sys);
    // A program may still write a tar to the device. An unreadable device is not read again.
    const writes = kind === 'tar' ? await readWrites(device, sys) : '';
    const { size, mountpoint } = device;
    return JSON.stringify([this.#isNamed(device), size, sequence, writes, mountpoint, probe, digestOf(head)]);
  }

  /**
   * Writes a report onto the drive of a found bundle: into the partition for reports, or else into the region after a
   * bundle on the device itself. Returns undefined if the drive has neither, or does not answer in time.
   * Never opens the part with the bundle for writing. Throws `not-writable`, `disk-full` and `not-readable`.
   */
  async writeReport(
    { path, device: found }: FoundBundle,
    report: Pick<StoredReport, 'name' | 'content'>,
    region: Region | undefined,
  ): Promise<WrittenReport | undefined> {
    const { host } = this.#options;
    const medium = this.#known.get(found);
    // Disks that are built in hold no report, even if they were named.
    if (!medium?.device.removable || medium.device.remote) return undefined;
    const { device } = medium;
    const onDevice = path === pathOnHost(host, found);
    const print = async (): Promise<string> => {
      const head = await readHead(host, found, this.#context);
      const probe = await probeDevice(host, found, this.#context);
      return await this.#fingerprintOf(device, onDevice ? 'tar' : 'filesystem', probe, head);
    };
    const write = async (): Promise<WrittenReport | undefined> => {
      const before = await print();
      // Another drive, or one that changes: the next search examines it.
      if (!medium.fingerprint.startsWith(before)) return undefined;
      const confirm = async (): Promise<void> => {
        if ((await print()) === before) return;
        throw new PluginError('conflict', `${found} is another drive than before: nothing is written to it`);
      };
      const partition = await findReportPartition(host, device, this.#context);
      if (partition) return await writeToPartition(host, this.#mounts, partition, report, confirm, this.#context);
      if (!onDevice || !region) return undefined;
      const sys = pathOnHost(host, '/sys');
      const sectors = Number(await readWrites(device, sys));
      const written = await writeAfterBundle(host, device, region, report, confirm, this.#context);
      const more = Number(await readWrites(device, sys)) - sectors;
      // If only these bytes were written, the examined bundle has not changed.
      if (more === written.bytes / sectorSize) this.#known.set(found, { ...medium, fingerprint: await print() });
      return written;
    };
    return await this.#hung.attempt(found, write);
  }

  async #examine(device: BlockDevice, candidate: CandidateDevice, fingerprint: string): Promise<void> {
    const place = { device: device.path, ...(candidate.kind === 'filesystem' && candidate) };
    const keep = (findings: Findings, isMounted = false, files: Iterable<unknown> = []): void => {
      const print = [fingerprint, ...files].join();
      this.#known.set(device.path, { device, fingerprint: print, isMounted, findings });
    };
    if (candidate.kind === 'tar') {
      const path = pathOnHost(this.#options.host, device.path);
      keep(await examineTar(path, candidate.firstEntry, place, this.#context));
    } else if (candidate.kind === 'nothing') {
      keep(candidate.reason === undefined ? nothing : reject(device, candidate.reason));
    } else {
      const isOurs = device.mountpoint === undefined;
      try {
        const folder = isOurs
          ? await this.#mounts.mount(device.path, device.kernelName, candidate.filesystem)
          : (this.#folderOf(device, undefined) ?? '');
        const files = await listFiles(folder);
        const found = await examineFiles(folder, files.keys(), place, this.#context);
        const misplaced = found.bundles.length > 0 ? [] : await listMisplaced(folder, device.path);
        const findings = { ...found, rejected: [...found.rejected, ...misplaced] };
        const isUsed = findings.bundles.length > 0;
        if (isOurs && !isUsed) await this.#mounts.release(device.kernelName);
        keep(findings, isOurs && isUsed, isUsed || !isOurs ? files : []);
      } catch (error) {
        if (isPluginError(error, 'interrupted')) throw error;
        if (isOurs) await this.#mounts.release(device.kernelName);
        keep(reject(device, messageOf(error), hintOf(error)));
      }
    }
  }

  /** Returns the mount point of a device for this process, also of a mount by another program. */
  #folderOf({ mountpoint }: BlockDevice, medium: Medium | undefined): string | undefined {
    if (medium?.isMounted) return this.#mounts.pathOf(medium.device.kernelName);
    return mountpoint === undefined ? undefined : pathOnHost(this.#options.host, mountpoint);
  }

  async #forget(medium: Medium): Promise<void> {
    this.#known.delete(medium.device.path);
    if (!medium.isMounted) return;
    const { kernelName } = medium.device;
    await this.#hung.attempt(this.#mounts.pathOf(kernelName), () => this.#mounts.release(kernelName));
  }

  #isNamed(device: BlockDevice): boolean {
    const names = [...this.#chosen, ...(this.#named === undefined ? [] : [this.#named])];
    return names.some((name) => isPartOf(device, name)) || this.#options.devices.includes(device.path);
  }

  #all(): Map<string, Standing> {
    const events: Standing[] = [
      ...this.bundles.map((bundle): Standing => ({ event: 'found', ...bundle })),
      ...this.rejected.map((each): Standing => ({ event: 'rejected', ...each })),
    ];
    return new Map(events.map((event) => [JSON.stringify(event), event]));
  }

  #compare(): MediaEvent[] {
    const bundles = withoutBases(this.bundles);
    const identities = [...new Set(bundles.map(({ identity }) => identity))].sort().join();
    const isConflict = identities.includes(',') && identities !== this.#conflict;
    this.#conflict = identities;
    return isConflict ? [{ event: 'conflict', paths: bundles.map(({ path }) => path) }] : [];
  }
}

/** Returns whether a device is the one with a kernel name, a partition of it (`sdb1`, `nvme0n1p1`), or built on it. */
function isPartOf({ kernelName, above }: BlockDevice, name: string): boolean {
  return above.includes(name) || (kernelName.startsWith(name) && /^(?:p?\d+)?$/.test(kernelName.slice(name.length)));
}

function reject({ path }: BlockDevice, reason: string, hint?: string): Findings {
  return { bundles: [], rejected: [{ kind: 'filesystem', device: path, path, reason, hint }] };
}

/** The pause in which further events follow an event, from the partitions and from udev, in milliseconds. */
const quiet = 300;
/** The number of such pauses after which a search starts even if events continue. */
const most = 5;

/**
 * Listens for block devices that appear, change and disappear. Includes events of the kernel, because events of udev do
 * not reach each container. The caller then searches the devices.
 */
export class DeviceEvents {
  readonly #child: ChildProcess | undefined;
  #pending = false;
  #wake: () => void = () => undefined;

  private constructor(child: ChildProcess | undefined) {
    this.#child = child;
    child?.stdout?.on('data', (chunk: Buffer) => {
      if (!/^(?:KERNEL|UDEV)\s*\[/m.test(chunk.toString())) return;
      this.#pending = true;
      this.#wake();
    });
  }

  /** Starts to listen. Without udevadm there are no events, only periodic searches. */
  static async open(host: Host, context: Context): Promise<DeviceEvents> {
    const program = await findProgram(host, 'udevadm');
    if (program === undefined) {
      context.log('debug', 'udevadm is missing: devices are checked periodically');
      return new DeviceEvents(undefined);
    }
    const args = ['monitor', '--kernel', '--udev', '--subsystem-match=block'];
    const [command, ...rest] = commandOnHost(host, program, args);
    const child = spawn(command, rest, { stdio: ['ignore', 'pipe', 'ignore'], env: { ...host.environment } });
    child.once('error', (error) => {
      context.log('debug', `udevadm cannot be run: ${error.message}`);
    });
    child.once('exit', () => {
      context.log('debug', 'udevadm has ended: devices are checked periodically');
    });
    return new DeviceEvents(child);
  }

  /**
   * Waits for an event, for at most a number of milliseconds, and then until no event follows for a short time. Ends
   * early if the signal is aborted.
   */
  async next(timeout: number, signal: AbortSignal): Promise<void> {
    if (!this.#pending) await this.#wait(timeout, signal);
    for (let round = 0; this.#pending && round < most && !signal.aborted; round += 1) {
      this.#pending = false;
      await sleep(quiet, undefined, { signal }).catch(() => undefined);
    }
  }

  close(): void {
    this.#child?.removeAllListeners('exit').kill();
  }

  async #wait(timeout: number, signal: AbortSignal): Promise<void> {
    const done = new AbortController();
    this.#wake = () => {
      done.abort();
    };
    await sleep(timeout, undefined, { signal: AbortSignal.any([signal, done.signal]) }).catch(() => undefined);
    this.#wake = () => undefined;
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import { parseJson } from '#content/oci';
import { type Context, checkInterrupted } from '#context';
import { messageOf, PluginError } from '#errors';
import { fieldsOf, listOf, textOf, type Fields } from '#fields';
import type { Host } from '../machine/host.ts';
import { runProgram } from '../machine/programs.ts';

/** A disk, a partition or a drive of this machine. */
export interface BlockDevice {
  readonly path: string;
  /** The name in the kernel: `sdb1`. */
  readonly kernelName: string;
  /** `disk`, `part`, `rom`, `loop`, `crypt`, `lvm`, `mpath`, and so on; lsblk does not know each. */
  readonly type: string;
  /** The names in the kernel of the devices that it is a partition of, or is built on. */
  readonly above: readonly string[];
  /** Whether the device is removable: a USB drive, a card, a disc, a USB disk. */
  readonly removable: boolean;
  /** The size in bytes. */
  readonly size: number;
  /** One of its mount points; undefined if it is not mounted. */
  readonly mountpoint: string | undefined;
  /** Whether it, a partition of it or a device that is built on it is mounted or is swap space. */
  readonly inUse: boolean;
  /** Whether it has partitions, or another device is built on it. */
  readonly divided: boolean;
  /** Whether it is read over a network, so that a read may never end. */
  readonly remote: boolean;
}

/** The signatures of file systems on a device, as blkid reads them. */
export interface Probe {
  readonly filesystem?: string;
  /** Whether it has signatures of several kinds, of which the kernel mounts one. */
  readonly isAmbivalent?: boolean;
  readonly label?: string;
}

/**
 * The possible content of a device: a tar from its first byte, a file system to search, or nothing, with the reason.
 */
export type CandidateDevice =
  | { readonly kind: 'tar'; readonly firstEntry: string }
  | { readonly kind: 'filesystem'; readonly filesystem: string; readonly label: string | undefined }
  | { readonly kind: 'nothing'; readonly reason?: string };

/** The columns that parseBlockDevices reads. lsblk has all of them since 2.23. */
const deviceColumns = 'NAME,KNAME,TYPE,RM,HOTPLUG,SIZE,TRAN,MOUNTPOINT';

/** File systems of USB drives and discs, with the mount options that prevent writing. */
export const mountOptions: Readonly<Record<string, readonly string[]>> = {
  vfat: [],
  exfat: [],
  iso9660: [],
  udf: [],
  // A file system can ask the kernel to stop the machine at its first fault (errors=panic), also if it is only read.
  ext2: ['errors=continue'],
  // Without noload, the kernel would replay the journal.
  ext3: ['noload', 'errors=continue'],
  ext4: ['noload', 'errors=continue'],
  // A copy of a USB drive has the same UUID.
  xfs: ['norecovery', 'nouuid'],
};

/** The name of a file system that only the kernel can tell, by mounting it. */
export const anyFilesystem = 'any';

const labels = /^(?:OCPUPG|upgrade_)/;

/** Transports of lsblk, and names of the kernel, of disks that are read over a network. */
const remoteTransports = /^(?:iscsi|fc|fcoe|tcp|rdma)$/;
const remoteNames = /^(?:nbd|rbd|drbd)\d/;

/**
 * Parses the output of `lsblk --json --bytes --paths --output` with `deviceColumns`. Throws a SyntaxError if it is not
 * JSON.
 */
export function parseBlockDevices(json: string): BlockDevice[] {
  const devices = new Map<string, BlockDevice>();
  // lsblk lists a device below each disk that it is built on.
  for (const device of listOf(fieldsOf(parseJson(json))['blockdevices']).flatMap((listed) => readDevice(listed)))
    devices.set(device.path, { ...device, above: [...(devices.get(device.path)?.above ?? []), ...device.above] });
  return [...devices.values()];
}

function readDevice(listed: Fields, parent?: BlockDevice): BlockDevice[] {
  const children = listOf(listed['children']);
  const type = textOf(listed['type']) ?? '';
  const path = textOf(listed['name']) ?? '';
  const kernelName = (textOf(listed['kname']) ?? path).replace(/^.*\//, '');
  const transport = textOf(listed['tran']) ?? '';
  const removable = isSet(listed['rm']) || isSet(listed['hotplug']) || type === 'rom' || transport === 'usb';
  const device: BlockDevice = {
    path,
    kernelName,
    type,
    above: parent ? [parent.kernelName, ...parent.above] : [],
    // lsblk states it for the whole disk only.
    removable: removable || parent?.removable === true,
    size: Number(listed['size'] ?? 0),
    mountpoint: textOf(listed['mountpoint']),
    inUse: isInUse(listed),
    divided: children.length > 0,
    remote: remoteTransports.test(transport) || remoteNames.test(kernelName) || parent?.remote === true,
  };
  return [device, ...children.flatMap((child) => readDevice(child, device))];
}

function isInUse(listed: Fields): boolean {
  return textOf(listed['mountpoint']) !== undefined || listOf(listed['children']).some(isInUse);
}

/** Parses the output of `blkid --probe --output export`; empty for a device without signatures. */
export function parseProbe(output: string): Probe {
  const fields = new Map<string, string>();
  for (const line of output.split('\n')) {
    const [, name = '', value = ''] = /^([A-Z_]+)=(.*)$/.exec(line) ?? [];
    fields.set(name, value.replace(/\\(.)/g, '$1'));
  }
  const filesystem = fields.get('TYPE');
  // The label is user input.
  const label = fields
    .get('LABEL')
    ?.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\u{fffd}')
    .slice(0, 64);
  return { ...(filesystem !== undefined && { filesystem }), ...(label !== undefined && { label }) };
}

/**
 * Returns the name of the first entry if a device starts with a tar (POSIX.1-1988, ustar). `head` is its first 512
 * bytes or more.
 */
export function firstEntryOf(head: Buffer): string | undefined {
  if (head.length < 512 || head.toString('latin1', 257, 262) !== 'ustar') return undefined;
  const name = head.toString('utf8', 0, 100);
  return name.replace(/\0.*$/s, '').replace(/\p{Cc}/gu, '\u{fffd}');
}

/**
 * The types of devices that are read without a name; others are read if they are removable, such as an opened LUKS
 * drive.
 */
const usualTypes = ['disk', 'part', 'rom', 'loop'];

/**
 * Returns whether a device may be read. A device that another program uses, or that is read over a network, may be read
 * only if it was named.
 */
export function isOpen({ type, size, divided, mountpoint, removable, remote }: BlockDevice, named: boolean): boolean {
  if (size === 0 || divided || mountpoint === '[SWAP]') return false;
  if (!usualTypes.includes(type) && !removable && !named) return false;
  // A USB drive that the administrator has mounted is searched at its mount point.
  const isUsed = mountpoint !== undefined && !removable;
  return named || !(isUsed || remote);
}

/**
 * Returns the possible content of a device. A tar counts on each device, even before an older file system. A file
 * system counts if it is removable, has a label of this program (`OCPUPG…`, `upgrade_…`), or was named.
 */
export function classifyDevice(
  { removable, mountpoint }: BlockDevice,
  head: Buffer,
  { filesystem, label, isAmbivalent = false }: Probe,
  named: boolean,
): CandidateDevice {
  const firstEntry = mountpoint === undefined ? firstEntryOf(head) : undefined;
  if (firstEntry !== undefined) return { kind: 'tar', firstEntry };
  if (isAmbivalent && (removable || named)) return { kind: 'filesystem', filesystem: anyFilesystem, label };
  if (filesystem === undefined || !(removable || named || labels.test(label ?? ''))) return { kind: 'nothing' };
  if (Object.hasOwn(mountOptions, filesystem)) return { kind: 'filesystem', filesystem, label };
  const supportedFilesystems = Object.keys(mountOptions).join(', ');
  return { kind: 'nothing', reason: `it has ${filesystem}, and bundles are read from ${supportedFilesystems}` };
}

// Older versions write "0" and "1".
function isSet(value: unknown): boolean {
  return value === true || value === '1' || value === 1;
}

/** Lists the block devices of a host, with lsblk. Throws `not-found` without lsblk, and `not-readable`. */
export async function listDevices(host: Host, context: Context): Promise<BlockDevice[]> {
  const args = ['--json', '--bytes', '--paths', '--output', deviceColumns];
  const { code, stdout, stderr } = await runProgram(host, 'lsblk', args, context);
  // Without any device, older versions print nothing.
  if (code !== 0 && stderr !== '') throw new PluginError('not-readable', `lsblk failed: ${stderr.trim()}`);
  try {
    return stdout.trim() === '' ? [] : parseBlockDevices(stdout);
  } catch (cause) {
    throw new PluginError('not-readable', `cannot parse the output of lsblk: ${messageOf(cause)}`, { cause });
  }
}

/** The exit code of blkid for a device with signatures of several kinds (blkid(8)). */
const ambivalent = 8;

/** Returns the file system of a device and its label, by blkid. Throws `not-found` without blkid. */
export async function probeDevice(host: Host, path: string, context: Context): Promise<Probe> {
  const { code, stdout } = await runProgram(host, 'blkid', ['--probe', '--output', 'export', path], context);
  return { ...parseProbe(stdout), ...(code === ambivalent && { isAmbivalent: true }) };
}

/** Drops what the kernel holds of a device in memory, so that the device itself is read. Throws `not-readable`. */
export async function dropCache(host: Host, path: string, context: Context): Promise<void> {
  const { code, stderr } = await runProgram(host, 'blockdev', ['--flushbufs', path], context);
  if (code !== 0) throw new PluginError('not-readable', `the cache of ${path} cannot be dropped: ${stderr.trim()}`);
}

/** The time to wait for a device, in milliseconds. A disc needs seconds to start. */
const defaultLimit = 20_000;

/**
 * The devices and folders with a read that has not ended. Such a read cannot be interrupted, and on a hung network disk
 * it may never end. So it continues in the background, and the device is skipped meanwhile.
 */
export class HungDevices {
  readonly #limit: number;
  readonly #context: Context;
  readonly #hung = new Set<string>();

  /** `limit`: the time to wait for each device, in milliseconds. */
  constructor(limit = defaultLimit, context: Context) {
    this.#limit = limit;
    this.#context = context;
  }

  /** Returns why a device is skipped; undefined if it is not. */
  reasonFor(path: string): string | undefined {
    return this.#hung.has(path) ? `${path} does not answer: it is skipped until it does` : undefined;
  }

  /**
   * Runs a read of a device. Returns undefined if it takes longer than the limit, or if an earlier one has not ended.
   * Throws the errors of `read`, and `interrupted`.
   */
  async attempt<T>(path: string, read: () => Promise<T>): Promise<T | undefined> {
    if (this.#hung.has(path)) return undefined;
    const { signal, log } = this.#context;
    const ended = new AbortController();
    const reading = read().finally(() => {
      ended.abort();
    });
    reading.catch(() => undefined);
    const either = AbortSignal.any([signal, ended.signal]);
    const isLate = await sleep(this.#limit, true, { signal: either }).catch(() => false);
    if (!isLate) {
      if (!ended.signal.aborted) checkInterrupted(signal);
      return reading;
    }
    this.#hung.add(path);
    void reading
      .catch((error: unknown) => {
        log('debug', `${path}: ${messageOf(error)}`);
      })
      .finally(() => {
        this.#hung.delete(path);
      });
    return undefined;
  }
}

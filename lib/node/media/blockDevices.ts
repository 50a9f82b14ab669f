import { parseJson } from '../../oci/syntax.ts';

/** A disk, a partition or a drive of this machine. */
export interface BlockDevice {
  readonly path: string;
  /** What the kernel calls it: `sdb1`. */
  readonly kernelName: string;
  /** `disk`, `part`, `rom`, `loop`, and so on. */
  readonly type: string;
  /** It may be pulled out: a stick, a card, a disc, a disk behind USB. */
  readonly removable: boolean;
  /** In bytes. */
  readonly size: number;
  /** Where it is mounted, one of the places. */
  readonly mountpoint: string | undefined;
  /** What is on it is on its partitions, or in what stands upon it. */
  readonly divided: boolean;
}

/** What the signatures on a device say that it holds. */
export interface Probe {
  readonly filesystem?: string;
  readonly label?: string;
}

/** What a device may have for us: a tar from its first byte on, a file system to look into, or nothing; with why, where somebody may wonder. */
export type CandidateDevice =
  | { readonly kind: 'tar'; readonly firstEntry: string }
  | { readonly kind: 'filesystem'; readonly filesystem: string; readonly label: string | undefined }
  | { readonly kind: 'nothing'; readonly reason?: string };

/** The columns that parseBlockDevices reads; every lsblk since 2.23 has them. */
export const deviceColumns = 'NAME,KNAME,TYPE,RM,HOTPLUG,SIZE,TRAN,MOUNTPOINT';

/** File systems that sticks and discs have, with what keeps the kernel from writing to one of them though it is mounted for reading. */
export const mountOptions: Readonly<Record<string, readonly string[]>> = {
  vfat: [],
  exfat: [],
  iso9660: [],
  udf: [],
  ext2: [],
  // A journal would be replayed.
  ext3: ['noload'],
  ext4: ['noload'],
  // The same stick twice, or a copy of it, has one UUID.
  xfs: ['norecovery', 'nouuid'],
};

const labels = /^(?:OCPUPG|upgrade_)/;

interface ListedDevice {
  readonly name?: unknown;
  readonly kname?: unknown;
  readonly type?: unknown;
  readonly rm?: unknown;
  readonly hotplug?: unknown;
  readonly size?: unknown;
  readonly tran?: unknown;
  readonly mountpoint?: unknown;
  readonly children?: readonly ListedDevice[];
}

/** Reads what `lsblk --json --bytes --paths --output` with `deviceColumns` printed. Throws a SyntaxError for anything but JSON. */
export function parseBlockDevices(json: string): BlockDevice[] {
  const { blockdevices = [] } = parseJson(json) as { blockdevices?: readonly ListedDevice[] };
  const devices = blockdevices.flatMap((listed) => readDevice(listed, false));
  // What stands upon several disks is listed below each of them.
  return [...new Map(devices.map((device) => [device.path, device])).values()];
}

function readDevice(listed: ListedDevice, parentIsRemovable: boolean): BlockDevice[] {
  const { children = [] } = listed;
  const type = text(listed.type) ?? '';
  const path = text(listed.name) ?? '';
  const removable =
    parentIsRemovable || isSet(listed.rm) || isSet(listed.hotplug) || type === 'rom' || text(listed.tran) === 'usb';
  const device: BlockDevice = {
    path,
    kernelName: (text(listed.kname) ?? path).replace(/^.*\//, ''),
    type,
    removable,
    size: Number(listed.size ?? 0),
    mountpoint: text(listed.mountpoint),
    divided: children.length > 0,
  };
  return [device, ...children.flatMap((child) => readDevice(child, removable))];
}

/** Reads what `blkid --probe --output export` printed; empty for a device without any signature. */
export function parseProbe(output: string): Probe {
  const fields = new Map<string, string>();
  for (const line of output.split('\n')) {
    const [, name = '', value = ''] = /^([A-Z_]+)=(.*)$/.exec(line) ?? [];
    fields.set(name, value.replace(/\\(.)/g, '$1'));
  }
  const filesystem = fields.get('TYPE');
  // Whoever made the file system chose it.
  const label = fields
    .get('LABEL')
    ?.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\u{fffd}')
    .slice(0, 64);
  return { ...(filesystem !== undefined && { filesystem }), ...(label !== undefined && { label }) };
}

/** The name of the first entry, where a device begins with a tar (POSIX.1-1988, ustar); `head` is its first 512 bytes or more. */
export function firstEntryOf(head: Buffer): string | undefined {
  if (head.length < 512 || head.toString('latin1', 257, 262) !== 'ustar') return undefined;
  const name = head.toString('utf8', 0, 100);
  return name.replace(/\0.*$/s, '').replace(/\p{Cc}/gu, '\u{fffd}');
}

/** Whether a device is worth a look: nobody uses it as a part of something else. */
export function isOpen({ type, size, divided, mountpoint }: BlockDevice): boolean {
  return ['disk', 'part', 'rom', 'loop'].includes(type) && size > 0 && !divided && mountpoint !== '[SWAP]';
}

/**
 * Tells what a device may have. A tar counts on every device, whatever a former file system left further behind. A file system
 * counts on one that is removable, that has a label of ours (`OCPUPG…`, `upgrade_…`), or that somebody named.
 */
export function classify(
  { removable, mountpoint }: BlockDevice,
  head: Buffer,
  { filesystem, label }: Probe,
  named: boolean,
): CandidateDevice {
  const firstEntry = mountpoint === undefined ? firstEntryOf(head) : undefined;
  if (firstEntry !== undefined) return { kind: 'tar', firstEntry };
  if (filesystem === undefined || !(removable || named || labels.test(label ?? ''))) return { kind: 'nothing' };
  if (Object.hasOwn(mountOptions, filesystem)) return { kind: 'filesystem', filesystem, label };
  const known = Object.keys(mountOptions).join(', ');
  return { kind: 'nothing', reason: `it has ${filesystem}, and bundles are looked for on ${known}` };
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

// Older ones write "0" and "1".
function isSet(value: unknown): boolean {
  return value === true || value === '1' || value === 1;
}

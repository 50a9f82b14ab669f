import { chmod, mkdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Context } from 'mocha';
import { run, runSuccessfully } from './peers.ts';

/** Skips a test, with a line on standard error. */
export function skipLoudly(context: Context, reason: string): never {
  const { test } = context as { test?: { fullTitle(): string } };
  console.error(`SKIPPED “${test?.fullTitle() ?? 'a suite'}”: ${reason}`);
  return context.skip();
}

/** Skips a suite if this process cannot create and mount loop devices. */
export async function requireLoopDevices(context: Context): Promise<void> {
  const tools = await Promise.all(['losetup', 'lsblk', 'blkid'].map((tool) => run(tool, ['--version'])));
  if (process.getuid?.() !== 0) skipLoudly(context, 'only root can make loop devices');
  if (tools.some(({ code }) => code !== 0) || (await run('losetup', ['--find'])).code !== 0) {
    skipLoudly(context, 'there are no loop devices here');
  }
}

/** A USB drive: an image file on a loop device, which is listed as removable. */
export interface Drive {
  readonly device: string;
  readonly image: string;
  /** Makes everything after an offset unreadable, as on a worn USB drive. */
  spoil(from: number): Promise<void>;
  /** Removes it, even if it is mounted. */
  pull(): Promise<void>;
}

/**
 * The USB drives of this test, without other devices of the machine or of other tests. A folder for PATH has an lsblk
 * that lists them as removable. Mounted devices could not be removed otherwise.
 */
export class Drives {
  readonly #folder: string;
  readonly #drives = new Map<string, { removable: boolean; disk?: string }>();
  readonly #devices = new Set<string>();
  #count = 0;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Creates all files in an existing folder. */
  static async open(folder: string): Promise<Drives> {
    const drives = new Drives(folder);
    await mkdir(join(folder, 'bin'));
    const list = join(folder, 'devices.json');
    const script = `#!/bin/sh\nexec /bin/cat '${list}'\n`;
    await writeFile(join(folder, 'bin', 'lsblk'), script);
    await chmod(join(folder, 'bin', 'lsblk'), 0o755);
    await drives.list();
    return drives;
  }

  /** The PATH for programs. */
  get path(): string {
    return `${join(this.#folder, 'bin')}:${process.env['PATH'] ?? ''}`;
  }

  /** Inserts an image of which only `readable` bytes can be read. */
  async plug(image: string, removable = true, readable = Infinity): Promise<Drive> {
    const device = (await runSuccessfully('losetup', ['--find', '--show', image])).trim();
    this.#devices.add(device);
    this.#drives.set(device, { removable });
    // Reading after the end of the file is an error, because the device keeps its size.
    const spoil = async (from: number): Promise<void> => {
      // A request that begins before the end of the image and ends after it gets zeros without an
      // error. So requests have one page only.
      await writeFile(`/sys/block/${basename(device)}/queue/max_sectors_kb`, '4');
      await truncate(image, from - (from % 4096));
      await runSuccessfully('blockdev', ['--flushbufs', device]);
    };
    if (readable < Infinity) await spoil(readable);
    await this.list();
    const pull = async (): Promise<void> => {
      this.#drives.delete(device);
      await this.list();
      await run('losetup', ['--detach', device]);
    };
    return { device, image, spoil, pull };
  }

  /** Lists inserted drives as the partitions of one disk. */
  async divide(disk: string, ...partitions: readonly Drive[]): Promise<void> {
    for (const { device } of partitions) {
      const own = this.#drives.get(device);
      if (own) own.disk = disk;
    }
    await this.list();
  }

  /** Creates an empty image file of some megabytes. */
  async makeImage(megabytes: number): Promise<string> {
    const image = join(this.#folder, `drive-${(this.#count += 1)}.img`);
    await rm(image, { force: true });
    await writeFile(image, '');
    await truncate(image, megabytes * 1024 ** 2);
    return image;
  }

  /** Creates an ext4 image with a label and the files of a folder. */
  async makeExt4(files: string, label = '', megabytes = 8): Promise<string> {
    const image = await this.makeImage(megabytes);
    await runSuccessfully('mkfs.ext4', ['-q', '-L', label, '-d', files, image]);
    return image;
  }

  /** Creates an image with another file system, and copies the files through the kernel. */
  async makeMounted(mkfs: readonly string[], megabytes: number, files: string): Promise<string> {
    const image = await this.makeImage(megabytes);
    const [command = '', ...args] = mkfs;
    await runSuccessfully(command, [...args, image]);
    const place = `${image}.d`;
    await mkdir(place);
    await runSuccessfully('mount', ['-o', 'loop', image, place]);
    try {
      await runSuccessfully('sh', ['-c', `cp -r '${files}'/. '${place}'`]);
    } finally {
      await runSuccessfully('umount', [place]);
    }
    return image;
  }

  /** Writes the list again, for example after a mount. */
  async list(): Promise<void> {
    const mounts = await readFile('/proc/mounts', 'utf8');
    const devices = await Promise.all(
      [...this.#drives].map(async ([name, { removable: rm, disk }]) => ({
        disk,
        name,
        kname: name,
        type: disk === undefined ? 'loop' : 'part',
        rm,
        hotplug: rm,
        size: Number(await runSuccessfully('blockdev', ['--getsize64', name])),
        tran: null,
        mountpoint:
          mounts
            .split('\n')
            .findLast((line) => line.startsWith(`${name} `))
            ?.split(' ')[1] ?? null,
      })),
    );
    const disks = Map.groupBy(devices, ({ disk }) => disk ?? '');
    const blockdevices = [
      ...(disks.get('') ?? []),
      ...[...disks]
        .filter(([name]) => name !== '')
        .map(([name, children]) => {
          const [first] = children;
          return { ...first, name, kname: name, type: 'disk', mountpoint: null, children };
        }),
    ];
    // A reader meanwhile gets the old list or the new one.
    const path = join(this.#folder, 'devices.json');
    await writeFile(`${path}.new`, JSON.stringify({ blockdevices }));
    await rename(`${path}.new`, path);
  }

  /** Removes every loop device. */
  async close(): Promise<void> {
    for (const device of this.#devices) {
      // The number of a removed device may belong to another test by now.
      const { stdout } = await run('losetup', ['--noheadings', '--output', 'BACK-FILE', device]);
      if (stdout.trim() !== '' && !stdout.includes(this.#folder)) continue;
      while ((await run('umount', [device])).code === 0);
      await run('losetup', ['--detach', device]);
    }
  }
}

/** Returns whether the kernel supports a file system, without mounting one. */
export async function kernelHas(filesystem: string): Promise<boolean> {
  await run('modprobe', [filesystem]);
  const known = await readFile('/proc/filesystems', 'utf8').catch(() => '');
  return known.split(/\s+/).includes(filesystem);
}

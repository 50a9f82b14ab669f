import { readFile, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { takeLock, makeFolders } from '#content/files';
import type { Context } from '#context';
import { ignoring, messageOf, PluginError } from '#errors';
import { pathOnHost, type Host } from '../machine/host.ts';
import { runProgram, type ProgramResult } from '../machine/programs.ts';
import { anyFilesystem, mountOptions } from './blockDevices.ts';

/** Returns the path of the lock for a folder of mounts of a host, for this process. */
export function mountLock(host: Host, place: string): string {
  return `${pathOnHost(host, place)}.lock`;
}

/**
 * A folder for mounts of this process only: other accounts cannot enter it, and its mounts do not propagate to other
 * mount namespaces.
 */
export class PrivateMounts {
  readonly #host: Host;
  readonly #place: string;
  readonly #context: Context;
  readonly #lock: AsyncDisposable;

  private constructor(host: Host, place: string, context: Context, lock: AsyncDisposable) {
    this.#host = host;
    this.#place = place;
    // Unmounting must also work after an interruption.
    this.#context = { ...context, signal: new AbortController().signal };
    this.#lock = lock;
  }

  /**
   * Creates the folder, a path of the host, and unmounts devices that a killed run left in it. Throws `busy` if another
   * run uses it, and `not-writable`.
   */
  static async open(host: Host, place: string, context: Context): Promise<PrivateMounts> {
    const folder = pathOnHost(host, place);
    try {
      await makeFolders(folder, 0o700);
    } catch (cause) {
      const hint = 'Run this as root, which can mount a USB drive.';
      throw new PluginError('not-writable', `${folder} cannot be made: ${messageOf(cause)}`, { hint, cause });
    }
    const mounts = new PrivateMounts(host, place, context, await takeLock(mountLock(host, place), folder));
    try {
      await mounts.#releaseAll();
      await mounts.#require('mount', '--bind', place, place);
      await mounts.#require('mount', '--make-private', place);
      return mounts;
    } catch (error) {
      await mounts.close();
      throw error;
    }
  }

  /**
   * Mounts a device read-only, without programs, devices and, if the kernel supports it, symbolic links. Returns the
   * path for this process. Of `anyFilesystem`, tries each. Throws `not-readable`.
   */
  async mount(device: string, name: string, filesystem: string): Promise<string> {
    if (filesystem !== anyFilesystem) return await this.#mount(device, name, filesystem);
    for (const each of Object.keys(mountOptions)) {
      const folder = await this.#mount(device, name, each).catch(ignoring('not-readable'));
      if (folder !== undefined) return folder;
    }
    throw new PluginError('not-readable', `${device} has signatures of several file systems, and none can be mounted`, {
      hint: 'Copy its files elsewhere, and format it again.',
    });
  }

  async #mount(device: string, name: string, filesystem: string): Promise<string> {
    const options = ['ro', 'nosuid', 'nodev', 'noexec', ...(mountOptions[filesystem] ?? [])];
    return await this.mountWith(device, name, filesystem, options);
  }

  /**
   * Mounts a device with options. Follows no link on it, if the kernel supports that. Returns the path for this
   * process. Throws `not-readable`.
   */
  async mountWith(device: string, name: string, filesystem: string, options: readonly string[]): Promise<string> {
    const folder = join(this.#place, name);
    await makeFolders(pathOnHost(this.#host, folder), 0o700);
    const mount = (given: readonly string[]): Promise<ProgramResult> =>
      runProgram(this.#host, 'mount', ['-t', filesystem, '-o', given.join(), device, folder], this.#context);
    let result = await mount([...options, 'nosymfollow']);
    // Kernels before 5.10 and older mount programs do not support nosymfollow.
    if (result.code !== 0) result = await mount(options);
    if (result.code === 0) return pathOnHost(this.#host, folder);
    await rmdir(pathOnHost(this.#host, folder));
    const words = (result.stderr.trim().split('\n')[0] ?? '').slice(0, 200);
    throw new PluginError('not-readable', `${device} cannot be mounted: ${words}`, {
      hint: words.includes('unknown filesystem')
        ? `The kernel of this machine has no ${filesystem}: use ext4 or XFS, or write the bundle onto the device ` +
          'itself.'
        : undefined,
    });
  }

  /** Returns the mount point of a device for this process. */
  pathOf(name: string): string {
    return pathOnHost(this.#host, this.hostPathOf(name));
  }

  /** Returns the mount point of a device for programs of the host. */
  hostPathOf(name: string): string {
    return join(this.#place, name);
  }

  /** Unmounts a device, even if it was removed. */
  async release(name: string): Promise<void> {
    const folder = join(this.#place, name);
    // Open files stay readable; new ones cannot be opened.
    await runProgram(this.#host, 'umount', ['--lazy', folder], this.#context);
    await rmdir(pathOnHost(this.#host, folder)).catch(() => undefined);
  }

  /** Unmounts all devices. */
  async close(): Promise<void> {
    await this.#releaseAll();
    await rmdir(pathOnHost(this.#host, this.#place)).catch(() => undefined);
    await this.#lock[Symbol.asyncDispose]();
  }

  async #releaseAll(): Promise<void> {
    const mounted = (await this.#list()).filter((path) => path === this.#place || path.startsWith(`${this.#place}/`));
    for (const path of mounted.reverse()) {
      await runProgram(this.#host, 'umount', ['--lazy', path], this.#context);
      if (path !== this.#place) await rmdir(pathOnHost(this.#host, path)).catch(() => undefined);
    }
  }

  /** Lists the mount points of the host, in the order of mounting. */
  async #list(): Promise<string[]> {
    const { root } = this.#host;
    const text = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '');
    const paths = text.split('\n').flatMap((line) => line.split(' ')[4] ?? []);
    return paths.map((path) => (root !== '/' && path.startsWith(`${root}/`) ? path.slice(root.length) : path));
  }

  async #require(program: string, ...args: string[]): Promise<void> {
    const { code, stderr } = await runProgram(this.#host, program, args, this.#context);
    if (code === 0) return;
    const message = `${program} ${args.join(' ')} failed: ${stderr.trim()}`;
    throw new PluginError('not-writable', message, { hint: 'Run this as root, which can mount a USB drive.' });
  }
}

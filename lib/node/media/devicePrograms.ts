import type { Context } from '../../context.ts';
import { messageOf, PluginError } from '../../errors.ts';
import type { Host } from '../machine/host.ts';
import { runProgram } from '../machine/programs.ts';
import { deviceColumns, parseBlockDevices, parseProbe, type BlockDevice, type Probe } from './blockDevices.ts';

/** Lists the block devices of a host, with lsblk. Throws `not-found` without lsblk, and `not-readable`. */
export async function listDevices(host: Host, context: Context): Promise<BlockDevice[]> {
  const args = ['--json', '--bytes', '--paths', '--output', deviceColumns];
  const { code, stdout, stderr } = await runProgram(host, 'lsblk', args, context);
  // Without any device, older versions print nothing.
  if (code !== 0 && stderr !== '') throw new PluginError('not-readable', `lsblk failed: ${stderr.trim()}`);
  try {
    return stdout.trim() === '' ? [] : parseBlockDevices(stdout);
  } catch (cause) {
    throw new PluginError('not-readable', `lsblk printed what cannot be read: ${messageOf(cause)}`, { cause });
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

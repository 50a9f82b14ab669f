import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { mountFolder } from '#node/machine';
import { Media, type MediaEvent, type FoundBundle } from '#node/media';
import { formatBytes } from '#text';
import { defineCommand } from '../../cli/command.ts';
import { openEventFormat } from '../../cli/format.ts';
import { outputOption } from '../../cli/options.ts';
import { hostOptions } from './nodeOptions.ts';

/** `watch`: lists the bundles on USB drives and discs as they are inserted and removed. */
export const command = defineCommand({
  details:
    'Lists bundles on media: a bundle that is written onto a device itself, or a file upgrade-….tar or its volumes ' +
    'in the top folder of a file system. The file system must be removable, or have a label OCPUPG… or upgrade_…. ' +
    'Such file systems are mounted read-only (nosuid, nodev, noexec, no journal replayed), in a folder that only ' +
    'root can enter. They are unmounted when the USB drive is removed or the command ends. Nothing on a USB drive is ' +
    'executed, no link on it is followed. Checks no signature: load and verify do that. It must run as root.',
  options: {
    once: { type: 'boolean', describe: 'Check once, and fail if there is no bundle' },
    device: {
      type: 'string',
      repeatable: true,
      describe: 'Also check the file system of this device, even if it is not removable or labeled',
      suggest: 'paths',
    },
    interval: {
      type: 'number',
      isTime: true,
      default: 15,
      range: [1, 3600],
      describe: 'Longest time between two checks',
    },
    'mount-dir': {
      type: 'string',
      default: mountFolder,
      describe: 'Folder for the mounts, created if missing',
      suggest: 'folders',
    },
    ...hostOptions,
    ...outputOption(),
  },
  examples: [
    ['', 'Report bundles until Ctrl-C'],
    ['--once -o json', 'List the present bundles, one line of JSON each'],
    ['--once --device=/dev/vdb1', 'Also check a disk of a virtual machine'],
  ],
  needsRoot: true,
  async run(args, { context, terminal, environment }) {
    const { root, device: devices, mountDir: place } = args;
    await checkDevices(args, context);
    const media = await Media.open({ host: { root, environment }, place, devices }, context);
    const format = args.output && (await openEventFormat(args.output));
    const show = (event: MediaEvent): void => {
      if (format) terminal.print(format(event));
      else tell(event, (line) => terminal.print(line), context);
    };
    try {
      if (!args.once) {
        context.log('info', 'waiting for bundles until Ctrl-C');
        await media.watch(args.interval * 1000, show);
        return;
      }
      const events = await media.search();
      events.forEach(show);
      if (media.bundles.length > 0) return;
      throw new PluginError('not-found', 'no medium of this machine has a bundle', {
        hint: 'lsblk lists each USB drive that the kernel sees. Name a disk that is not removable with --device.',
      });
    } finally {
      await media.close();
    }
  },
});

/** Throws `not-found` for a device that does not exist, or warns if it can still appear. */
async function checkDevices(
  { root, device, once }: { readonly root: string; readonly device: readonly string[]; readonly once: boolean },
  context: Context,
): Promise<void> {
  for (const path of device) {
    if ((await stat(join(root, path)).catch(() => undefined)) !== undefined) continue;
    if (!once) context.log('warn', `--device=${path} does not exist: it is read when it appears`);
    else throw new PluginError('not-found', `--device=${path} does not exist`, { hint: 'lsblk lists the devices.' });
  }
}

function tell(event: MediaEvent, print: (line: string) => void, context: Context): void {
  switch (event.event) {
    case 'found':
      print(`found    ${describeBundle(event)}`);
      break;
    case 'removed':
      print(`removed  ${describeBundle(event)}`);
      break;
    case 'rejected':
      context.log('warn', `${event.path} on ${event.device}: ${event.reason}`);
      if (event.hint !== undefined) context.log('info', `hint: ${event.hint}`);
      break;
    case 'conflict':
      context.log('warn', `different bundles are there at once: ${event.paths.join(', ')}. Remove all but one.`);
  }
}

function describeBundle({ device, path, version, arch, size, volumes, base, label }: FoundBundle): string {
  const delta = base === undefined ? '' : `, a delta to ${base}`;
  const split = volumes > 1 ? ` in ${volumes} volumes` : '';
  const where = path === device ? path : `${path} on ${device}${label === undefined ? '' : ` (${label})`}`;
  return `${version} ${arch}${delta}, ${formatBytes(size)}${split}: ${where}`;
}

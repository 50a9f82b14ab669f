import { openBundle } from '../../../lib/bundle/open.ts';
import type { Context } from '../../../lib/context.ts';
import { PluginError } from '../../../lib/errors.ts';
import { writePins, unpinImages, type PinResult } from '../../../lib/node/runtime/pins.ts';
import { defineCommand } from '../../cli/command.ts';
import { outputOption } from '../../cli/options.ts';
import { hostOptions } from './host.ts';

/** `pin`: keeps the images of a bundle from being removed. */
export const command = defineCommand({
  details:
    'The kubelet removes images that no container uses when the disk fills up. Those in the list that this writes, a drop-in of CRI-O, it ' +
    'leaves alone: the release image and all others of the bundle, besides those that were pinned before. On clusters with ' +
    'PinnedImageSets (4.19 and later) use one of those instead: a list of its own is refused where another file has one, since CRI-O knows only one.',
  positionals: {
    bundle: { type: 'string', describe: 'A bundle, a device that holds one, or a mirror directory', suggest: 'files' },
  },
  options: {
    remove: {
      type: 'boolean',
      describe: 'Take the images of the bundle out of the list again; without a bundle, remove the list',
    },
    ...hostOptions,
    ...outputOption(['json']),
  },
  examples: [
    ['/dev/sdb', 'Keep the images of a bundle'],
    ['--remove', 'Let go of everything'],
  ],
  async run(args, { context, terminal, environment }) {
    const host = { root: args.root, environment };
    const images = args.bundle === undefined ? undefined : await readImages(args.bundle, context);
    if (!images && !args.remove) throw new PluginError('usage', 'name the bundle whose images are to be kept');
    const result = args.remove ? await unpinImages(host, images ?? 'all') : await writePins(host, images ?? []);
    terminal.print(args.output === 'json' ? JSON.stringify(result, null, 2) : toWords(result));
  },
});

async function readImages(path: string, context: Context): Promise<string[]> {
  const bundle = await openBundle(path, context);
  await bundle.close();
  return [...new Set([bundle.metadata.release, ...bundle.metadata.images])];
}

function toWords({ file, pinned, changed }: PinResult): string {
  const what = pinned.length === 0 ? 'No images are pinned' : `${pinned.length} images are pinned in ${file}`;
  return changed ? `${what}\nNext: systemctl reload crio` : `${what}, as before`;
}

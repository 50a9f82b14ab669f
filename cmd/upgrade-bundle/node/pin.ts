import { listContainerImages } from '#bundle/metadata';
import { openBundle, checkSigned } from '#bundle/open';
import { PluginError } from '#errors';
import { writePins, unpinImages, type PinResult } from '#node/runtime';
import { Lines } from '#text';
import { warnOfExtraImages } from '../../cli/bundleFacts.ts';
import { defineCommand, type CommandSession } from '../../cli/command.ts';
import { outputOption, signedImagesOption } from '../../cli/options.ts';
import { offlineTrustOf, offlineTrustOptions } from '../../cli/trust.ts';
import { hostOptions } from './nodeOptions.ts';

/** `pin`: prevents the removal of a bundle’s images. */
export const command = defineCommand({
  details:
    'Writes a drop-in of CRI-O that lists the release image and all other images of the bundle. The kubelet removes ' +
    'unused images from a full disk, but not the images in this list. Images that were pinned before stay pinned. On ' +
    'clusters with PinnedImageSets (4.19.12 and later) use one of those. If another file has such a list, a second ' +
    'list is refused, because CRI-O reads only one. The signatures of the bundle are checked first, without a ' +
    'network, because its names and digests are those of the list.',
  positionals: {
    bundle: {
      type: 'string',
      describe: 'A bundle, a device that holds one, or a mirror directory',
      suggest: 'bundles',
    },
  },
  options: {
    remove: {
      type: 'boolean',
      describe: 'Unpin the images of the bundle; without a bundle, remove the drop-in',
    },
    ...hostOptions,
    ...outputOption(),
    ...offlineTrustOptions,
    ...signedImagesOption,
  },
  examples: [
    ['/dev/sdb', 'Pin the images of a bundle'],
    ['--remove', 'Unpin all images'],
  ],
  needsRoot: true,
  async run(args, { context, terminal, environment }) {
    const host = { root: args.root, environment };
    const images = args.bundle === undefined ? undefined : await readImages(args.bundle, args, { context, terminal });
    if (!images && !args.remove) throw new PluginError('usage', 'name the bundle whose images are to be kept');
    const result = args.remove ? await unpinImages(host, images ?? 'all') : await writePins(host, images ?? []);
    await terminal.printResult(args.output, result, toWords(result));
  },
});

async function readImages(
  path: string,
  trust: Parameters<typeof offlineTrustOf>[0],
  { context, terminal }: Pick<CommandSession, 'context' | 'terminal'>,
): Promise<string[]> {
  await using bundle = await openBundle(path, context);
  const { extraImages } = await checkSigned(bundle, offlineTrustOf(trust), context);
  warnOfExtraImages(extraImages, terminal);
  return [...new Set([bundle.metadata.release, ...listContainerImages(bundle.metadata)])];
}

function toWords({ file, pinned, changed }: PinResult): Lines {
  const count = pinned.length === 1 ? '1 image is' : `${pinned.length || 'No'} images are`;
  const what = pinned.length === 0 ? `${count} pinned` : `${count} pinned in ${file}`;
  return changed ? new Lines(what, 'Next: systemctl reload crio') : new Lines(`${what}, as before`);
}

import { defineCommand } from '../../cli/command.ts';
import { bundleConfig, createOptions, createPositionals } from './createOptions.ts';
import { runCreate } from './runCreate.ts';

/** `create`: creates a bundle of a release. */
export const command = defineCommand({
  details:
    'Finds the release by version and architecture, or by --release-image. The signatures are checked before large blobs are ' +
    'fetched. An interrupted run resumes if the same command is run again. With --device, a finished bundle is written onto a ' +
    'USB drive, which must be empty and not mounted. Everything is then read from the drive itself and verified.',
  positionals: createPositionals,
  options: createOptions,
  examples: [
    [
      '--version=4.20.3 --arch=x86_64 --pull-secret=pull-secret.json --output=/media/usb',
      'Create upgrade-4.20.3-x86_64.tar on a USB drive',
    ],
    ['--version=4.20.3 --output=. --dry-run', 'Show how large it would be'],
    ['-f site.yaml --version=4.20.4', 'Take the options from a file that is kept in git'],
    [
      '--version=4.20.3 --base=4.20.2 --output=.',
      'Create the smaller delta bundle upgrade-4.20.3-x86_64-from-4.20.2.tar',
    ],
    [
      '--version=4.20.3 --output=. --catalog=registry.redhat.io/redhat/redhat-operator-index:v4.20 --operator=web-terminal@fast:1.10.0',
      'Add an operator, with its updates since 1.10.0',
    ],
    [
      '--path-from=4.18.20 --version=4.20.3 --output=/media/usb',
      'Include the releases on the way: upgrade-4.20.3-x86_64-via-4.19.12.tar',
    ],
    ['--channel=stable-4.20 --min=4.20.1 --output=.', 'Include the releases of a channel from 4.20.1 on'],
    ['--version=4.20.3 --output=. --device=/dev/sdb', 'Create a bundle, and write it onto a USB drive'],
    [
      '--version=4.20.3 --output=/media/usb --volume-size=4G',
      'Create volumes that fit on FAT32: upgrade-4.20.3-x86_64.tar.000 and so on',
    ],
  ],
  resumes: 'bytes',
  config: bundleConfig,
  async run(args, io) {
    await runCreate(args, io);
  },
});

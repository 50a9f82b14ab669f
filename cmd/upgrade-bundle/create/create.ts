import { createBundle } from '../../../lib/bundle/create/create.ts';
import { openLocalOrigin } from '../../../lib/bundle/create/localOrigin.ts';
import { RegistryOrigin } from '../../../lib/bundle/create/origin.ts';
import { checkDevice, writeDevice } from '../../../lib/node/media/deviceWriter.ts';
import { listOtherKeys, loadExpectedKeys } from '../../../lib/release/sigstore/policyKeys.ts';
import { parseArchitecture } from '../../../lib/release/version.ts';
import { openAccess } from '../../cli/access.ts';
import { defineCommand } from '../../cli/command.ts';
import { formatOptionFile } from '../../cli/optionFile.ts';
import { readImageList } from '../../release-mirror-config/imageList.ts';
import { bundleConfig, createOptions, createPositionals } from './createOptions.ts';
import { formatCreated } from './createReport.ts';
import { checkArguments, checkPatch, configArguments, readSiteReport, createRequestOf } from './createRequest.ts';

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
  async run(given, { context, terminal, environment, stdin }) {
    checkArguments(given);
    await checkPatch(given, environment, context);
    const expectedKeys = await loadExpectedKeys(given.trustKey);
    const images = await readImageList(given.imagesFrom, stdin);
    const site = await readSiteReport(given.for);
    const args = { ...given, arch: given.arch ?? (site && parseArchitecture(site.arch)) };
    if (args.printConfig) {
      terminal.print(formatOptionFile(configArguments(args, site), createOptions, bundleConfig));
      return;
    }
    const host = { root: '/', environment };
    const device =
      args.device === undefined ? undefined : await checkDevice(host, args.device, args.overwrite, context);
    const access = await openAccess(args, environment);
    const downloading = {
      ...context,
      onEvent: terminal.transfer(args.fromDir === undefined ? 'Downloading' : 'Copying'),
    };
    await using origin = await (args.fromDir === undefined
      ? new RegistryOrigin(access, downloading)
      : openLocalOrigin(args.fromDir, access, downloading));
    const request = await createRequestOf(args, { images, site }, origin, context);
    const result = await createBundle(request, origin, downloading);
    for (const text of listOtherKeys(result.policies ?? [], expectedKeys)) context.log('warn', text);
    const { path, digest } = result;
    if (device && digest && !args.dryRun) {
      const writing = { ...context, onEvent: terminal.transfer('Writing') };
      const verifying = { ...context, onEvent: terminal.transfer('Verifying') };
      await writeDevice(host, device, { path, digest }, args.overwrite, { writing, verifying });
    }
    terminal.print(
      formatCreated(result, expectedKeys, { ...args, device: args.dryRun ? undefined : device?.path }, args.format),
    );
  },
});

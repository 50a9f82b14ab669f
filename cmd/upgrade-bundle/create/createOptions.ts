import { smallestReportSpace } from '#bundle/metadata';
import { PluginError } from '#errors';
import { inGroup, type Arguments } from '../../cli/command.ts';
import { channelOptions } from '../../cli/mirroring/channelRange.ts';
import { imageListOption } from '../../cli/mirroring/imageSet.ts';
import {
  bundleFolderOption,
  dryRunOf,
  formatOption,
  policyKeyOption,
  registryOptions,
  releaseOptions,
  trustOptions,
} from '../../cli/options.ts';
import { checkImage, parseSize } from '../../cli/values.ts';
import { catalogOptions } from './catalogs.ts';

/** Throws `usage` for a size that cannot be meant: a volume smaller than one block of a tar. */
function checkVolumeSize(text: string): void {
  const bytes = parseSize(text);
  if (bytes >= 512) return;
  throw new PluginError('usage', `a volume of ${bytes} bytes is smaller than one block of a tar`, {
    hint: `Add the unit: ${text}G.`,
  });
}

/** Parses the space for reports, in bytes, rounded up to whole pages of 4 KiB. Throws `usage` for a small one. */
export function parseReportSpace(text: string): number {
  const bytes = Math.ceil(parseSize(text) / 4096) * 4096;
  if (bytes >= smallestReportSpace) return bytes;
  const least = `${smallestReportSpace / 1024 ** 2}Mi`;
  throw new PluginError('usage', `${bytes} bytes are too small for two reports`, { hint: `Give ${least} or more.` });
}

/** The options of `create`. */
export const createOptions = {
  file: {
    type: 'string',
    alias: 'f',
    hiddenAlias: 'filename',
    describe:
      'YAML file with options (kind BundleConfig, or ImageSetConfiguration of oc-mirror), - for the standard input; ' +
      'options on the command line replace those in it',
    suggest: 'files',
    alsoTakes: 'stdin',
  },
  'print-config': {
    type: 'boolean',
    describe: 'Print the options as a file for --file, and create nothing',
  },
  ...dryRunOf('With client or server, only print what would be downloaded and its size'),
  ...formatOption(),
  ...inGroup('Release:', {
    ...releaseOptions,
    version: { ...releaseOptions.version, alias: 'to-version' },
    'graph-url': {
      type: 'string',
      describe:
        'Update graph for --path-from, and for the latest patches if --version has none, instead of the public one',
    },
  }),
  ...inGroup('Several releases:', {
    'path-from': {
      type: 'string',
      describe: 'Version to update from: include all releases on the shortest supported path from it, without itself',
      suggest: 'versions',
    },
    'accept-risk': {
      type: 'string',
      needs: ['path-from', 'channel', 'for'],
      repeatable: true,
      describe: 'With a path: include updates with the known risk of this name; at the site, apply accepts it',
    },
    ...channelOptions,
  }),
  ...inGroup('Operators and other images:', {
    ...catalogOptions,
    'extra-image': {
      type: 'string',
      alias: 'additional-image',
      repeatable: true,
      describe: 'Additional image to include',
      check: checkImage,
    },
    ...imageListOption,
  }),
  ...inGroup('Size:', {
    base: {
      type: 'string',
      describe: 'Create a delta bundle: leave out what this version, bundle or mirror directory has',
      suggest: 'bundles',
    },
    for: {
      type: 'string',
      describe:
        'Report of the site (preflight --export, or from a drive): leave out what its nodes have; with ' +
        '--catalog, update its operators',
      suggest: 'files',
    },
    'for-key': {
      type: 'string',
      needs: ['for'],
      describe:
        'With --for: public key of the cluster, or an earlier preflight --export of it, that must have signed ' +
        'the report',
      suggest: 'paths',
    },
    'decryption-key': {
      type: 'string',
      needs: ['for'],
      describe: 'With --for: OpenPGP private key without a passphrase, for an encrypted report',
      suggest: 'paths',
    },
    'include-held': {
      type: 'boolean',
      needs: ['for'],
      describe: 'With --for: include the content that all nodes of the site have already',
    },
    'volume-size': {
      type: 'string',
      describe: 'Split a larger bundle into volumes of this size, such as 4G (4000 MB), the largest that fits on FAT32',
      check: checkVolumeSize,
    },
  }),
  ...inGroup('Destination:', {
    ...bundleFolderOption(),
    device: {
      type: 'string',
      describe: 'Then write the bundle onto this removable drive, without a file system, and verify what it returns',
    },
    overwrite: { type: 'boolean', needs: ['device'], describe: 'With --device, replace everything on the drive' },
    'report-space': {
      type: 'string',
      describe: 'Space after the bundle, on a drive without a file system, for reports of the site, such as 64M',
      check: (text: string) => void parseReportSpace(text),
    },
    'report-to': {
      type: 'string',
      describe: 'OpenPGP public key that the site encrypts its reports to',
      suggest: 'files',
    },
    'verify-existing': {
      type: 'boolean',
      describe: 'Verify every byte of an existing bundle before it is kept',
    },
  }),
  ...registryOptions,
  ...trustOptions,
  ...policyKeyOption,
} as const;

/** The arguments of `create` without a name. */
export const createPositionals = {
  release: {
    type: 'string',
    describe: 'Version of the release, such as 4.20.3; several with commas',
    suggest: 'versions',
  },
} as const;

/** The kind and the rules of the file with options of `create`. */
export const bundleConfig = {
  kind: 'BundleConfig',
  name: 'site',
  option: 'file',
  without: ['print-config'],
  alternatives: ['release', 'version', 'release-image', 'channel'],
} as const;

/** The command line of `create`. */
export type CreateArguments = Arguments<typeof createOptions & typeof createPositionals>;

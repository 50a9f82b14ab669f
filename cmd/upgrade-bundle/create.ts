import { catalogOptions, requestOperators } from './catalogs.ts';
import { formatCreated } from './createReport.ts';
import { pathOption, planReleases } from './plannedReleases.ts';
import type { BaseRequest } from '../../lib/bundle/create/base.ts';
import { heldImagesOf } from '../../lib/bundle/create/siteCheck.ts';
import { createBundle } from '../../lib/bundle/create/create.ts';
import { openLocalOrigin } from '../../lib/bundle/create/localOrigin.ts';
import { RegistryOrigin, type Origin } from '../../lib/bundle/create/origin.ts';
import type { CreateRequest } from '../../lib/bundle/create/request.ts';
import type { Context } from '../../lib/context.ts';
import { parseSiteReport, siteReportLimit } from '../../lib/config/siteReport.ts';
import type { SiteReport } from '../../lib/config/siteTypes.ts';
import { PluginError } from '../../lib/errors.ts';
import { readSmallFile } from '../../lib/files/smallFile.ts';
import { Registries } from '../../lib/registry/registries.ts';
import { requirePatch } from '../../lib/release/graph/channels.ts';
import { listOtherKeys, loadExpectedKeys } from '../../lib/release/sigstore/policyKeys.ts';
import {
  isVersion,
  parseArchitecture,
  parseVersion,
  usualRepository,
  type Architecture,
} from '../../lib/release/version.ts';
import { openAccess, tool } from '../cli/access.ts';
import { checkDevice, writeDevice } from '../../lib/node/media/deviceWriter.ts';
import { channelOptions, readChannelRange } from '../release-mirror-config/channelRange.ts';
import { checkFile, checkFileOrInput, checkImage } from '../cli/values/checks.ts';
import { formatOptionFile } from '../cli/optionFile.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatOption, registryOptions, policyKeyOption, releaseOptions, trustOptions } from '../cli/options.ts';
import { imageListOption, readImageList } from '../release-mirror-config/imageList.ts';
import { parseSize } from '../cli/values/size.ts';
import { fetcherOf, trustOf } from '../cli/trust.ts';

const options = {
  file: {
    type: 'string',
    alias: 'f',
    describe:
      'YAML file with options (kind BundleConfig), - for the standard input; options on the command line replace those in it',
    suggest: 'files',
    check: checkFileOrInput,
  },
  'print-config': {
    type: 'boolean',
    describe: 'Print the options as a file for --file, and create nothing',
  },
  ...releaseOptions,
  version: { ...releaseOptions.version, alias: 'to-version' },
  output: {
    type: 'string',
    required: true,
    describe: 'Folder for the bundle, created if missing',
    suggest: 'folders',
  },
  'extra-image': {
    type: 'string',
    alias: 'additional-image',
    repeatable: true,
    describe: 'Additional image to include',
    check: checkImage,
  },
  ...imageListOption,
  ...catalogOptions,
  ...pathOption,
  ...channelOptions,
  'graph-url': {
    type: 'string',
    describe:
      'Update graph for --path-from, and for the latest patches if --version has none, instead of the public one',
  },
  base: {
    type: 'string',
    describe: 'Create a delta bundle: leave out what this version, bundle or mirror directory has',
    suggest: 'bundles',
  },
  for: {
    type: 'string',
    describe:
      'Report of the site (preflight --export): leave out what its nodes have; with --catalog, update its operators',
    suggest: 'files',
    check: checkFile,
  },
  'include-held': {
    type: 'boolean',
    describe: 'With --for: include the content that all nodes of the site have already',
  },
  'volume-size': {
    type: 'string',
    describe: 'Split a larger bundle into volumes of this size, such as 4G (4000 MB), the largest that fits on FAT32',
    check: (text: string) => void parseSize(text),
  },
  device: {
    type: 'string',
    describe: 'Then write the bundle onto this removable drive, without a file system, and verify what it returns',
  },
  overwrite: { type: 'boolean', describe: 'With --device, replace everything on the drive' },
  'dry-run': {
    type: 'boolean',
    describe: 'Print what would be downloaded and its size, without writing anything',
  },
  'verify-existing': {
    type: 'boolean',
    describe: 'Verify every byte of an existing bundle before it is kept',
  },
  ...formatOption(['json']),
  ...registryOptions,
  ...trustOptions,
  ...policyKeyOption,
} as const;

const positionals = {
  release: {
    type: 'string',
    describe: 'Version of the release, such as 4.20.3; several with commas',
    suggest: 'versions',
  },
} as const;

const config = {
  ...{ kind: 'BundleConfig', name: 'site', option: 'file', without: ['print-config'] },
  alternatives: ['release', 'version', 'release-image', 'channel'],
} as const;

type CreateArguments = Arguments<typeof options & typeof positionals>;

/** `create`: creates a bundle of a release. */
export const command = defineCommand({
  details:
    'Finds the release by version and architecture, or by --release-image. The signatures are checked before large blobs are ' +
    'fetched. An interrupted run resumes if the same command is run again. With --device, a finished bundle is written onto a ' +
    'USB drive, which must be empty and not mounted. Everything is then read from the drive itself and verified.',
  positionals,
  options,
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
  config,
  async run(given, { context, terminal, environment, stdin }) {
    checkRelease(given);
    if (given.file === '-' && given.imagesFrom === '-')
      throw new PluginError('usage', '--file and --images-from cannot both read the standard input');
    if (given.overwrite && given.device === undefined)
      throw new PluginError('usage', '--overwrite is for --device: a good bundle in the folder is kept');
    await checkPatch(given, environment, context);
    const expectedKeys = await loadExpectedKeys(given.trustKey);
    const images = await readImageList(given.imagesFrom, stdin);
    const site = await readSiteReport(given.for);
    const args = { ...given, arch: given.arch ?? (site && parseArchitecture(site.arch)) };
    if (args.printConfig) {
      terminal.print(formatOptionFile(configArguments(args, site), options, config));
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
    const origin = await (args.fromDir === undefined
      ? new RegistryOrigin(access, downloading)
      : openLocalOrigin(args.fromDir, access, downloading));
    try {
      const result = await createBundle(
        {
          ...(await requestOf(args, site, origin, context)),
          extraImages: [...args.extraImage, ...images],
          operators: requestOperators(args),
          site,
          output: args.output,
          trust: trustOf(args),
          base: args.base === undefined ? heldOf(args, site) : baseOf(args.base, args, origin),
          volumeSize: args.volumeSize === undefined ? undefined : parseSize(args.volumeSize),
          dryRun: args.dryRun,
          verifyExisting: args.verifyExisting,
          tool,
        },
        origin,
        downloading,
      );
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
    } finally {
      await origin.close();
    }
  },
});

/** Returns the arguments for a file: with the operators of a site by name, and the version as an option. */
function configArguments({ release, ...args }: CreateArguments, site: SiteReport | undefined): Record<string, unknown> {
  const named = new Set(args.operator.map((text) => text.replace(/@.*$/, '')));
  const installed = args.catalog.length === 0 ? [] : (site?.operators ?? []).filter(({ name }) => !named.has(name));
  const operator = [...args.operator, ...installed.map(nameOperator)];
  return { ...args, operator, version: args.version ?? release };
}

function nameOperator({ name, channel, version }: SiteReport['operators'][number]): string {
  return channel === '' ? name : `${name}@${channel}:${version}`;
}

async function readSiteReport(path: string | undefined): Promise<SiteReport | undefined> {
  if (path === undefined) return undefined;
  return parseSiteReport((await readSmallFile(path, siteReportLimit)).toString(), path);
}

function checkRelease({ release, version, releaseImage, channel, pathFrom }: CreateArguments): void {
  if ([release, version, releaseImage, channel].filter((each) => each !== undefined).length !== 1)
    throw new PluginError('usage', 'give a version, or --release-image, or --channel');
  if (channel !== undefined && pathFrom !== undefined)
    throw new PluginError('usage', '--path-from needs a version; --channel has --min and --shortest-path');
}

/** Throws `usage` with the latest patches if the version lacks its patch. Asks no update graph if the release is in a directory. */
async function checkPatch(args: CreateArguments, environment: NodeJS.ProcessEnv, context: Context): Promise<void> {
  const { version: text = args.release, fromDir, graphUrl } = args;
  const version = text?.split(',').find((each) => !isVersion(each));
  if (version === undefined || fromDir !== undefined) return;
  const registries = new Registries(await openAccess(args, environment), context);
  try {
    const options = { graphUrl, fetchFile: fetcherOf(registries.connections, context) };
    await requirePatch(version, architectureOf(args), options, context);
  } finally {
    await registries.close();
  }
}

async function requestOf(
  args: CreateArguments,
  site: SiteReport | undefined,
  origin: Origin,
  context: Context,
): Promise<Pick<CreateRequest, 'releases' | 'risks'>> {
  const { release = '', version = release, arch, releaseImage, pathFrom, graphUrl, acceptRisk } = args;
  if (releaseImage !== undefined)
    return { releases: [{ image: releaseImage, ...(arch !== undefined && { arch: architectureOf(args) }) }] };
  const place = { arch: architectureOf(args), repository: repositoryOf(args, origin) };
  const choice = { text: version, from: pathFrom, range: readChannelRange(args) };
  const planned = await planReleases(choice, { ...place, graphUrl, site, acceptRisk }, origin, context);
  const [first = '', ...others] = planned.versions;
  const releases = [{ version: first, ...place }, ...others.map((each) => ({ version: each, ...place }))] as const;
  return { releases, risks: planned.risks };
}

function architectureOf({ arch = 'x86_64' }: CreateArguments): Architecture {
  return parseArchitecture(arch);
}

function repositoryOf({ releaseRepository }: CreateArguments, origin: Origin): string {
  return releaseRepository ?? origin.repository ?? usualRepository;
}

/** Returns the images that a site has, to leave them out; undefined for all, and for a bundle of its own release. */
function heldOf({ includeHeld, version, release, releaseImage }: CreateArguments, site: SiteReport | undefined) {
  const held = site && !includeHeld ? heldImagesOf(site) : undefined;
  const wanted = (version ?? release ?? '').split(',');
  return held && (wanted.includes(held.version) || releaseImage === held.release) ? undefined : held;
}

/** Returns the base of a delta bundle. A version is searched where the release is; other texts are paths. */
function baseOf(base: string, args: CreateArguments, origin: Origin): BaseRequest {
  if (!isVersion(base)) return { path: base };
  return { version: parseVersion(base), arch: architectureOf(args), repository: repositoryOf(args, origin) };
}

import { basename } from 'node:path';
import {
  type BaseRequest,
  createBundle,
  type CreateRequest,
  type CreateResult,
  heldImagesOf,
  openLocalProvider,
  planReleases,
  RegistryProvider,
  type ReleaseProvider,
} from '#bundle/create';
import type { BundleBase, BundledRelease } from '#bundle/metadata';
import { parseSiteReport, siteReportLimit, type SiteReport } from '#config/siteReport';
import { isUpdateReport, updateReportLimits } from '#config/updateReport';
import { readSmallFile } from '#content/files';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { checkDevice, writeDevice } from '#node/media';
import { requirePatch } from '#release/graph';
import { isEncrypted, readEncryptionKey } from '#release/signature';
import { listOtherKeys, loadExpectedKeys, type ExpectedKeys } from '#release/sigstore';
import { isVersion, parseArchitecture, parseVersion, usualRepository, type Architecture } from '#release/version';
import { withoutUrlPasswords, Lines, shellWord, formatBytes } from '#text';
import { findReports, readReportKeyFile } from '#update/report';
import { openAccess, openRegistries, tool } from '../../cli/access.ts';
import { describeStreams } from '../../cli/bundleFacts.ts';
import { defineCommand, type CommandSession } from '../../cli/command.ts';
import { formatFields, formatVolumes, nameReleases } from '../../cli/format.ts';
import { readChannelRanges } from '../../cli/mirroring/channelRange.ts';
import { readImageList } from '../../cli/mirroring/imageSet.ts';
import { formatOptionFile } from '../../cli/optionFile.ts';
import { describePolicies, toPlainPolicies, trustOf } from '../../cli/trust.ts';
import { parseSize } from '../../cli/values.ts';
import { describeCatalogs, requestOperators, toPlainCatalogs } from './catalogs.ts';
import {
  bundleConfig,
  createOptions,
  createPositionals,
  parseReportSpace,
  type CreateArguments,
} from './createOptions.ts';

/** `create`: creates a bundle of a release. */
export const command = defineCommand({
  details:
    'Finds the release by version and architecture, or by --release-image. The signatures are checked before large ' +
    'blobs are fetched. An interrupted run resumes if the same command is run again. With --device, a finished ' +
    'bundle is written onto a USB drive, which must be empty and not mounted. Everything is then read from the drive ' +
    'itself and verified.',
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
      '--version=4.20.3 --output=. --catalog=registry.redhat.io/redhat/redhat-operator-index:v4.20 ' +
        '--operator=web-terminal@fast:1.10.0',
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

/**
 * Creates the bundle that the arguments of `create` describe, and prints what to carry. Throws what createBundle
 * throws.
 */
async function runCreate(
  given: CreateArguments,
  { context, terminal, environment, stdin }: CommandSession,
): Promise<void> {
  checkArguments(given);
  await checkPatch(given, environment, context);
  const expectedKeys = await loadExpectedKeys(given.trustKey);
  const images = await readImageList(given.imagesFrom, stdin);
  const site = await readSiteReport(given.for, given, context);
  const args = { ...given, arch: given.arch ?? (site && parseArchitecture(site.arch)) };
  if (args.printConfig) {
    terminal.print(
      Lines.split(withoutUrlPasswords(formatOptionFile(configArguments(args, site), createOptions, bundleConfig))),
    );
    return;
  }
  const host = { root: '/', environment };
  const device = args.device === undefined ? undefined : await checkDevice(host, args.device, args.overwrite, context);
  const access = await openAccess(args, environment);
  const downloading = {
    ...context,
    onEvent: terminal.transfer(args.fromDir === undefined ? 'Downloading' : 'Copying'),
  };
  await using provider = await (args.fromDir === undefined
    ? new RegistryProvider(access, downloading)
    : openLocalProvider(args.fromDir, access, downloading));
  const request = await createRequestOf(args, { images, site }, provider, context);
  const result = await createBundle(request, provider, downloading);
  for (const text of listOtherKeys(result.policies ?? [], expectedKeys)) context.log('warn', text);
  const { path, digest } = result;
  if (device && digest && args.dryRun === 'none') {
    const writing = { ...context, onEvent: terminal.transfer('Writing') };
    const verifying = { ...context, onEvent: terminal.transfer('Verifying') };
    await writeDevice(host, device, { path, digest }, args.overwrite, { writing, verifying });
  }
  const created = { ...args, device: args.dryRun !== 'none' ? undefined : device?.path };
  const plain = { ...toPlainCreated(result, expectedKeys), device: created.device };
  await terminal.printResult(args.format, plain, formatCreated(result, expectedKeys, created));
}

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

/**
 * Reads the report of a site: of `preflight`, or the signed one of an update, which is the same and more. Warns of a
 * signature that no given key has made. Throws `not-readable`, `untrusted` and `invalid-file`.
 */
async function readSiteReport(
  path: string | undefined,
  { forKey, decryptionKey }: Pick<CreateArguments, 'forKey' | 'decryptionKey'>,
  context: Context,
): Promise<SiteReport | undefined> {
  if (path === undefined) return undefined;
  const bytes = await readSmallFile(path, updateReportLimits.file);
  if (!isUpdateReport(bytes) && !isEncrypted(bytes) && bytes.length <= siteReportLimit && forKey === undefined)
    return parseSiteReport(bytes.toString(), path);
  const keys = forKey === undefined ? [] : [await readReportKeyFile(forKey)];
  for await (const { opened, problem } of findReports(path, { keys, decryptionKey }, context)) {
    if (!opened) throw problem ?? new PluginError('invalid-file', `${path} has no report`);
    const { report, signer, trusted } = opened;
    const days = Math.floor((Date.now() - Date.parse(report.created)) / 86_400_000);
    const made = `made ${report.created}, ${days} days ago`;
    context.log('info', `report ${report.sequence} of cluster ${report.cluster}, ${made}`);
    if (!trusted)
      context.log('warn', `${path} is signed by ${signer}, a key that only the report itself names. Give --for-key`);
    const since = keys.find(({ fingerprint }) => fingerprint === signer)?.since;
    if (since !== undefined && Date.parse(report.created) < Date.parse(since))
      context.log('warn', `${path} is older than the report of the site in --for-key (${since})`);
    return report.site;
  }
  throw new PluginError('invalid-file', `${path} has no report`);
}

/** Checks options that exclude or need each other. Throws `usage`. */
function checkArguments(args: CreateArguments): void {
  const { release, version, releaseImage, channel, pathFrom } = args;
  const choices = {
    [`the version ${release}`]: release,
    '--version': version,
    '--release-image': releaseImage,
    '--channel': channel[0],
  };
  const given = Object.keys(choices).filter((name) => choices[name] !== undefined);
  if (given.length === 0)
    throw new PluginError('usage', 'give a version, or --release-image, or --channel', {
      hint: args.file === undefined ? undefined : 'The file names no release: add --version.',
    });
  if (given.length > 1) throw new PluginError('usage', `give only one of ${given.join(' and ')}`);
  if (channel.length > 0 && pathFrom !== undefined)
    throw new PluginError('usage', '--path-from needs a version; --channel has --min and --shortest-path');
  if (pathFrom !== undefined && (version ?? release)?.includes(','))
    throw new PluginError('usage', '--path-from needs one version, the last on the path');
  if (args.file === '-' && args.imagesFrom === '-')
    throw new PluginError('usage', '--file and --images-from cannot both read the standard input');
}

/**
 * Throws `usage` with the latest patches if the version lacks its patch. Asks no update graph if the release is in a
 * directory.
 */
async function checkPatch(args: CreateArguments, environment: NodeJS.ProcessEnv, context: Context): Promise<void> {
  const { version: text = args.release, fromDir, graphUrl } = args;
  const version = text?.split(',').find((each) => !isVersion(each));
  if (version === undefined || fromDir !== undefined) return;
  await using registries = await openRegistries(args, environment, context);
  const options = { graphUrl, fetchFile: registries.fetchFile };
  await requirePatch(version, architectureOf(args), options, context);
}

/** Returns the content of the bundle. `images` are the extra images of a list. Throws the errors of the graph. */
async function createRequestOf(
  args: CreateArguments,
  { images, site }: { readonly images: readonly string[]; readonly site: SiteReport | undefined },
  provider: ReleaseProvider,
  context: Context,
): Promise<CreateRequest> {
  return {
    ...(await requestReleases(args, site, provider, context)),
    extraImages: [...args.extraImage, ...images],
    operators: requestOperators(args),
    site,
    output: args.output,
    trust: trustOf(args),
    base: args.base === undefined ? heldOf(args, site) : baseOf(args.base, args, provider),
    volumeSize: args.volumeSize === undefined ? undefined : parseSize(args.volumeSize),
    reports: await reportsOf(args),
    dryRun: args.dryRun !== 'none',
    verifyExisting: args.verifyExisting,
    tool,
  };
}

async function requestReleases(
  args: CreateArguments,
  site: SiteReport | undefined,
  provider: ReleaseProvider,
  context: Context,
): Promise<Pick<CreateRequest, 'releases' | 'risks'>> {
  const { release = '', version = release, arch, releaseImage, pathFrom, graphUrl, acceptRisk } = args;
  if (releaseImage !== undefined)
    return { releases: [{ image: releaseImage, ...(arch !== undefined && { arch: architectureOf(args) }) }] };
  const place = { arch: architectureOf(args), repository: repositoryOf(args, provider) };
  const choice = { text: version, from: pathFrom, ranges: readChannelRanges(args) };
  const planned = await planReleases(choice, { ...place, graphUrl, site, acceptRisk }, provider, context);
  const [first = '', ...others] = planned.versions;
  const releases = [{ version: first, ...place }, ...others.map((each) => ({ version: each, ...place }))] as const;
  return { releases, risks: planned.risks };
}

/** Returns how drives take reports; undefined if the arguments say nothing about them. */
async function reportsOf({ reportSpace, reportTo }: CreateArguments): Promise<CreateRequest['reports']> {
  if (reportSpace === undefined && reportTo === undefined) return undefined;
  const key = reportTo === undefined ? undefined : (await readEncryptionKey(reportTo)).key;
  const space = reportSpace === undefined ? undefined : parseReportSpace(reportSpace);
  return { ...(space !== undefined && { space }), ...(key !== undefined && { key }) };
}

function architectureOf({ arch = 'x86_64' }: CreateArguments): Architecture {
  return parseArchitecture(arch);
}

function repositoryOf({ releaseRepository }: CreateArguments, provider: ReleaseProvider): string {
  return releaseRepository ?? provider.repository ?? usualRepository;
}

/** Returns the images that a site has, to leave them out; undefined for all, and for a bundle of its own release. */
function heldOf({ includeHeld, version, release, releaseImage }: CreateArguments, site: SiteReport | undefined) {
  const held = site && !includeHeld ? heldImagesOf(site) : undefined;
  const versions = (version ?? release ?? '').split(',');
  return held && (versions.includes(held.version) || releaseImage === held.release) ? undefined : held;
}

/** Returns the base of a delta bundle. A version is searched where the release is; other texts are paths. */
function baseOf(base: string, args: CreateArguments, provider: ReleaseProvider): BaseRequest {
  if (!isVersion(base)) return { path: base };
  return { version: parseVersion(base), arch: architectureOf(args), repository: repositoryOf(args, provider) };
}

/** Formats the result of `create` for a person. It ends with what to carry to the site. */
function formatCreated(result: CreateResult, keys: ExpectedKeys, args: CreateArguments): Lines {
  const { device, fromDir } = args;
  const isWritten = device !== undefined && result.outcome !== 'planned';
  const isUnread = result.isRead === false && device === undefined;
  const next =
    result.outcome === 'created' || isWritten
      ? [describeTransport(result, args)]
      : isUnread
        ? ['Verify every byte of it', `  ${formatVerify(shellWord(result.path), args, (file) => file)}`]
        : [];
  return new Lines(describeResult(result, keys, fromDir !== undefined), ...next);
}

/** Returns the result of `create` as plain data. */
function toPlainCreated(
  { path, outcome, digest, isRead, fetched, metadata, policies, catalogs = [], osImageStreams }: CreateResult,
  expectedKeys: ExpectedKeys,
): object {
  const { version, arch, release, size, images, blobs, signatures, volumes, base, releases } = metadata;
  return {
    path,
    outcome,
    version,
    arch,
    release,
    size,
    digest,
    isRead,
    fetched,
    images: images.length,
    blobs: blobs.length,
    base,
    volumes,
    ...(releases && { releases: releases.map(toPlainRelease) }),
    ...(catalogs.length > 0 && { catalogs: toPlainCatalogs(catalogs) }),
    osImageStreams,
    signatures,
    ...(policies && { sigstore: toPlainPolicies(policies, expectedKeys) }),
  };
}

function toPlainRelease({ version, release, risks, bytes }: BundledRelease): object {
  return { version, release, risks, bytes };
}

function describeResult(
  { path, outcome, digest, isRead, fetched, metadata, policies, catalogs = [], osImageStreams }: CreateResult,
  expectedKeys: ExpectedKeys,
  isLocal: boolean,
): Lines {
  const [planned, done] = isLocal ? ['To copy', 'Copied'] : ['To fetch', 'Fetched'];
  const signers = Object.values(metadata.signatures).flat();
  const signer = signers[0] ? `${signers[0].signer} (${signers[0].fingerprint})` : 'not signed';
  const title = {
    created: 'Created',
    unchanged: `Nothing to do: the bundle exists, and was ${isRead ? 'read and verified' : 'not read again'}`,
    planned: 'Would create',
  }[outcome];
  const rows = [
    ['Bundle', path],
    ...(metadata.volumes ? [['Volumes', formatVolumes(metadata.volumes)]] : []),
    ['Size', `${formatBytes(metadata.size)} (${metadata.size} bytes)`],
    ...(digest === undefined
      ? []
      : [['Digest', isRead === false ? `${digest} (from ${basename(path)}.sha256)` : digest]]),
    ['Release', metadata.release],
    ['Version', `${nameReleases(metadata)} ${metadata.arch}`],
    ['Signed by', signer],
    ...describePolicies(toPlainPolicies(policies ?? [], expectedKeys)),
    ['Images', `${metadata.images.length} (${metadata.blobs.length} blobs)`],
    ...describeCatalogs(catalogs),
    ...describeStreams(osImageStreams),
    ...(metadata.base ? [['Left out', formatBase(metadata.base)]] : []),
    ...(outcome === 'unchanged' ? [] : [[outcome === 'planned' ? planned : done, formatBytes(fetched)]]),
  ];
  return new Lines(title, formatFields(rows));
}

/** Returns the command that verifies a bundle. `nameOf` returns the name of a key file where the command runs. */
function formatVerify(
  place: string,
  { signatureKeyring, trustFingerprint, trustKey }: CreateArguments,
  nameOf: (file: string) => string,
): string {
  const keys = [
    ...signatureKeyring.map((key) => `--signature-keyring=${shellWord(nameOf(key))}`),
    ...trustKey.map((key) => `--trust-key=${shellWord(nameOf(key))}`),
  ];
  const options = [...keys, ...trustFingerprint.map((fingerprint) => `--trust-fingerprint=${fingerprint}`)];
  return ['oc adm-upgrade-bundle verify', place, ...options].join(' ');
}

/** Lists what a site needs, with the command to verify the bundle there. */
function describeTransport({ path, metadata }: CreateResult, args: CreateArguments): Lines {
  const { signatureKeyring, trustKey, device } = args;
  const { volumes, base } = metadata;
  const bundle = volumes ? `${path}.000 to ${volumes.at(-1)?.name.slice(-3) ?? ''}` : path;
  const medium = device === undefined ? bundle : `the drive in ${device}`;
  const place = device === undefined ? shellWord(basename(path)) : 'DEVICE';
  return new Lines(
    'Files to carry to the site',
    ...[medium, `${path}.sha256`, `${path}.yaml`, ...signatureKeyring, ...trustKey].map((file) => `  ${file}`),
    ...(base && !base.images ? [`  the bundle of ${base.version}, the base, unless the site has it`] : []),
    '  oc-adm_upgrade_bundle, the executable for a machine of the site',
    'At the site, verify the bundle',
    `  ${formatVerify(place, args, (file) => basename(file))}`,
    ...(device === undefined ? [] : [`The bundle is on ${device}, read back and verified. Remove the drive.`]),
  );
}

function formatBase({ version, blobs }: BundleBase): string {
  const bytes = formatBytes(blobs.reduce((sum, { size }) => sum + size, 0));
  return `${bytes} in ${blobs.length} blobs that ${version} has`;
}

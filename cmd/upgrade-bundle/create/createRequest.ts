import { type BaseRequest, type ReleaseProvider, type CreateRequest, planReleases, heldImagesOf } from '#bundle/create';
import { parseSiteReport, siteReportLimit, type SiteReport } from '#config/siteReport';
import { isUpdateReport, updateReportLimits } from '#config/updateReport';
import { readSmallFile } from '#content/files';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { requirePatch } from '#release/graph';
import { isEncrypted, readEncryptionKey } from '#release/signature';
import { isVersion, parseArchitecture, parseVersion, usualRepository, type Architecture } from '#release/version';
import { findReports, readReportKeyFile } from '#update/report';
import { openRegistries, tool } from '../../cli/access.ts';
import { readChannelRanges } from '../../cli/mirroring/channelRange.ts';
import { trustOf } from '../../cli/trust.ts';
import { parseSize } from '../../cli/values.ts';
import { requestOperators } from './catalogs.ts';
import { parseReportSpace, type CreateArguments } from './createOptions.ts';

/** Returns the arguments for a file: with the operators of a site by name, and the version as an option. */
export function configArguments(
  { release, ...args }: CreateArguments,
  site: SiteReport | undefined,
): Record<string, unknown> {
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
export async function readSiteReport(
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
export function checkArguments(args: CreateArguments): void {
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
export async function checkPatch(
  args: CreateArguments,
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<void> {
  const { version: text = args.release, fromDir, graphUrl } = args;
  const version = text?.split(',').find((each) => !isVersion(each));
  if (version === undefined || fromDir !== undefined) return;
  await using registries = await openRegistries(args, environment, context);
  const options = { graphUrl, fetchFile: registries.fetchFile };
  await requirePatch(version, architectureOf(args), options, context);
}

/** Returns the content of the bundle. `images` are the extra images of a list. Throws the errors of the graph. */
export async function createRequestOf(
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

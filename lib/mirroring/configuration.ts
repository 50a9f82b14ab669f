import { stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { type ConfigVerdict, checkConfig, parseConfig, type ConfigText } from '#bundle/metadata';
import { holdsTar, openBundle, checkSigned, type VerifyTrust, verifyUntrusted } from '#bundle/open';
import { applyManifests, type ApplyOptions, type ApplyOutcome } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { checkKinds } from '#cluster/objects';
import { clusterCatalogKind } from '#config/catalogSource';
import type { ConfigManifest } from '#config/manifest';
import { Registries } from '#content/registry';
import { Directory, releaseRepository, parseLocation } from '#content/store';
import type { Context } from '#context';
import { PluginError, firstMessage } from '#errors';
import { parseReleaseTag } from '#release/version';
import { parseManifests, readManifestTexts, type ManifestText } from './manifestFolder.ts';
import { adaptMirrorSets } from './mirror/clusterConfig.ts';
import { withResumeHint, type MirroringAccess } from './mirror/request.ts';

/** The configuration to apply, and the options. */
interface ApplyRequest extends ApplyOptions {
  /** A bundle, a device with a bundle, a mirror directory, or a folder or file with manifests. */
  readonly path: string;
  /** The text of manifests that are in no file; `path` is then its name for messages. */
  readonly text?: string;
  readonly trust: Omit<ConfigurationTrust, 'fetchFile'>;
}

/** The trust for configuration: keys, and registries. */
interface ConfigurationTrust extends VerifyTrust {
  /** The registries that mirror sets and update services may name. */
  readonly registries: readonly string[];
  /** Whether to apply the CatalogSources of a bundle, which its release signature does not cover. */
  readonly catalogs: boolean;
}

/**
 * Applies the configuration in a bundle, mirror directory or folder to a cluster, after checking its signature. Throws
 * `not-found` without manifests, `untrusted`, and the errors of reading, checking and `applyManifests`.
 */
export function applyConfiguration(
  { path, text, trust, ...options }: ApplyRequest,
  access: MirroringAccess,
  context: Context,
): Promise<ApplyOutcome[]> {
  return withResumeHint(async () => {
    const manifests = await readChecked({ path, text, trust }, access, context);
    using cluster = await access.openCluster();
    const chosen = await chooseCatalogs(cluster, manifests, trust.registries, context);
    const adapted = await adaptMirrorSets(cluster, chosen, context);
    return await applyManifests(cluster, adapted, options, context);
  });
}

/** Leaves out catalogs of OLM v1 if the cluster does not serve them, or if no mirror registry is named. */
async function chooseCatalogs(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  registries: readonly string[],
  { log }: Pick<Context, 'log'>,
): Promise<readonly ConfigManifest[]> {
  const { apiVersion, kind } = clusterCatalogKind;
  const catalogs = manifests.filter(({ object }) => object.kind === kind && object.apiVersion === apiVersion);
  if (catalogs.length === 0 || !(await cluster.findKind(apiVersion, kind)))
    return manifests.filter((manifest) => !catalogs.includes(manifest));
  if (registries.length > 0) return manifests;
  const names = catalogs.map(({ path }) => path).join(', ');
  log('info', `${names}: not applied, because OLM v1 needs a mirror registry for its catalogs`);
  return manifests.filter((manifest) => !catalogs.includes(manifest));
}

async function readChecked(
  { path, text, trust }: Pick<ApplyRequest, 'path' | 'text' | 'trust'>,
  access: MirroringAccess,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  await using registries = new Registries(access.registries, context);
  const checking = { ...trust, fetchFile: registries.fetchFile };
  if (text === undefined) return await readConfiguration(path, checking, context);
  return await checkTexts([{ path, file: path, text }], path, checking, context);
}

/**
 * Reads the manifests of a path that may be applied. For a bundle or mirror directory, rebuilds them from its signed
 * releases.
 */
async function readConfiguration(
  path: string,
  trust: ConfigurationTrust,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  const stats = await stat(path).catch(() => undefined);
  if (stats?.isDirectory()) {
    const bundle = (await holdsTar(path)) ? path : await findMirror(path, context);
    return bundle === undefined
      ? readFolder(await findFolder(path), trust, context)
      : readFromBundle(bundle, trust, context);
  }
  // A bundle in volumes exists even if no file has the common name of its volumes.
  const isManifest = /\.(?:ya?ml|json)$/.test(path);
  const isBundle =
    !isManifest && (stats !== undefined || (await parseLocation(path).catch(() => undefined))?.kind === 'archive');
  return isBundle ? readFromBundle(path, trust, context) : readFolder(path, trust, context);
}

/**
 * Returns the mirror directory of a folder: the folder itself, or its parent if the folder is `config`. Undefined if it
 * has releases of several architectures.
 */
async function findMirror(folder: string, context: Context): Promise<string | undefined> {
  const above = dirname(resolve(folder));
  const candidates = [folder, ...(basename(resolve(folder)) === 'config' ? [above] : [])];
  for (const candidate of candidates) {
    if (!(await stat(join(candidate, 'v2', releaseRepository)).catch(() => undefined))?.isDirectory()) continue;
    const isDescribed = (await stat(join(candidate, 'metadata.json')).catch(() => undefined)) !== undefined;
    return isDescribed || (await countArchitectures(candidate, context)) === 1 ? candidate : undefined;
  }
  return undefined;
}

/** Returns the number of architectures of the releases in a mirror directory. */
export async function countArchitectures(root: string, context: Context): Promise<number> {
  const tags = await new Directory(root, releaseRepository, {}, context).tags();
  return new Set(tags.flatMap((tag) => parseReleaseTag(tag)?.arch ?? [])).size;
}

async function findFolder(folder: string): Promise<string> {
  const inside = join(folder, 'config');
  // The other folders of a mirror directory are not configuration, but may have JSON files.
  if (!(await stat(join(folder, 'v2')).catch(() => undefined))) return folder;
  if (await stat(inside).catch(() => undefined)) return inside;
  throw noConfiguration(folder);
}

function noConfiguration(folder: string): PluginError {
  return new PluginError('not-found', `${folder} is a mirror directory without a “config” folder`, {
    hint: 'Create it from the release in the directory, with oc adm-release-mirror-config.',
  });
}

async function readFolder(path: string, trust: VerifyTrust, context: Context): Promise<readonly ConfigManifest[]> {
  return checkTexts(await readManifestTexts(path), path, trust, context);
}

/**
 * Returns the manifests in texts without a release that may be applied: signatures, or all if unsigned content is
 * allowed.
 */
async function checkTexts(
  texts: readonly ManifestText[],
  path: string,
  trust: VerifyTrust,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  if (!trust.allowUnsigned) {
    const manifests = await checkSignatureFolder(texts, path, trust, context);
    if (manifests.length > 0) return manifests;
  }
  const manifests = parseManifests(texts, path);
  checkKinds(manifests, path);
  context.log('warn', `the content of ${path} is not signed; it is applied because unsigned content is allowed`);
  return manifests;
}

async function readFromBundle(
  path: string,
  trust: ConfigurationTrust,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  await using bundle = await openBundle(path, context, { severalReleases: true });
  const { config } = await checkSigned(bundle, trust, context);
  checkRegistries(config, path, trust.registries);
  const catalogs = trust.catalogs ? config.catalogs : [];
  for (const { path: file } of trust.catalogs ? [] : config.catalogs) {
    context.log('warn', `${file} is not applied: the release signature does not cover catalogs of operators`);
  }
  const manifests = [...config.signatures, ...config.mirrors.map(({ manifest }) => manifest), ...catalogs];
  if (manifests.length > 0) return manifests;
  if (bundle.form === 'directory') throw noConfiguration(path);
  throw new PluginError('not-found', `${path} has no configuration: its release was not signed when it was made`);
}

/**
 * Throws `untrusted` for mirror sets with a registry that the user did not name, because no signature covers the
 * registry.
 */
function checkRegistries({ mirrors }: ConfigVerdict, path: string, named: readonly string[]): void {
  for (const { manifest, registries } of mirrors) {
    const foreign = registries.filter((registry) => !named.includes(registry));
    if (foreign.length === 0) continue;
    const words = `${path}: ${manifest.path} sends nodes to ${foreign.join(', ')}, which no signature covers`;
    throw new PluginError('untrusted', words, {
      hint: `Allow ${foreign.join(', ')} only if that is your registry.`,
      settings: ['mirrorRegistry'],
    });
  }
}

/**
 * Checks a folder of configuration without its release. Accepts only signatures by trusted keys. Returns the
 * signatures, rebuilt. Throws `untrusted` with the first other content.
 */
async function checkSignatureFolder(
  texts: readonly ConfigText[],
  folder: string,
  trust: VerifyTrust,
  context: Context,
): Promise<readonly ConfigManifest[]> {
  const config = await parseConfig(texts, context);
  const subject = { digests: new Map<never, never>(), repositories: new Set<never>() };
  const good = await verifyUntrusted(config.signatures, subject.digests, [], trust, context);
  const bundle = { form: 'directory', described: false, metadata: { signatures: {}, extraImages: [] } } as const;
  const { signatures, problems } = checkConfig(bundle, config, subject, { good, lenient: false });
  const message = firstMessage(problems);
  if (message === undefined) return signatures;
  throw new PluginError('untrusted', `${folder} is neither a bundle nor a mirror directory: ${message}`, {
    hint: 'Give the bundle or mirror directory, whose release signature covers its configuration, or trust the key.',
    settings: ['signatureKeyring', 'trustFingerprint', 'allowUnsigned'],
  });
}

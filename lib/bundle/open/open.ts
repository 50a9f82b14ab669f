import { readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { tarOf, SameBytes } from '#content/archive';
import { RootFolder } from '#content/files';
import { sumSizes, formatReference } from '#content/oci';
import { Directory, releaseRepository, directoryLock } from '#content/store';
import type { Context } from '#context';
import { messageOf, PluginError, nameSome } from '#errors';
import { readPayload } from '#release/release';
import { isVersion, compareVersions, isReleaseTag, parseReleaseTag, usualRepository } from '#release/version';
import { shellWord } from '#text';
import { extraImageTag } from '../metadata/images.ts';
import {
  describeReleases,
  metadataPath,
  metadataSizeLimit,
  parseMetadata,
  type BundleMetadata,
} from '../metadata/metadata.ts';
import {
  additionalImagesPath,
  readAdditionalImages,
  readReleaseRepositories,
  repositoriesPath,
} from '../metadata/originalNames.ts';
import {
  type Bundle,
  type OpenBundleOptions,
  type BundleFile,
  type Scanner,
  comparedName,
  entryKindOf,
} from './bundle.ts';
import { openTar } from './openTar.ts';
import { findSplit } from './split.ts';

/**
 * Opens a bundle by the path of a file, a device, a mirror directory, or volumes: any volume, their common name, or a
 * folder with this bundle only. Without metadata.json, a directory is described by its release. Throws `not-readable`,
 * `invalid-bundle`, and `not-found` for a missing file and for a directory without a release.
 */
export async function openBundle(path: string, context: Context, options: OpenBundleOptions = {}): Promise<Bundle> {
  if (options.onMedium) return openTar(path, options, context);
  const split = await findSplit(path);
  if (split !== undefined) return openTar(split, options, context);
  const stats = await stat(path).catch(async (cause: unknown) => {
    const isMissing = ['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '');
    if (isMissing) refuseRelease(path, cause);
    const message = isMissing ? nameMissing(path) : `${path} cannot be read: ${messageOf(cause)}`;
    // An unplugged device cannot be read, so agents try another one.
    const code = isMissing && !/(?:^|\/)dev\//.test(path) ? 'not-found' : 'not-readable';
    throw new PluginError(code, message, {
      hint: isMissing ? await lookAround(path) : undefined,
      cause,
    });
  });
  if (stats.isDirectory()) {
    const only = await findOnlyTar(path);
    return only === undefined ? openDirectory(path, context, options) : openTar(only, options, context);
  }
  if (!stats.isFile() && !stats.isBlockDevice()) {
    throw new PluginError('not-readable', `${path} is neither a file nor a folder nor a block device`, {
      hint: 'A pipe cannot be read from the end: write the bundle to a file first.',
    });
  }
  if (stats.isFile() && stats.size === 0) {
    throw new PluginError('invalid-bundle', `${path} is an empty file`, {
      hint: 'Copy the bundle again from its source.',
    });
  }
  return openTar(path, options, context);
}

/** Returns the tar in a folder that has one, and no other tar or volume; undefined for a mirror directory, too. */
async function findOnlyTar(path: string): Promise<string | undefined> {
  const [only, ...others] = await listTars(path);
  return only?.stats.isFile() && others.length === 0 ? join(path, only.path) : undefined;
}

/** Returns whether a folder has the tar or the volumes of a bundle, and is no mirror directory. */
export async function holdsTar(folder: string): Promise<boolean> {
  return (await listTars(folder)).length > 0;
}

async function listTars(path: string) {
  const folder = new RootFolder(path);
  return (await folder.statOf('v2')) ? [] : await folder.list('', (name) => tarOf(name) !== undefined);
}

/** Throws `usage` for a name of a release or a server, which is no path. */
function refuseRelease(text: string, cause: unknown): void {
  const isUrl = /^[a-z]+:\/\//i.test(text);
  const isImage = /^[^/\s]+[.:][^/\s]*\/\S*[:@]\S+$/.test(text);
  if (!isUrl && !isImage && !isVersion(text)) return;
  const kind = isUrl ? 'a URL' : isImage ? 'an image' : 'a version';
  throw new PluginError('usage', `${text} is ${kind}; a bundle is a file, a device or a mirror directory`, {
    hint: isUrl
      ? 'Download the bundle first. Only the command that loads images takes a URL.'
      : 'Create its bundle first. The commands diff and lint take releases without one.',
    cause,
  });
}

/** Returns a hint about the files at a path without a bundle. */
async function lookAround(path: string): Promise<string> {
  if (isDevice(path)) return 'Check whether it is plugged in: lsblk lists the devices.';
  const folder = dirname(path);
  const names = await readdir(folder).catch(() => undefined);
  if (!names) return `There is no folder ${folder}: check the path, and whether the medium is mounted.`;
  const bundles = names.filter((name) => name.endsWith('.tar')).sort();
  const has = bundles.length === 0 ? 'no .tar file' : nameSome(bundles.map(shellWord), 5);
  return `Check the path: ${folder === '.' ? 'this folder' : folder} has ${has}.`;
}

function nameMissing(path: string): string {
  return isDevice(path) ? `${path}: no such device` : `there is no ${path}`;
}

function isDevice(path: string): boolean {
  return path.startsWith('/dev/');
}

/**
 * Opens a mirror directory: an extracted bundle, or a directory of another tool. Throws `not-found`, `not-readable` and
 * `invalid-bundle`.
 */
async function openDirectory(path: string, context: Context, options: OpenBundleOptions = {}): Promise<Bundle> {
  const folder = new RootFolder(path);
  await requireMirror(folder);
  const content = new Directory(path, releaseRepository, {}, context);
  const files = await listFiles(folder, context);
  const same = new SameBytes(path);
  const read = async (file: string): Promise<Buffer> => same.check(file, await folder.read(file, metadataSizeLimit));
  const described = files.some((file) => entryKindOf(file).kind === 'metadata');
  return {
    path,
    form: 'directory',
    metadata: described
      ? parseMetadata(await read(metadataPath), path)
      : await describeContent(folder, content, files, options, context),
    described,
    size: sumSizes(files),
    trailing: 0,
    isRepacked: false,
    volumes: [],
    faults: [],
    isCut: false,
    content,
    files,
    read,
    scan: async (scanner) => {
      const watched = same.watch(scanner, comparedName);
      await scanFiles(folder, files, watched.scanner, context);
      watched.finish();
      return undefined;
    },
    [Symbol.asyncDispose]: () => content.close(),
  };
}

// Called first, because a folder that was named by mistake may have a million files.
async function requireMirror(folder: RootFolder): Promise<void> {
  const { path } = folder;
  // Throws if one of the folders is a link.
  await folder.statOf(`v2/${releaseRepository}/manifests`);
  if ((await folder.statOf(`v2/${releaseRepository}`))?.isDirectory()) return;
  const names = (await folder.list()).map((entry) => entry.path);
  const tars = names.flatMap((name) => tarOf(name) ?? []);
  const bundles = [...new Set(tars)].sort();
  throw new PluginError('not-found', `${path} is not a mirror directory: it has no v2/${releaseRepository}`, {
    hint:
      bundles.length > 0
        ? `Name a file in it: ${bundles.slice(0, 5).map(shellWord).join(', ')}.`
        : 'Name a bundle, a device with a bundle, or a mirror directory.',
  });
}

async function scanFiles(
  folder: RootFolder,
  files: readonly BundleFile[],
  scanner: Scanner,
  context: Context,
): Promise<void> {
  for (const file of files) {
    if (file.target !== undefined || file.isSpecial) continue;
    scanner(file, Buffer.alloc(0));
    for await (const chunk of folder.stream(file.path, context.signal)) scanner(file, chunk as Buffer);
  }
}

async function listFiles(folder: RootFolder, { signal }: Context): Promise<BundleFile[]> {
  const entries = await folder.tree(signal);
  return entries.flatMap(({ path, stats, target }) => {
    if (target !== undefined) return [{ path, size: 0, target }];
    if (!stats.isFile()) return [{ path, size: 0, isSpecial: true }];
    return [repositoriesPath, additionalImagesPath, directoryLock].includes(path) ? [] : [{ path, size: stats.size }];
  });
}

/** Describes a directory of oc or another tool, by the releases that its tags name. */
async function describeContent(
  folder: RootFolder,
  content: Directory,
  files: readonly BundleFile[],
  { severalReleases = false }: OpenBundleOptions,
  context: Context,
): Promise<BundleMetadata> {
  const { path } = folder;
  const tags = new Set(await content.tags());
  const releases = [...tags].filter(isReleaseTag).sort((a, b) => compareVersions(versionOf(a), versionOf(b)));
  const [tag] = releases;
  if (tag === undefined) {
    throw new PluginError('not-found', `${path} has no release: it has no tag such as 4.12.4-x86_64`);
  }
  if (releases.length > 1 && !severalReleases) {
    throw new PluginError('invalid-bundle', `${path} holds several releases: ${releases.join(', ')}`, {
      hint:
        `Only oc adm-release-mirror-config takes one of them, such as file://${releaseRepository}:${tag}. ` +
        'Other commands need a directory for each release.',
    });
  }
  const repositories = await readReleaseRepositories(folder);
  const described = releases.map(async (each) => {
    const descriptor = await content.resolve(each);
    const repository = repositories.get(descriptor.digest) ?? usualRepository;
    return { release: await readPayload(content, descriptor, { repository }, context), signatures: new Map() };
  });
  const extras = (await readAdditionalImages(folder))
    .filter((image) => releases.some((each) => tags.has(extraImageTag(each, image))))
    .map(({ registry, repository: from, digest }) => formatReference({ registry, repository: from, digest }));
  const facts = describeReleases(
    await Promise.all(described),
    [...new Set(extras)].sort(),
    'not recorded in a mirror directory',
    [],
  );
  const placed = files.map((file) => ({ ...entryKindOf(file), size: file.size }));
  const manifests = new Set(placed.flatMap((place) => (place.kind === 'manifest' ? [place.digest] : [])));
  const blobs = placed.flatMap((place) =>
    place.kind === 'blob' && !manifests.has(place.digest) ? [{ digest: place.digest, size: place.size }] : [],
  );
  return { formatVersion: facts.releases ? 2 : 1, ...facts, blobs, size: 0 };
}

function versionOf(tag: string): string {
  return parseReleaseTag(tag)?.version ?? '';
}

import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { sumSizes } from '../content/oci/descriptor.ts';
import { formatReference } from '../content/oci/reference.ts';
import { readPayload } from '../release/release.ts';
import { compareVersions, isReleaseTag, parseReleaseTag, usualRepository } from '../release/version.ts';
import { shellWord } from '../shellWord.ts';
import { Directory, releaseRepository } from '../content/store/directory.ts';
import { directoryLock } from '../content/store/directoryNames.ts';
import { RootFolder } from '../content/files/rootFolder.ts';
import { SameBytes } from '../content/archive/sameBytes.ts';
import { tarOf } from '../content/archive/volumes.ts';
import { describeReleases } from './metadataFacts.ts';
import { metadataPath, metadataSizeLimit, parseMetadata, type BundleMetadata } from './metadata.ts';
import type { Bundle, BundleFile, OpenBundleOptions, Scanner } from './bundle.ts';
import { comparedName, entryKindOf } from './entryKind.ts';
import {
  additionalImagesPath,
  readAdditionalImages,
  readReleaseRepositories,
  repositoriesPath,
} from './originalNames.ts';
import { extraImageTag } from './images.ts';

/**
 * Opens a mirror directory: an extracted bundle, or a directory of another tool. Throws `not-found`, `not-readable` and
 * `invalid-bundle`.
 */
export async function openDirectory(path: string, context: Context, options: OpenBundleOptions = {}): Promise<Bundle> {
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

import { readdir, readlink, stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { readPayload } from '../release/release.ts';
import { isReleaseTag, usualRepository } from '../release/version.ts';
import { shellWord } from '../shellWord.ts';
import { Directory, releaseRepository } from '../store/directory.ts';
import { describeReadError, readFileContent } from '../store/fileContent.ts';
import { readSmallFile } from '../store/smallFile.ts';
import { parseVolumeName } from '../store/volumes.ts';
import { describeRelease } from './facts.ts';
import { metadataPath, metadataSizeLimit, parseMetadata, type BundleMetadata } from './metadata.ts';
import type { Bundle, BundleFile, Scanner } from './open.ts';
import { placeOf } from './place.ts';

/** Opens a mirror directory, an unpacked bundle or one that another tool wrote. Throws `not-found`, `not-readable` and `invalid-bundle`. */
export async function openDirectory(path: string, context: Context): Promise<Bundle> {
  await requireMirror(path);
  const content = new Directory(path, releaseRepository, {}, context);
  const files = await listFiles(path);
  const read = (file: string): Promise<Buffer> => readSmallFile(join(path, file), metadataSizeLimit);
  const described = files.some((file) => placeOf(file).kind === 'metadata');
  return {
    path,
    form: 'directory',
    metadata: described
      ? parseMetadata(await read(metadataPath), path)
      : await describeContent(path, content, files, context),
    described,
    size: files.reduce((sum, { size }) => sum + size, 0),
    trailing: 0,
    volumes: [],
    faults: [],
    isCut: false,
    content,
    files,
    read,
    scan: (scanner) => scanFiles(path, files, scanner, context),
    close: () => content.close(),
  };
}

// Before anything else, because whatever was named by mistake may hold a million files.
async function requireMirror(path: string): Promise<void> {
  if ((await stat(join(path, 'v2', releaseRepository)).catch(() => undefined))?.isDirectory()) return;
  const names = await readdir(path).catch((error: unknown) => {
    throw describeReadError(error, path);
  });
  const tars = names.flatMap((name) => (name.endsWith('.tar') ? [name] : (parseVolumeName(name)?.path ?? [])));
  const bundles = [...new Set(tars)].sort();
  throw new PluginError('not-found', `${path} is not a mirror directory: it has no v2/${releaseRepository}`, {
    hint:
      bundles.length > 0
        ? `Name a file in it: ${bundles.slice(0, 5).join(', ')}.`
        : 'Name a bundle, a device that holds one, or a directory that a release was mirrored to.',
  });
}

async function scanFiles(
  root: string,
  files: readonly BundleFile[],
  scanner: Scanner,
  context: Context,
): Promise<void> {
  for (const file of files) {
    if (file.target !== undefined) continue;
    scanner(file, Buffer.alloc(0));
    for await (const chunk of readFileContent(join(root, file.path), context.signal)) scanner(file, chunk as Buffer);
  }
}

async function listFiles(root: string): Promise<BundleFile[]> {
  try {
    const entries = await readdir(root, { recursive: true, withFileTypes: true });
    const files = entries
      .filter((entry) => entry.isFile() || entry.isSymbolicLink())
      .map(async (entry): Promise<BundleFile> => {
        const absolute = join(entry.parentPath, entry.name);
        const path = relative(root, absolute).split(sep).join('/');
        if (!entry.isSymbolicLink()) return { path, size: (await stat(absolute)).size };
        return { path, size: 0, target: await readlink(absolute) };
      });
    return (await Promise.all(files)).sort((a, b) => (a.path < b.path ? -1 : 1));
  } catch (error) {
    throw describeReadError(error, root);
  }
}

/** Describes a directory that oc or another tool wrote, by the one release that its tags name. */
async function describeContent(
  path: string,
  content: Directory,
  files: readonly BundleFile[],
  context: Context,
): Promise<BundleMetadata> {
  const releases = (await content.tags()).filter(isReleaseTag).sort();
  const [tag] = releases;
  if (tag === undefined) {
    throw new PluginError('not-found', `${path} has no release: no tag such as 4.12.4-x86_64 is in it`);
  }
  if (releases.length > 1) {
    throw new PluginError('invalid-bundle', `${path} holds several releases: ${releases.join(', ')}`, {
      hint:
        `Name one to oc adm-release-mirror-config: file://${releaseRepository}:${tag} --from-dir=${shellWord(path)}. ` +
        'Other commands need each release in a directory of its own.',
    });
  }
  const release = await readPayload(content, await content.resolve(tag), { repository: usualRepository }, context);
  const facts = describeRelease({ release, signatures: new Map() }, [], 'another tool');
  const placed = files.map((file) => ({ ...placeOf(file), size: file.size }));
  const manifests = new Set(placed.flatMap((place) => (place.kind === 'manifest' ? [place.digest] : [])));
  const blobs = placed.flatMap((place) =>
    place.kind === 'blob' && !manifests.has(place.digest) ? [{ digest: place.digest, size: place.size }] : [],
  );
  return { formatVersion: 1, ...facts, blobs, size: 0 };
}

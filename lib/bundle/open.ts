import { readdir, readlink, stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { checkInterrupted, type Context } from '../context.ts';
import { messageOf, PluginError } from '../errors.ts';
import { isDigest } from '../oci/digest.ts';
import { readPayload } from '../release/release.ts';
import { architectures, isVersion } from '../release/version.ts';
import { Archive } from '../store/archive.ts';
import { Directory, releaseRepository } from '../store/directory.ts';
import { readFileContent } from '../store/fileContent.ts';
import type { ContentSource } from '../store/store.ts';
import { describeRelease } from './facts.ts';
import { metadataPath, metadataSizeLimit, parseMetadata, type BundleMetadata } from './metadata.ts';

/** A file of a bundle, or a symbolic link with its target. */
export interface BundleFile {
  readonly path: string;
  /** In bytes. */
  readonly size: number;
  readonly target?: string;
}

/** Takes the bytes of a bundle in order: of which file they are, undefined for what is between the files of a tar. */
export type Scanner = (file: BundleFile | undefined, chunk: Buffer) => void;

/** A bundle that is there: in a tar, on a device that holds one, or as a mirror directory. Nothing is extracted to read it. */
export interface Bundle {
  readonly path: string;
  readonly form: 'tar' | 'directory';
  readonly metadata: BundleMetadata;
  /** Of the tar, or of all files together, in bytes. */
  readonly size: number;
  readonly content: ContentSource;
  readonly files: readonly BundleFile[];
  /** Where the tar ends before its time, or is garbled; only a tolerant opening gives such a bundle. */
  readonly damage?: PluginError | undefined;
  /** The file in which it breaks off. */
  readonly cutEntry?: string | undefined;
  /** Reads a file whole, 4 MiB at most. */
  read(path: string): Promise<Buffer>;
  /** Reads everything once, in the order in which it lies there. */
  scan(scanner: Scanner): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens a bundle by the path of a file, device or mirror directory. A directory that another tool wrote, without
 * metadata.json, is described by the release in it. With `tolerant`, a tar that is cut short is opened as far as it goes.
 * Throws `not-readable`, `invalid-bundle`, and `not-found` for a directory without a release.
 */
export async function openBundle(path: string, context: Context, tolerant = false): Promise<Bundle> {
  const found = await stat(path).catch((cause: unknown) => {
    throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
  });
  return found.isDirectory() ? openDirectory(path, context) : openTar(path, tolerant, context);
}

async function openTar(path: string, tolerant: boolean, context: Context): Promise<Bundle> {
  const archive = await Archive.open(path, context, tolerant);
  try {
    const first = archive.entries.keys().next().value;
    if (first !== metadataPath) {
      throw new PluginError(
        'invalid-bundle',
        `${path} is a tar, but no upgrade bundle: it does not begin with ${metadataPath}`,
        {
          hint: 'Bundles are made by the create command.',
        },
      );
    }
    return {
      path,
      form: 'tar',
      metadata: parseMetadata(await archive.read(metadataPath, metadataSizeLimit), path),
      size: archive.size,
      content: archive.repository(releaseRepository),
      files: [...archive.entries.values()],
      damage: archive.damage,
      cutEntry: archive.cutEntry,
      read: (file) => archive.read(file),
      scan: (scanner) => scanTar(archive, scanner, context),
      close: () => archive.close(),
    };
  } catch (error) {
    await archive.close();
    throw error;
  }
}

async function scanTar(archive: Archive, scanner: Scanner, context: Context): Promise<void> {
  const files = archive.entries.values();
  let file = files.next().value;
  let position = 0;
  for await (const bytes of archive.streamRange(0, archive.size)) {
    checkInterrupted(context.signal);
    let chunk = bytes as Buffer;
    while (chunk.length > 0) {
      while (file && position >= file.start + file.size) file = files.next().value;
      const inside = file !== undefined && position >= file.start;
      const until = file === undefined ? Number.POSITIVE_INFINITY : inside ? file.start + file.size : file.start;
      const part = chunk.subarray(0, until - position);
      scanner(inside ? file : undefined, part);
      position += part.length;
      chunk = chunk.subarray(part.length);
    }
  }
}

async function openDirectory(path: string, context: Context): Promise<Bundle> {
  const content = new Directory(path, releaseRepository, {}, context);
  const files = await listFiles(path);
  const read = (file: string): Promise<Buffer> => readWhole(join(path, file), context);
  const described = files.some((file) => file.path === metadataPath);
  return {
    path,
    form: 'directory',
    metadata: described
      ? parseMetadata(await read(metadataPath), path)
      : await describeDirectory(path, content, files, context),
    size: files.reduce((sum, { size }) => sum + size, 0),
    content,
    files,
    read,
    scan: async (scanner) => {
      for (const file of files) {
        if (file.target !== undefined) continue;
        for await (const chunk of readFileContent(join(path, file.path), context.signal))
          scanner(file, chunk as Buffer);
      }
    },
    close: () => content.close(),
  };
}

async function readWhole(path: string, context: Context): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of readFileContent(path, context.signal)) {
    chunks.push(chunk as Buffer);
    if ((size += (chunk as Buffer).length) > metadataSizeLimit)
      throw new PluginError('too-large', `${path} is larger than such a file may be`);
  }
  return Buffer.concat(chunks);
}

async function listFiles(root: string): Promise<BundleFile[]> {
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
}

/** Describes a directory that oc or another tool wrote, by the one release that its tags name. */
async function describeDirectory(
  path: string,
  content: Directory,
  files: readonly BundleFile[],
  context: Context,
): Promise<BundleMetadata> {
  const suffix = new RegExp(`^(.+)-(?:${architectures.join('|')})$`);
  const releases = (await content.tags()).filter((tag) => isVersion(suffix.exec(tag)?.[1] ?? ''));
  const [tag] = releases;
  if (tag === undefined)
    throw new PluginError(
      'not-found',
      `${path} is not a mirror directory with a release: it has no tag such as 4.12.4-x86_64`,
    );
  if (releases.length > 1)
    throw new PluginError('invalid-bundle', `${path} holds several releases: ${releases.sort().join(', ')}`);
  const repository = 'quay.io/openshift-release-dev/ocp-release';
  const release = await readPayload(content, await content.resolve(tag), { repository }, context);
  const facts = describeRelease({ release, signatures: new Map() }, [], 'another tool');
  const blobs = files.flatMap(({ path: file, size }) => {
    const digest = /^v2\/openshift\/release\/blobs\/(sha256)[:-]([0-9a-f]{64})$/.exec(file)?.slice(1).join(':') ?? '';
    return isDigest(digest) && !files.some((other) => other.path === file.replace('/blobs/', '/manifests/'))
      ? [{ digest, size }]
      : [];
  });
  return { formatVersion: 1, ...facts, blobs, size: 0 };
}

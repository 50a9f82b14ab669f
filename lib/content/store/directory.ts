import { open, readlink, type FileHandle, rm, rmdir } from 'node:fs/promises';
import { basename, dirname, join, resolve as resolvePath } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import {
  linkOrCopy,
  partialName,
  placeFile,
  removeAbandoned,
  symlinkIfSupported,
  symlinkOrCopy,
} from '../files/atomicWrite.ts';
import { describeWriteError, makeFolders, syncFolder } from '../files/disk.ts';
import { RootFolder, type FolderEntry } from '../files/rootFolder.ts';
import { childrenOf, isManifest, manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, hexOf, isDigest, type Digest, isRepository, isTag } from '../oci/reference.ts';
import { verifyStream, type ContentPlace, type ContentStore, type LocalContent } from './store.ts';

/** Options of Directory, all off by default. */
export interface DirectoryOptions {
  /** Verify the digest of existing blobs, and not only their size. */
  readonly verifyExisting?: boolean;
}

/** A file of a repository: its path relative to the root, and its size in bytes. */
interface FoundFile {
  readonly path: string;
  readonly size: number;
}

/** The repository of a mirror directory to which `oc adm release mirror --to-dir` writes releases. */
export const releaseRepository = 'openshift/release';

/**
 * One repository in a mirror directory, as `oc adm release mirror --to-dir` writes and `oc image mirror --from-dir`
 * reads. `<root>/v2/<repository>/blobs/sha256:<hex>` has blobs and manifests. `manifests/sha256:<hex>` is a hard link
 * to a manifest, and `manifests/<tag>` a symbolic link to it (openshift/oc, pkg/cli/image/imagesource/file.go). Creates
 * nothing before the first push. Follows only links of tags within `manifests/`.
 */
export class Directory implements ContentStore, LocalContent {
  readonly name: string;
  readonly root: string;
  readonly repository: string;
  readonly #files: RootFolder;
  readonly #options: DirectoryOptions;
  readonly #context: Context;
  #prepared: Promise<void> | undefined;

  /** Throws `invalid-reference` for an invalid repository name, so that no path leaves the root. */
  constructor(root: string, repository: string, options: DirectoryOptions, context: Context) {
    if (!isRepository(repository)) {
      throw new PluginError('invalid-reference', `“${repository.slice(0, 100)}” cannot be a repository in ${root}`);
    }
    this.name = join(root, 'v2', repository);
    this.root = root;
    this.repository = repository;
    this.#files = new RootFolder(root);
    this.#options = options;
    this.#context = context;
  }

  /**
   * Implements ContentSource. Throws `incomplete` for a tag that points out of the directory, and for a corrupt
   * manifest.
   */
  async resolve(tagOrDigest: string): Promise<Descriptor> {
    checkInterrupted(this.#context.signal);
    const file = await (isDigest(tagOrDigest) ? this.#find('manifests', tagOrDigest) : this.#followTag(tagOrDigest));
    if (!file) throw this.#notFound(`image ${tagOrDigest}`);
    const bytes = await this.#files.read(file.path, manifestSizeLimit);
    const digest = digestOf(bytes);
    const named = isDigest(tagOrDigest) ? tagOrDigest : digestNamed(basename(file.path));
    if (named !== undefined && named !== digest) {
      throw new PluginError('digest-mismatch', `${this.name}: the content of ${named} is corrupt (it is ${digest})`);
    }
    return { mediaType: parseManifest(bytes, `${digest} in ${this.name}`).mediaType, digest, size: bytes.length };
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    checkInterrupted(this.#context.signal);
    const path = (await this.#locate(descriptor))?.path;
    if (path === undefined) throw this.#notFound(descriptor.digest);
    return verifyStream(this.#files.stream(path, this.#context.signal, start), descriptor, this.#absolute(path), start);
  }

  async *chunks(descriptor: Descriptor, start: number, end: number): AsyncGenerator<Buffer> {
    const path = (await this.#locate(descriptor))?.path;
    if (path === undefined) throw this.#notFound(descriptor.digest);
    yield* this.#files.chunks(path, start, end - start, this.#context.signal);
  }

  /**
   * Returns whether content exists with the right size, and for a manifest whether all its content exists too. Another
   * tool may have left a truncated blob under its final name. With `verifyExisting`, verifies digests, also of both
   * copies of a manifest.
   */
  async exists(descriptor: Descriptor): Promise<boolean> {
    checkInterrupted(this.#context.signal);
    if (!isManifest(descriptor)) return this.#isWhole(await this.#locate(descriptor), descriptor);
    const manifest = await this.#find('manifests', descriptor.digest);
    if (manifest?.size !== descriptor.size) return false;
    const bytes = await this.#files.read(manifest.path, manifestSizeLimit);
    const copy = this.#options.verifyExisting ? await this.#find('blobs', descriptor.digest) : manifest;
    if (digestOf(bytes) !== descriptor.digest || !(await this.#isWhole(copy, descriptor))) return false;
    for (const child of childrenOf(parseManifest(bytes, `${descriptor.digest} in ${this.name}`))) {
      if (!(await this.exists(child))) return false;
    }
    return true;
  }

  /** Returns the size in bytes of a blob or manifest by its digest; undefined if it is missing. */
  async sizeOf(digest: Digest): Promise<number | undefined> {
    return ((await this.#find('blobs', digest)) ?? (await this.#find('manifests', digest)))?.size;
  }

  async tags(): Promise<string[]> {
    checkInterrupted(this.#context.signal);
    const entries = await this.#files.list(this.#path('manifests'), isTagFile);
    const isTagged = ({ path, stats }: FolderEntry): boolean =>
      stats.isSymbolicLink() || (stats.isFile() && !digestNamed(basename(path)));
    return entries.filter(isTagged).map(({ path }) => basename(path));
  }

  /** Implements ContentStore. Also throws `disk-full` and `not-writable`. */
  async push(descriptor: Descriptor, open: () => Promise<Readable>): Promise<void> {
    checkInterrupted(this.#context.signal);
    const { digest } = descriptor;
    await this.#writing(async () => {
      const blob = await this.#find('blobs', digest);
      if (!(await this.#isWhole(blob, descriptor))) await this.#write(descriptor, open);
      if (!isManifest(descriptor) || (await this.#isWhole(await this.#find('manifests', digest), descriptor))) return;
      const written = (await this.#find('blobs', digest))?.path ?? this.#path('blobs', fileNameOf(digest));
      const manifest = this.#path('manifests', fileNameOf(digest));
      await this.#place(manifest, (partial) => linkOrCopy(this.#absolute(written), partial));
    });
  }

  /** Stores a blob as push does. `write` writes the bytes into a new file, and verifies them. */
  async receive(blob: Descriptor, write: (place: ContentPlace) => Promise<void>): Promise<void> {
    checkInterrupted(this.#context.signal);
    const { size } = blob;
    await this.#writing(() =>
      this.#fill(blob, ({ fd }, path) => write({ path, pieces: [{ path, fd, position: 0, size }], present: 0 })),
    );
  }

  /**
   * Mounts a blob from another repository of the same directory by a hard link. Returns false if that repository does
   * not have it.
   */
  async mount(descriptor: Descriptor, fromRepository: string): Promise<boolean> {
    checkInterrupted(this.#context.signal);
    const from = new Directory(this.root, fromRepository, this.#options, this.#context);
    const blob = await from.#find('blobs', descriptor.digest);
    if (!blob || !(await this.#isWhole(blob, descriptor))) return false;
    const to = this.#path('blobs', fileNameOf(descriptor.digest));
    await this.#writing(() => this.#place(to, (partial) => linkOrCopy(this.#absolute(blob.path), partial)));
    return true;
  }

  /** Implements ContentStore. A tag that no link can have is a copy of the manifest, except for those of referrers. */
  async tag(descriptor: Descriptor, tag: string): Promise<void> {
    checkInterrupted(this.#context.signal);
    if (!isTagFile(tag)) {
      throw new PluginError('invalid-reference', `“${tag.slice(0, 200)}” cannot be a tag in ${this.name}`);
    }
    const manifest = (await this.#find('manifests', descriptor.digest))?.path;
    if (manifest === undefined) throw this.#notFound(descriptor.digest);
    const path = this.#path('manifests', tag);
    if ((await readlink(this.#absolute(path)).catch(() => undefined)) === basename(manifest)) return;
    // A file with the name of a tag of referrers is a manifest, as oc writes it on Windows.
    const make = digestNamed(tag) ? symlinkIfSupported : symlinkOrCopy;
    await this.#writing(() => this.#place(path, (partial) => make(this.#absolute(manifest), partial)));
  }

  async close(): Promise<void> {
    if (this.#prepared === undefined) return;
    await this.#prepared;
    await this.#writing(async () => {
      for (const folder of ['blobs', 'manifests'] as const) await syncFolder(this.#absolute(this.#path(folder)));
    });
  }

  #write(descriptor: Descriptor, openContent: () => Promise<Readable>): Promise<void> {
    return this.#fill(descriptor, async (file) => {
      const content = verifyStream(await openContent(), descriptor, this.name);
      for await (const chunk of addAbortSignal(this.#context.signal, content)) await file.writeFile(chunk as Buffer);
    });
  }

  async #fill({ digest }: Descriptor, fill: (file: FileHandle, partial: string) => Promise<void>): Promise<void> {
    await this.#place(this.#path('blobs', fileNameOf(digest)), async (partial) => {
      const file = await open(partial, 'wx', 0o644);
      try {
        await fill(file, partial);
        await file.sync();
      } finally {
        await file.close();
      }
    });
  }

  // Incomplete files are in blobs/, because oc reads each symbolic link in manifests/ as a tag.
  async #place(path: string, make: (partial: string) => Promise<void | boolean>): Promise<void> {
    const what = basename(path).replace(/^sha256[:-]/, '');
    await placeFile(this.#absolute(this.#path('blobs', partialName(what))), this.#absolute(path), async (partial) => {
      const made = await make(partial);
      checkInterrupted(this.#context.signal);
      return made;
    });
  }

  async #writing(action: () => Promise<void>): Promise<void> {
    try {
      await (this.#prepared ??= this.#prepare());
      await action();
    } catch (error) {
      checkInterrupted(this.#context.signal);
      if ((error as NodeJS.ErrnoException).code === 'EINVAL') {
        const what = `the file system of ${this.name} cannot hold names such as sha256:<hex>`;
        throw new PluginError('not-writable', what, {
          hint:
            'FAT and exFAT allow no colons in names and no links. Use ext4 or XFS, or copy a bundle (one tar ' +
            'file) instead.',
          cause: error,
        });
      }
      throw describeWriteError(error, this.name);
    }
  }

  async #prepare(): Promise<void> {
    for (const folder of ['blobs', 'manifests'] as const) {
      // Throws if a parent is a link, before anything is created.
      await this.#files.statOf(this.#path(folder, 'any'));
      await makeFolders(this.#absolute(this.#path(folder)), 0o755);
    }
    const blobs = this.#absolute(this.#path('blobs'));
    for (const name of await removeAbandoned(blobs)) {
      this.#context.log('debug', `removed ${name}, which an earlier run left in ${blobs}`);
    }
  }

  /** Finds the manifest of a tag: the target of its link in manifests/, or a copy. */
  async #followTag(tag: string): Promise<FoundFile | undefined> {
    if (!isTagFile(tag)) return undefined;
    const path = this.#path('manifests', tag);
    const stats = await this.#files.statOf(path);
    if (!stats?.isSymbolicLink()) return stats?.isFile() && !digestNamed(tag) ? { path, size: stats.size } : undefined;
    const target = await this.#files.readLink(path);
    const digest = digestNamed(basename(target));
    const folder = resolvePath(this.#absolute(this.#path('manifests')));
    if (digest === undefined || dirname(resolvePath(folder, target)) !== folder) {
      throw new PluginError('incomplete', `the tag ${tag} in ${this.name} points to none of its manifests`);
    }
    return this.#find('manifests', digest);
  }

  async #locate(descriptor: Descriptor): Promise<FoundFile | undefined> {
    const folders = isManifest(descriptor) ? (['manifests', 'blobs'] as const) : (['blobs', 'manifests'] as const);
    return (await this.#find(folders[0], descriptor.digest)) ?? (await this.#find(folders[1], descriptor.digest));
  }

  #find(folder: 'blobs' | 'manifests', digest: Digest): Promise<FoundFile | undefined> {
    // oc on Windows writes a dash, because file names there cannot have colons. A link of that name is a tag:
    // registries have referrers of an image under such a tag.
    return this.#files.findFile(this.#path(folder, digest), `sha256-${hexOf(digest)}`);
  }

  async #isWhole(file: FoundFile | undefined, descriptor: Descriptor): Promise<boolean> {
    if (file?.size !== descriptor.size) return false;
    if (!this.#options.verifyExisting && !isManifest(descriptor)) return true;
    try {
      const stream = this.#files.stream(file.path, this.#context.signal);
      await finished(verifyStream(stream, descriptor, this.name).resume());
      return true;
    } catch (error) {
      if (isPluginError(error, 'digest-mismatch') || isPluginError(error, 'size-mismatch')) return false;
      throw error;
    }
  }

  /** Returns a path relative to the root. */
  #path(folder: 'blobs' | 'manifests', ...name: string[]): string {
    return ['v2', this.repository, folder, ...name].join('/');
  }

  #absolute(path: string): string {
    return join(this.root, path);
  }

  #notFound(what: string): PluginError {
    return new PluginError('not-found', `${this.name} has no ${what}`);
  }
}

/** The lock file of a mirror directory that this program writes to. */
export const directoryLock = '.mirror.lock';

/** Returns the digest in the name of a file in a mirror directory. The name has a colon, or a dash as on Windows. */
export function digestNamed(name: string): Digest | undefined {
  const digest = name.replace(/^sha256-/, 'sha256:');
  return isDigest(digest) ? digest : undefined;
}

/**
 * Returns the name of the file of a digest. On Windows, a colon in a file name has another meaning, so oc writes a
 * dash.
 */
function fileNameOf(digest: Digest): string {
  return process.platform === 'win32' ? `sha256-${hexOf(digest)}` : digest;
}

/** Returns whether a tag can be the name of a file in a mirror directory, beside its unfinished files. */
export function isTagFile(name: string): boolean {
  return isTag(name) && !/\.(?:download|partial)$/.test(name);
}

/** Lists the manifests of a mirror directory, with and without a tag. */
export async function listManifests({ root, repository }: Directory): Promise<Digest[]> {
  const isNamed = (name: string): boolean => digestNamed(name) !== undefined;
  const entries = await new RootFolder(root).list(`v2/${repository}/manifests`, isNamed);
  return entries.flatMap(({ path, stats }) => (stats.isFile() ? (digestNamed(basename(path)) ?? []) : []));
}

/** Content to remove from a repository. */
export interface RemovedContent {
  readonly tags: readonly string[];
  readonly manifests: readonly Digest[];
  readonly blobs: readonly Digest[];
}

/**
 * Removes content from a mirror directory: tags, then manifests, then blobs. Missing content is no error. Follows no
 * links. Throws `not-writable`.
 */
export async function removeFromDirectory(
  { root, repository, name }: Directory,
  content: RemovedContent,
): Promise<void> {
  const folder = new RootFolder(root);
  const remove = async (
    path: string,
    isRemovable: (isLink: boolean) => boolean = (isLink) => !isLink,
  ): Promise<void> => {
    const whole = `v2/${repository}/${path}`;
    const stats = await folder.statOf(whole);
    if (!stats || stats.isDirectory() || !isRemovable(stats.isSymbolicLink())) return;
    await rm(join(root, whole), { force: true }).catch((error: unknown) => {
      throw describeWriteError(error, name);
    });
  };
  for (const tag of content.tags) await remove(`manifests/${tag}`, () => true);
  for (const digest of content.manifests) {
    for (const file of fileNamesOf(digest)) await remove(`manifests/${file}`);
  }
  for (const digest of [...content.manifests, ...content.blobs]) {
    for (const file of fileNamesOf(digest)) await remove(`blobs/${file}`);
  }
}

/** Removes the folders of an empty repository, up to `v2`. Folders with content stay. Throws `not-writable`. */
export async function removeEmptyFolders({ root, repository, name }: Directory): Promise<void> {
  const folder = new RootFolder(root);
  const parts = repository.split('/');
  const parents = parts.map((_, index) => parts.slice(0, parts.length - index).join('/'));
  for (const path of [`${repository}/manifests`, `${repository}/blobs`, ...parents]) {
    if (!(await folder.statOf(`v2/${path}`))?.isDirectory()) continue;
    if ((await folder.list(`v2/${path}`)).length > 0) return;
    await rmdir(join(root, 'v2', path)).catch((error: unknown) => {
      throw describeWriteError(error, name);
    });
  }
}

// oc on Windows writes a dash. In manifests/, a link of that name is the tag of another image.
function fileNamesOf(digest: Digest): string[] {
  return [digest, `sha256-${hexOf(digest)}`];
}

/**
 * Lists the names of the repositories in a mirror directory, sorted; empty if there are none. Throws the errors of
 * RootFolder.list.
 */
export async function listRepositories(root: string): Promise<string[]> {
  const folder = new RootFolder(root);
  const names: string[] = [];
  const list = async (name: string): Promise<void> => {
    const path = name === '' ? 'v2' : `v2/${name}`;
    const entries = await folder.list(path, (each) => each !== 'blobs');
    const folders = entries.filter(({ stats }) => stats.isDirectory()).map((entry) => basename(entry.path));
    if (folders.includes('manifests') && isRepository(name)) names.push(name);
    for (const each of folders) if (each !== 'manifests') await list(name === '' ? each : `${name}/${each}`);
  };
  await list('');
  return names.sort();
}

import { rm, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { hexOf, type Digest } from '../oci/digest.ts';
import { describeWriteError } from '../files/disk.ts';
import { RootFolder } from '../files/rootFolder.ts';
import { digestNamed } from './directoryNames.ts';
import type { Directory } from './directory.ts';

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

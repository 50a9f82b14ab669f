import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import { isDigest } from '../../../lib/content/oci/reference.ts';
import { readBody, repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';
import { makeFolder } from '../release/mirrorDirectory.ts';

/** Returns the entries of a tar with some content: a mirror directory with one repository. */
export async function entriesOf(content: RegistryContent, repository: string): Promise<TarEntry[]> {
  const { manifests, tags } = repositoryOf(content, repository);
  const folder = `v2/${repository}`;
  const blobs = [...content.blobs].map(async ([digest, body]): Promise<TarEntry> => {
    return { path: `${folder}/blobs/${digest}`, content: await buffer(readBody(body)) };
  });
  return [
    ...[...manifests].map(([digest, { bytes }]) => ({ path: `${folder}/manifests/${digest}`, content: bytes })),
    ...[...tags].map(([tag, target]) => ({ path: `${folder}/manifests/${tag}`, target })),
    ...(await Promise.all(blobs)),
  ];
}

/** Returns the same entries without their content. */
export function withoutContent(entries: readonly TarEntry[]): TarEntry[] {
  return entries.map((entry) => {
    const digest = entry.path.slice(entry.path.lastIndexOf('/') + 1);
    if (!('content' in entry) || !isDigest(digest)) return entry;
    const descriptor = { mediaType: 'application/octet-stream', digest, size: entry.content.length };
    return { path: entry.path, descriptor };
  });
}

/** Returns a whole tar in memory. Missing content stays empty. */
export function makeTarFile(entries: readonly TarEntry[]): Buffer {
  const layout = layOutTar(entries);
  const bytes = Buffer.alloc(layout.size);
  for (const { entry, header, position, start } of layout.entries) {
    header.copy(bytes, position);
    if ('content' in entry) entry.content.copy(bytes, start);
  }
  return bytes;
}

/** Writes a tar, or any other bytes, into its own folder. */
export async function writeTar(bytes: Buffer): Promise<{ folder: string; path: string }> {
  const folder = await makeFolder();
  const path = join(folder, 'upgrade.tar');
  await writeFile(path, bytes);
  return { folder, path };
}

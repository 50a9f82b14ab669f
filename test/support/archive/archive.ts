import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { isDigest } from '../../../lib/oci/digest.ts';
import { layOutTar, type TarEntry } from '../../../lib/archive/tarLayout.ts';
import { readBody, repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';
import { makeFolder } from '../release/mirrorDirectory.ts';

/** What content looks like in a tar: a mirror directory with one repository. */
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

/** The same entries, with all content still to come. */
export function withoutContent(entries: readonly TarEntry[]): TarEntry[] {
  return entries.map((entry) => {
    const digest = entry.path.slice(entry.path.lastIndexOf('/') + 1);
    if (!('content' in entry) || !isDigest(digest)) return entry;
    const descriptor = { mediaType: 'application/octet-stream', digest, size: entry.content.length };
    return { path: entry.path, descriptor };
  });
}

/** A whole tar in memory; content that is still to come is left empty. */
export function makeTarFile(entries: readonly TarEntry[]): Buffer {
  const layout = layOutTar(entries);
  const bytes = Buffer.alloc(layout.size);
  for (const { entry, header, position, start } of layout.entries) {
    header.copy(bytes, position);
    if ('content' in entry) entry.content.copy(bytes, start);
  }
  return bytes;
}

/** Writes a tar, or any other bytes, into a folder of its own. */
export async function writeTar(bytes: Buffer): Promise<{ folder: string; path: string }> {
  const folder = await makeFolder();
  const path = join(folder, 'upgrade.tar');
  await writeFile(path, bytes);
  return { folder, path };
}

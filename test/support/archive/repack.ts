import { readFile, writeFile } from 'node:fs/promises';
import { formatMetadata, metadataPath, type BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import { makeContext } from '../context.ts';

/**
 * An unpacked bundle: the content of each file and the target of each link, in the order of the tar, and its metadata.
 */
export interface UnpackedBundle {
  readonly files: Map<string, Buffer | string>;
  metadata: BundleMetadata;
}

/** Unpacks a bundle, calls `change`, and writes it to `to` as a well-formed tar whose metadata has the right size. */
export async function repack(from: string, to: string, change: (bundle: UnpackedBundle) => void): Promise<string> {
  const archive = await Archive.open(from, makeContext());
  const files = new Map<string, Buffer | string>();
  for (const { path, target } of archive.entries.values()) {
    files.set(path, target ?? (await archive.read(path, Infinity)));
  }
  await archive.close();
  const metadata = JSON.parse(String(files.get(metadataPath))) as BundleMetadata;
  const bundle = { files, metadata };
  change(bundle);
  const layOut = (length: number) => {
    files.set(metadataPath, Buffer.alloc(length));
    return layOutTar([...files].map(([path, content]) => entryOf(path, content)));
  };
  const bytes = formatMetadata(bundle.metadata, (length) => layOut(length).size);
  const layout = layOut(bytes.length);
  const tar = Buffer.alloc(layout.size);
  for (const { entry, header, position, start } of layout.entries) {
    header.copy(tar, position);
    if ('content' in entry) (entry.path === metadataPath ? bytes : entry.content).copy(tar, start);
  }
  await writeFile(to, tar);
  return to;
}

/** Writes a changed copy of a file. */
export async function rewrite(from: string, to: string, change: (bytes: Buffer) => Buffer): Promise<string> {
  await writeFile(to, change(await readFile(from)));
  return to;
}

function entryOf(path: string, content: Buffer | string): TarEntry {
  return typeof content === 'string' ? { path, target: content } : { path, content };
}

import { crc32 } from 'node:zlib';
import { digestOf } from '../oci/digest.ts';
import type { Layer } from '../store/derivedImage.ts';
import { layOutTar, type TarEntry } from './tarLayout.ts';

/**
 * Makes a gzip layer of files by their paths from the root, with their folders. Everything belongs to root and is
 * readable by all users. The same files give the same bytes.
 */
export function makeLayer(files: ReadonlyMap<string, Buffer>): Layer {
  const tar = makeTar(files);
  return { bytes: packTar(tar), diffId: digestOf(tar) };
}

function makeTar(files: ReadonlyMap<string, Buffer>): Buffer {
  const folders = new Set(
    [...files.keys()].flatMap((path) => [...path.matchAll(/\//g)].map(({ index }) => path.slice(0, index))),
  );
  const entries: TarEntry[] = [
    ...[...folders].map((path) => ({ path: `${path}/`, folder: true }) as const),
    ...[...files].map(([path, content]) => ({ path, content })),
  ];
  // By path, so that a folder comes before its content.
  entries.sort((a, b) => (a.path < b.path ? -1 : 1));
  const layout = layOutTar(entries);
  const tar = Buffer.alloc(layout.size);
  for (const { entry, header, position, start } of layout.entries) {
    header.copy(tar, position);
    if ('content' in entry) entry.content.copy(tar, start);
  }
  return tar;
}

/**
 * Packs as gzip (RFC 1952) with stored blocks (RFC 1951, 3.2.4). The output of zlib depends on the processor and on the
 * version of Node.js, and the digest of the image with it.
 */
function packTar(tar: Buffer): Buffer {
  const most = 0xffff;
  const parts: Buffer[] = [Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])];
  for (let start = 0; start < tar.length; start += most) {
    const block = tar.subarray(start, start + most);
    const header = Buffer.alloc(5);
    header.writeUInt8(start + most >= tar.length ? 1 : 0, 0);
    header.writeUInt16LE(block.length, 1);
    header.writeUInt16LE(most - block.length, 3);
    parts.push(header, block);
  }
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc32(tar), 0);
  trailer.writeUInt32LE(tar.length % 2 ** 32, 4);
  return Buffer.concat([...parts, trailer]);
}

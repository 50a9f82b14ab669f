import { crc32 } from 'node:zlib';
import { digestOf, hexOf, type Digest } from '../../oci/digest.ts';
import { layOutTar, type TarEntry } from '../../archive/tarLayout.ts';
import type { GraphData } from './graphArchive.ts';

/** Release signatures by the digests of the releases. */
export type ReleaseSignatures = ReadonlyMap<Digest, readonly Uint8Array[]>;

/** A layer of an image. */
export interface Layer {
  readonly bytes: Buffer;
  /** The digest of the uncompressed layer. */
  readonly diffId: Digest;
}

/** The folder of the data in a graph-data image, from the root. */
export const graphDataFolder = 'var/lib/cincinnati-graph-data';

/**
 * Returns the layer of graph data, with release signatures as `signatures/sha256/<hex>/signature-N`, where the update
 * service (cincinnati, metadata-helper) looks for them. All files belong to root and are world-readable. The same
 * content gives the same bytes.
 */
export function makeLayer(data: GraphData, signatures: ReleaseSignatures): Layer {
  const tar = makeTar(addSignatures(data, signatures));
  return { bytes: packTar(tar), diffId: digestOf(tar) };
}

/** Adds signatures to the signatures of the data, each once. */
function addSignatures(data: GraphData, signatures: ReleaseSignatures): GraphData {
  const files = new Map(data);
  for (const [digest, list] of signatures) {
    const prefix = `signatures/sha256/${hexOf(digest)}/signature-`;
    let number = 1;
    for (const signature of list) {
      const bytes = Buffer.from(signature);
      const taken = (): Buffer | undefined => files.get(`${prefix}${number}`);
      while (taken() && !taken()?.equals(bytes)) number += 1;
      files.set(`${prefix}${number}`, bytes);
    }
  }
  return files;
}

function makeTar(files: GraphData): Buffer {
  const paths = [...files.keys()].map((path) => `${graphDataFolder}/${path}`);
  const folders = new Set(paths.flatMap((path) => [...path.matchAll(/\//g)].map(({ index }) => path.slice(0, index))));
  const entries: (TarEntry & { readonly path: string })[] = [
    ...[...folders].map((path) => ({ path: `${path}/`, folder: true }) as const),
    ...[...files].map(([path, content]) => ({ path: `${graphDataFolder}/${path}`, content })),
  ];
  // Sorted by path, so that a folder comes before its files.
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
 * Packs bytes as gzip (RFC 1952) with stored blocks (RFC 1951, 3.2.4). The output of zlib, and so the digest of the
 * image, would depend on the processor and on the version of Node.js.
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

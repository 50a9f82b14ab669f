import { createCipheriv, createHash } from 'node:crypto';
import { crc32, gzipSync } from 'node:zlib';
import { Header } from 'tar';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';

/** The creation time in test images, so that they do not depend on the clock. */
export const created = '2023-02-01T12:00:00Z';

/** A blob whose bytes are in memory, or generated identically each time they are read. */
export interface TestBlob {
  readonly digest: Digest;
  /** In bytes. */
  readonly size: number;
  read(): Buffer;
  /** Whether it is generated at each read. */
  readonly lazy?: boolean;
}

/** A gzipped tar with the digest of the tar, which an image's configuration names. */
export interface TestLayer extends TestBlob {
  readonly diffId: Digest;
}

/** A blob whose bytes are in memory. */
export function makeBlob(bytes: Buffer): TestBlob {
  return { digest: digestOf(bytes), size: bytes.length, read: () => bytes };
}

/**
 * Returns a layer of about `size` bytes (within 4 KiB), with one file of noise that does not compress. The same seed
 * gives the same bytes. A lazy layer is generated each time it is read, and not kept in memory.
 */
export function makeNoiseLayer(seed: string, size: number, lazy = false): TestLayer {
  const make = (): { tar: Buffer; bytes: Buffer } => {
    const name = seed.replace(/[^\w.-]+/g, '-');
    const tar = makeTar(new Map([[`usr/share/test/${name}`, noise(seed, Math.max(0, size - 2048))]]));
    return { tar, bytes: storeGzip(tar) };
  };
  const { tar, bytes } = make();
  const layer = { ...makeBlob(bytes), diffId: digestOf(tar) };
  return lazy ? { ...layer, lazy, read: () => make().bytes } : layer;
}

/** Returns a compressed layer with the given files (path → text), and an entry for each folder. */
export function makeFileLayer(files: ReadonlyMap<string, string>): TestLayer {
  const tar = makeTar(new Map([...files].map(([path, text]) => [path, Buffer.from(text)])));
  return { ...makeBlob(gzipSync(tar, { level: 9 })), diffId: digestOf(tar) };
}

// AES in counter mode over zeros: fast noise, the same for the same seed.
function noise(seed: string, size: number): Buffer {
  const key = createHash('sha256').update(seed).digest();
  return createCipheriv('aes-256-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(size));
}

function makeTar(files: ReadonlyMap<string, Buffer>): Buffer {
  const folders = new Set([...files.keys()].flatMap(foldersOf));
  const blocks = [
    ...[...folders].map((path) => tarHeader({ path, type: 'Directory', mode: 0o755, size: 0 })),
    ...[...files].flatMap(([path, bytes]) => [
      tarHeader({ path, type: 'File', mode: 0o644, size: bytes.length }),
      bytes,
      Buffer.alloc(-bytes.length & 511),
    ]),
  ];
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

function tarHeader(entry: { path: string; type: 'File' | 'Directory'; mode: number; size: number }): Buffer {
  const header = new Header({ ...entry, mtime: new Date(created), uid: 0, gid: 0 });
  header.encode();
  if (!header.block) throw new Error(`no tar header for ${entry.path}`);
  return header.block;
}

function foldersOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, index) => `${parts.slice(0, index + 1).join('/')}/`);
}

// Gzip with stored blocks (RFC 1951, 3.2.4), which every reader accepts and which needs no time to
// compress noise.
function storeGzip(bytes: Buffer): Buffer {
  const parts: Buffer[] = [Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])];
  const most = 0xffff;
  for (let start = 0; start === 0 || start < bytes.length; start += most) {
    const block = bytes.subarray(start, start + most);
    const header = Buffer.alloc(5);
    header.writeUInt8(start + most >= bytes.length ? 1 : 0, 0);
    header.writeUInt16LE(block.length, 1);
    header.writeUInt16LE(~block.length & most, 3);
    parts.push(header, block);
  }
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc32(bytes), 0);
  trailer.writeUInt32LE(bytes.length % 2 ** 32, 4);
  return Buffer.concat([...parts, trailer]);
}

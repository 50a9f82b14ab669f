/** Zip archives for Windows. The same files give the same bytes. */
import { crc32, deflateRawSync } from 'node:zlib';

/** A file of an archive. */
export interface ZipEntry {
  readonly name: string;
  readonly content: Buffer;
  /** The permissions, if there are any: 0o755. */
  readonly mode: number;
}

/**
 * Creates an archive of files, each smaller than 4 GiB, in their order and without their times. `level` is the
 * compression level, at most 9.
 */
export function makeZip(entries: readonly ZipEntry[], level = 9): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, content, mode } of entries) {
    const packed = deflateRawSync(content, { level });
    const label = Buffer.from(name);
    // The common part of the local header and the directory, from “version needed” on. 1980-01-01
    // is the earliest date.
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(8, 4);
    common.writeUInt16LE(0x21, 8);
    common.writeUInt32LE(crc32(content), 10);
    common.writeUInt32LE(packed.length, 14);
    common.writeUInt32LE(content.length, 18);
    common.writeUInt16LE(label.length, 22);
    parts.push(Buffer.from('PK\x03\x04'), common, label, packed);
    const rest = Buffer.alloc(14);
    // Marked as created on Unix, so that the permissions are used.
    rest.writeUInt32LE(((0o100000 | mode) << 16) >>> 0, 6);
    rest.writeUInt32LE(offset, 10);
    directory.push(Buffer.from('PK\x01\x02'), Buffer.from([20, 3]), common, rest, label);
    offset += 30 + label.length + packed.length;
  }
  const list = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06');
  end.writeUInt16LE(entries.length, 8);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(list.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, list, end]);
}

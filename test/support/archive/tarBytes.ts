/** Fields of a tar header by name, with offset and length in bytes. */
export const headerFields = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  target: [157, 100],
  magic: [257, 8],
  uname: [265, 32],
  gname: [297, 32],
  major: [329, 8],
  minor: [337, 8],
  prefix: [345, 155],
  end: [500, 12],
} as const;

/** The name of a header field. */
export type FieldName = keyof typeof headerFields;

/** Values of fields. */
export type HeaderValues = Readonly<Partial<Record<FieldName, string | Buffer>>>;

/**
 * Creates a header of any content: the given fields, and the others as GNU tar writes a POSIX header. The checksum is
 * right unless given.
 */
export function makeHeader(fields: HeaderValues, size = 0): Buffer {
  const block = Buffer.alloc(512);
  const octal = size.toString(8).padStart(11, '0');
  const all = {
    mode: '0000644\0',
    uid: '0000000\0',
    gid: '0000000\0',
    size: `${octal}\0`,
    mtime: '02264242000\0',
    type: '0',
    magic: 'ustar\x0000',
    ...fields,
  };
  for (const [name, text] of Object.entries(all)) setField(block, name as FieldName, text);
  return fields.checksum === undefined ? fixChecksum(block) : block;
}

/** Overwrites a field of a header, and keeps the checksum. */
export function setField(block: Buffer, field: FieldName, value: string | Buffer): void {
  const [offset, length] = headerFields[field];
  const bytes = typeof value === 'string' ? Buffer.from(value, 'latin1') : value;
  block.fill(0, offset, offset + length);
  bytes.copy(block, offset, 0, length);
}

/** Writes the right checksum into a header, in the spelling of GNU tar. */
export function fixChecksum(block: Buffer): Buffer {
  block.fill(' ', 148, 156);
  let sum = 0;
  for (const byte of block.subarray(0, 512)) sum += byte;
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

/** Pads content with zeros to whole blocks. */
export function padBlocks(content: Buffer | string): Buffer {
  const bytes = Buffer.from(content as string, 'latin1');
  return Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

/** Creates a file with its header. */
export function makeFile(name: string, content: string, fields: HeaderValues = {}): Buffer {
  return Buffer.concat([makeHeader({ name, ...fields }, content.length), padBlocks(content)]);
}

/** Creates a pax header with some content. paxRecord creates the records for it. */
export function makePax(content: string, type = 'x'): Buffer {
  return Buffer.concat([makeHeader({ name: 'PaxHeaders/x', type }, content.length), padBlocks(content)]);
}

/** A record of a pax header. */
export function paxRecord(keyword: string, value: string): string {
  const text = ` ${keyword}=${value}\n`;
  const length = [1, 2, 3, 4]
    .map((digits) => text.length + digits)
    .find((sum, digits) => String(sum).length === digits + 1);
  return `${String(length)}${text}`;
}

/** Creates a header of GNU tar with a long name (`L`) or a long link target (`K`). */
export function makeLong(type: 'L' | 'K', name: string, end = '\0'): Buffer {
  const content = name + end;
  const fields = { name: '././@LongLink', type, magic: 'ustar  \0' };
  return Buffer.concat([makeHeader(fields, content.length), padBlocks(content)]);
}

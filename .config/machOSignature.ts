/**
 * Signs executables for macOS as `codesign --sign -` does: by the digests of their pages, and in nobody’s name. Apple’s processors run
 * nothing without that. The formats are those of `mach-o/loader.h` and of `cs_blobs.h` in Apple’s kernel.
 */
import { createHash } from 'node:crypto';

const pageSize = 4096;
const headerSize = 32;
const commands = { segment: 0x19, signature: 0x1d } as const;
const magics = { program: 0xfeedfacf, signature: 0xfade0cc0, directory: 0xfade0c02 } as const;

/** `codesign` lists what a program must have beside it, and who signed it, even where there is neither. */
const requirements = wordsOf(0xfade0c01, 12, 0);
const signer = wordsOf(0xfade0b01, 8);

/** Pages of memory, by the kind of processor. */
const memoryPages: Readonly<Record<number, number>> = { 0x01000007: 4096, 0x0100000c: 16_384 };

interface Segment {
  /** Where its load command is, from the beginning of the file. */
  readonly place: number;
  /** The part of the file that it is, from `start`. */
  readonly start: number;
  readonly size: number;
}

/**
 * Gives a 64-bit program for macOS, which has no signature, the same with one. Throws for anything else, and where its header has no
 * space left for the command that names the signature.
 */
export function signMachO(program: Buffer, identifier: string): Buffer {
  if (program.readUInt32LE(0) !== magics.program) throw new Error('this is no program for macOS');
  const content = Buffer.concat([program, Buffer.alloc(roundUp(program.length, 16) - program.length)]);
  const segments = readSegments(content);
  const [text, last] = [segments.get('__TEXT'), segments.get('__LINKEDIT')];
  if (!text || !last || last.start + last.size !== program.length) throw new Error('its last segment is not its end');
  const directory = makeDirectory(content.length, text, identifier);
  const length = roundUp(12 + 3 * 8 + directory.length + requirements.length + signer.length, 16);
  // What is in the header is under the signature as well.
  addCommand(content, [commands.signature, 16, content.length, length]);
  const size = content.length + length - last.start;
  content.writeBigUInt64LE(BigInt(roundUp(size, memoryPages[content.readUInt32LE(4)] ?? 16_384)), last.place + 32);
  content.writeBigUInt64LE(BigInt(size), last.place + 48);

  const first = directory.readUInt32BE(16);
  for (let page = 0; page * pageSize < content.length; page += 1) {
    const digest = digestOf(content.subarray(page * pageSize, (page + 1) * pageSize));
    digest.copy(directory, first + page * digest.length);
  }
  return Buffer.concat(
    [content, combine([0, directory], [2, requirements], [0x10000, signer])],
    content.length + length,
  );
}

function readSegments(content: Buffer): Map<string, Segment> {
  const segments = new Map<string, Segment>();
  let place = headerSize;
  for (let left = content.readUInt32LE(16); left > 0; left -= 1) {
    const kind = content.readUInt32LE(place);
    if (kind === commands.signature) throw new Error('it has a signature already');
    if (kind === commands.segment) {
      const [start, size] = [40, 48].map((at) => Number(content.readBigUInt64LE(place + at)));
      const name = content.toString('latin1', place + 8, place + 24).replace(/\0+$/, '');
      segments.set(name, { place, start: start ?? 0, size: size ?? 0 });
    }
    place += content.readUInt32LE(place + 4);
  }
  return segments;
}

function addCommand(content: Buffer, words: readonly number[]): void {
  const size = content.readUInt32LE(20);
  const space = content.subarray(headerSize + size, headerSize + size + 4 * words.length);
  if (space.some((byte) => byte !== 0)) throw new Error('its header has no space for a signature');
  words.forEach((word, index) => space.writeUInt32LE(word, 4 * index));
  content.writeUInt32LE(content.readUInt32LE(16) + 1, 16);
  content.writeUInt32LE(size + space.length, 20);
}

/** The list of digests of a program’s first `length` bytes, without those digests. */
function makeDirectory(length: number, text: Segment, identifier: string): Buffer {
  const name = Buffer.from(`${identifier}\0`);
  // Before the pages, counted backwards: what is said about the program elsewhere, which is nothing, and the requirements.
  const others = Buffer.concat([digestOf(requirements), Buffer.alloc(32)]);
  const pages = Math.ceil(length / pageSize);
  const fixed = 88;
  const first = fixed + name.length + others.length;
  const [version, adHoc, sha256, mainProgram] = [0x20400, 2, 2, 1];
  return Buffer.concat([
    wordsOf(magics.directory, first + 32 * pages, version, adHoc, first, fixed, others.length / 32, pages, length),
    Buffer.from([32, sha256, 0, Math.log2(pageSize)]),
    // Nothing scattered, no team, no program of 4 GiB.
    wordsOf(0, 0, 0, 0, 0, 0),
    wordsOf(0, text.start, 0, text.size, 0, mainProgram),
    name,
    others,
    Buffer.alloc(32 * pages),
  ]);
}

function combine(...blobs: readonly (readonly [kind: number, blob: Buffer])[]): Buffer {
  let end = 12 + 8 * blobs.length;
  const index = blobs.map(([kind, { length }]) => wordsOf(kind, (end += length) - length));
  const content = blobs.map(([, blob]) => blob);
  return Buffer.concat([wordsOf(magics.signature, end, blobs.length), ...index, ...content]);
}

function digestOf(content: Buffer): Buffer {
  return createHash('sha256').update(content).digest();
}

function wordsOf(...words: readonly number[]): Buffer {
  const buffer = Buffer.alloc(4 * words.length);
  words.forEach((word, index) => buffer.writeUInt32BE(word, 4 * index));
  return buffer;
}

function roundUp(size: number, unit: number): number {
  return Math.ceil(size / unit) * unit;
}

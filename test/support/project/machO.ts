import { createHash } from 'node:crypto';

/** What the signature of a program for macOS says. */
export interface MachOSignature {
  readonly identifier: string;
  readonly flags: number;
  /** The digests of its pages, in hexadecimal. */
  readonly pages: readonly string[];
}

/**
 * Reads the signature of a 64-bit program for macOS as the kernel does, with its offsets from the beginning of the file, and compares
 * every digest that is in it with what it is of. Throws what is wrong.
 */
export function checkMachOSignature(content: Buffer): MachOSignature {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  demand(view.getUint32(0, true) === 0xfeedfacf && view.getUint32(12, true) === 2, 'no 64-bit program');
  const segments: [name: string, vmaddr: number, vmsize: number, fileoff: number, filesize: number][] = [];
  const found: [start: number, length: number][] = [];
  let [at, firstSection] = [32, Infinity];
  for (let left = view.getUint32(16, true); left > 0; left -= 1) {
    const [cmd, cmdsize] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
    demand(cmdsize % 8 === 0, `a command of ${cmdsize} bytes`);
    const number = (offset: number): number => Number(view.getBigUint64(at + offset, true));
    if (cmd === 0x19) {
      segments.push([text(content, at + 8, 16), number(24), number(32), number(40), number(48)]);
      for (let section = at + 72; section < at + cmdsize; section += 80) {
        const offset = view.getUint32(section + 48, true);
        if (offset > 0) firstSection = Math.min(firstSection, offset);
      }
    }
    if (cmd === 0x1d) found.push([view.getUint32(at + 8, true), view.getUint32(at + 12, true)]);
    at += cmdsize;
  }
  demand(at === 32 + view.getUint32(20, true) && at <= firstSection, 'load commands that do not fit');
  let [memory, file] = [0, 0];
  for (const [name, vmaddr, vmsize, fileoff, filesize] of segments) {
    demand(vmaddr === memory && (filesize === 0 || fileoff >= file), `${name} does not follow on what is before it`);
    demand(filesize <= vmsize || vmsize === 0, `${name} has no space in memory`);
    [memory, file] = [vmaddr + vmsize, filesize === 0 ? file : fileoff + filesize];
  }
  demand(segments.at(-1)?.[0] === '__LINKEDIT' && file === content.length, 'something behind the last segment');
  const [[start, length] = [0, 0], ...more] = found;
  demand(start > 0 && more.length === 0, `${found.length} signatures`);
  demand(start % 16 === 0 && start + length === content.length, 'a signature that is not the end of the file');
  return checkBlobs(content.subarray(start), content.subarray(0, start), segments[1]?.[4] ?? 0);
}

function checkBlobs(signature: Buffer, signed: Buffer, textSize: number): MachOSignature {
  demand(signature.readUInt32BE(0) === 0xfade0cc0 && signature.readUInt32BE(4) <= signature.length, 'no signature');
  const blobs = new Map<number, Buffer>();
  for (let index = 0; index < signature.readUInt32BE(8); index += 1) {
    const start = signature.readUInt32BE(16 + 8 * index);
    const blob = signature.subarray(start, start + signature.readUInt32BE(start + 4));
    blobs.set(signature.readUInt32BE(12 + 8 * index), blob);
  }
  const directory = blobs.get(0);
  if (directory?.readUInt32BE(0) !== 0xfade0c02) throw new Error('no code directory');
  demand(directory.readUInt32BE(8) >= 0x20400, 'an old code directory');
  demand(directory[36] === 32 && directory[37] === 2 && directory[39] === 12, 'not the sha256 of 4 KiB each');
  const exec = [64, 72, 80].map((at) => Number(directory.readBigUInt64BE(at)));
  demand(exec.join() === [0, textSize, 1].join(), `a main program at ${exec.join()}`);
  const [first, slots, count, limit] = [16, 24, 28, 32].map((at) => directory.readUInt32BE(at)) as number[] &
    [...[number, number, number, number]];
  demand(limit === signed.length && count === Math.ceil(limit / 4096), 'not all of the program');
  demand(first + 32 * count <= directory.length, 'digests behind the end');
  const digestAt = (slot: number): string => directory.toString('hex', first + 32 * slot, first + 32 * (slot + 1));
  const pages = Array.from({ length: count }, (_, page) => digestAt(page));
  const wrong = pages.findIndex((digest, page) => digest !== digestOf(signed.subarray(4096 * page, 4096 * (page + 1))));
  demand(wrong < 0, `page ${wrong} is another one`);
  for (let slot = 1; slot <= slots; slot += 1) {
    const expected = blobs.get(slot);
    demand(digestAt(-slot) === (expected ? digestOf(expected) : '0'.repeat(64)), `slot ${slot} is another one`);
  }
  return { identifier: text(directory, directory.readUInt32BE(20)), flags: directory.readUInt32BE(12), pages };
}

function demand(condition: boolean, problem: string): asserts condition {
  if (!condition) throw new Error(problem);
}

function digestOf(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function text(content: Buffer, start: number, longest = 256): string {
  return content.toString('latin1', start, start + longest).replace(/\0[^]*$/, '');
}

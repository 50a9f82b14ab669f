const blockMagic = 0x314159265359;
const endMagic = 0x177245385090;
const longestCode = 20;
const groupSize = 50;

/**
 * Decompresses one bzip2 stream that fills its input. Reads bit by bit, because OpenPGP messages are small. Throws an
 * Error for malformed input, a wrong checksum, and an output of more than `limit` bytes.
 */
export function decompressBzip2(input: Buffer, limit: number): Buffer {
  const bits = new BitReader(input);
  if (bits.read(24) !== 0x425a68) throw new Error('not bzip2');
  const blockSize = (bits.read(8) - 0x30) * 100_000;
  if (blockSize < 100_000 || blockSize > 900_000) throw new Error('unknown block size');
  const blocks: Buffer[] = [];
  let length = 0;
  let checksum = 0;
  for (;;) {
    const magic = bits.read(24) * 2 ** 24 + bits.read(24);
    const expected = bits.read(32);
    if (magic === endMagic) {
      if (expected !== checksum) throw new Error('wrong checksum');
      bits.expectEnd();
      return Buffer.concat(blocks);
    }
    if (magic !== blockMagic) throw new Error('neither a block nor the end');
    const block = expandRuns(readBlock(bits, blockSize), limit - length);
    const own = checksumOf(block);
    if (own !== expected) throw new Error('wrong checksum');
    checksum = (((checksum << 1) | (checksum >>> 31)) ^ own) >>> 0;
    length += block.length;
    blocks.push(block);
  }
}

class BitReader {
  readonly #input: Buffer;
  #at = 0;

  constructor(input: Buffer) {
    this.#input = input;
  }

  read(count: number): number {
    let value = 0;
    for (let index = 0; index < count; index++, this.#at++) {
      const byte = this.#input[this.#at >> 3];
      if (byte === undefined) throw new Error('unexpected end');
      value = value * 2 + ((byte >> (7 - (this.#at & 7))) & 1);
    }
    return value;
  }

  expectEnd(): void {
    if (Math.ceil(this.#at / 8) !== this.#input.length) throw new Error('trailing data');
  }
}

type ReadSymbol = () => number;

function readBlock(bits: BitReader, blockSize: number): Buffer {
  if (bits.read(1) === 1) throw new Error('randomized blocks are not supported');
  const origin = bits.read(24);
  const alphabet = readAlphabet(bits);
  const symbols = alphabet.length + 2;
  const treeCount = bits.read(3);
  if (treeCount < 2 || treeCount > 6) throw new Error('wrong number of tables');
  const selectors = readSelectors(bits, treeCount);
  const trees = Array.from({ length: treeCount }, () => readTree(bits, symbols));
  const sorted = Buffer.alloc(blockSize);
  let length = 0;
  let run = 0;
  let weight = 1;
  const put = (byte: number, count: number): void => {
    if (length + count > blockSize) throw new Error('a block is too long');
    sorted.fill(byte, length, (length += count));
  };
  for (let decoded = 0; ; decoded++) {
    const symbol = trees[selectors[Math.floor(decoded / groupSize)] ?? treeCount]?.();
    if (symbol === undefined) throw new Error('too few tables');
    if (symbol < 2) {
      // The length of a run, in binary with the digits 1 and 2.
      run += weight * (symbol + 1);
      weight *= 2;
      if (run > blockSize) throw new Error('a run is too long');
      continue;
    }
    put(alphabet[0] ?? 0, run);
    run = 0;
    weight = 1;
    if (symbol === symbols - 1) break;
    const [byte = 0] = alphabet.splice(symbol - 1, 1);
    alphabet.unshift(byte);
    put(byte, 1);
  }
  return unsort(sorted.subarray(0, length), origin);
}

function readAlphabet(bits: BitReader): number[] {
  const groups = bits.read(16);
  const alphabet: number[] = [];
  for (let group = 0; group < 16; group++) {
    if (((groups >> (15 - group)) & 1) === 0) continue;
    const used = bits.read(16);
    for (let index = 0; index < 16; index++) {
      if ((used >> (15 - index)) & 1) alphabet.push(group * 16 + index);
    }
  }
  if (alphabet.length === 0) throw new Error('a block without symbols');
  return alphabet;
}

function readSelectors(bits: BitReader, treeCount: number): number[] {
  const order = Array.from({ length: treeCount }, (_, index) => index);
  return Array.from({ length: bits.read(15) }, () => {
    let position = 0;
    while (bits.read(1) === 1) position++;
    const [tree] = order.splice(position, 1);
    if (tree === undefined) throw new Error('wrong selector');
    order.unshift(tree);
    return tree;
  });
}

function readTree(bits: BitReader, symbols: number): ReadSymbol {
  let length = bits.read(5);
  const lengths = Array.from({ length: symbols }, () => {
    for (;;) {
      if (length < 1 || length > longestCode) throw new Error('wrong code length');
      if (bits.read(1) === 0) return length;
      length += bits.read(1) === 1 ? -1 : 1;
    }
  });
  const byLength = Array.from({ length: longestCode + 1 }, (_, codeLength) =>
    lengths.flatMap((each, symbol) => (each === codeLength ? [symbol] : [])),
  );
  return () => {
    let code = 0;
    let first = 0;
    for (const candidates of byLength.slice(1)) {
      code = code * 2 + bits.read(1);
      first *= 2;
      const symbol = candidates[code - first];
      if (symbol !== undefined) return symbol;
      first += candidates.length;
    }
    throw new Error('wrong code');
  };
}

/** Reverses the Burrows–Wheeler transform. */
function unsort(sorted: Buffer, origin: number): Buffer {
  if (origin >= sorted.length) throw new Error('wrong origin');
  const starts = new Uint32Array(257);
  for (const byte of sorted) starts[byte + 1] = (starts[byte + 1] ?? 0) + 1;
  for (let byte = 0; byte < 256; byte++) starts[byte + 1] = (starts[byte + 1] ?? 0) + (starts[byte] ?? 0);
  const next = new Uint32Array(sorted.length);
  sorted.forEach((byte, index) => {
    const start = starts[byte] ?? 0;
    next[start] = index;
    starts[byte] = start + 1;
  });
  const output = Buffer.alloc(sorted.length);
  let position = next[origin] ?? 0;
  for (let index = 0; index < output.length; index++) {
    output[index] = sorted[position] ?? 0;
    position = next[position] ?? 0;
  }
  return output;
}

// Four equal bytes are followed by the number of further equal bytes.
function expandRuns(block: Buffer, limit: number): Buffer {
  const chunks: Buffer[] = [];
  let length = 0;
  let repeats = 0;
  let last = -1;
  const put = (byte: number, count: number): void => {
    if ((length += count) > limit) throw new RangeError('too much output');
    chunks.push(Buffer.alloc(count, byte));
  };
  for (const byte of block) {
    if (repeats === 4) {
      put(last, byte);
      repeats = 0;
      last = -1;
      continue;
    }
    repeats = byte === last ? repeats + 1 : 1;
    last = byte;
    put(byte, 1);
  }
  return Buffer.concat(chunks);
}

// CRC-32 with the highest bit first. node:zlib has only the other order.
function checksumOf(bytes: Buffer): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x80000000 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  }
  return ~crc >>> 0;
}

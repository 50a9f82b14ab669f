import {
  fixChecksum,
  headerFields,
  makeFile,
  makeLong,
  makePax,
  paxRecord,
  setField,
  type FieldName,
  type HeaderValues,
} from './tarBytes.ts';
import { sampleParts } from './tarSample.ts';
import {
  keywords,
  letters,
  magics,
  makeRandom,
  misspell,
  names,
  prefixes,
  spellNumber,
  targets,
  valuesOf,
} from './tarValues.ts';

const gnu: HeaderValues = { magic: 'ustar  \0' };

/** Returns one mutated tar. The same seed gives the same bytes. */
export function mutateTar(seed: number): Buffer {
  const random = makeRandom(seed);
  const pick: Pick = (from) => from[random(from.length)] as (typeof from)[number];
  const parts = pick(sampleParts).map((part): Buffer => Buffer.from(part));
  const changes = [changeField, changeField, changeNumber, changeNumber, changeByte, insert, insert, insert, reorder];
  for (let count = pick([1, 1, 1, 2, 2, 3]); count > 0; count -= 1) pick(changes)(parts, pick, random);
  const ends = [1024, 1024, 1024, 1024, 1024, 512, 0, 1536, 10_240].map((size) => Buffer.alloc(size));
  const trailing = ['', '', '', '', '', 'trailing', makeFile('late', 'late'), 'x'.repeat(512)].map((bytes) =>
    Buffer.from(bytes as string),
  );
  const bytes = Buffer.concat([...parts, pick(ends), pick(trailing)]);
  return random(30) === 0 ? bytes.subarray(0, random(bytes.length)) : bytes;
}

type Pick = <T>(from: readonly T[]) => T;
type Random = (limit: number) => number;

/** Changes one of the headers in a tar. Afterwards its checksum is usually right. */
function changeHeader(parts: readonly Buffer[], pick: Pick, change: (block: Buffer) => void): void {
  const part = pick([...parts, Buffer.alloc(512)]);
  const headers = Array.from({ length: part.length / 512 }, (_, index) =>
    part.subarray(index * 512, index * 512 + 512),
  );
  const block = pick([
    ...headers.filter((header) => header.toString('latin1', 257, 262) === 'ustar'),
    Buffer.alloc(512),
  ]);
  change(block);
  if (pick([true, true, true, true, true, true, true, true, true, false])) fixChecksum(block);
}

function changeField(parts: readonly Buffer[], pick: Pick): void {
  const dictionary = [
    ['name', names],
    ['type', letters],
    ['magic', magics],
    ['target', targets],
    ['prefix', prefixes],
  ] as const;
  const [field, values] = pick<readonly [FieldName, readonly string[]]>(dictionary);
  changeHeader(parts, pick, (block) => {
    setField(block, field, pick(values));
  });
}

function changeNumber(parts: readonly Buffer[], pick: Pick, random: Random): void {
  changeHeader(parts, pick, (block) => {
    const field = pick(['mode', 'uid', 'gid', 'size', 'size', 'size', 'mtime', 'major', 'minor', 'checksum'] as const);
    const [offset, length] = headerFields[field];
    const value = Number.parseInt(block.toString('latin1', offset, offset + length), 8) || 0;
    setField(block, field, pick(spellNumber(random(4) === 0 ? random(2000) : value, length)));
  });
}

function changeByte(parts: readonly Buffer[], pick: Pick, random: Random): void {
  const flip = (bytes: Buffer, at: number): void => {
    if (at < bytes.length) bytes[at] = pick([random(256), (bytes[at] ?? 0) ^ (1 << random(8))]);
  };
  if (random(5) === 0) {
    const part = pick([...parts, Buffer.alloc(1)]);
    flip(part, random(part.length + 1));
    return;
  }
  changeHeader(parts, pick, (block) => {
    const [offset, length] = headerFields[pick(Object.keys(headerFields) as FieldName[])];
    flip(block, offset + random(length));
  });
}

function insert(parts: Buffer[], pick: Pick, random: Random): void {
  const record = (): string => {
    const keyword = pick(keywords);
    const good = paxRecord(keyword, pick(valuesOf(keyword)));
    return pick([good, good, pick(misspell(good))]);
  };
  const records = (): string => Array.from({ length: 1 + random(3) }, record).join('');
  const goodRecords = (): string => {
    const different = new Set(Array.from({ length: 1 + random(3) }, () => pick(keywords)));
    return [...different].map((keyword) => paxRecord(keyword, pick(valuesOf(keyword)))).join('');
  };
  const extension = (): Buffer =>
    pick([
      () => makePax(records()),
      () => makePax(paxRecord('mtime', '5') + record()),
      () => makePax(record(), pick(['x', 'g', 'X'])),
      () => makeLong('L', pick(names), pick(['\0', '\0', '', '\0\0', '/\0', '\0x'])),
      () => makeLong('K', pick(targets), pick(['\0', '\0', ''])),
    ])();
  const content = pick(['', 'evil', 'x'.repeat(600)]);
  const values = pick([{}, gnu]);
  const add = (...bytes: Buffer[]): void => void parts.splice(random(parts.length + 1), 0, ...bytes);
  pick([
    () => add(extension()),
    () => add(extension(), extension()),
    () => add(makePax(goodRecords()), makeFile('x', content)),
    () => add(makePax(goodRecords()), makeFile('x', content)),
    () => add(makeLong('L', pick(names)), makeFile('x', content, gnu)),
    () => add(makeFile(pick(names), content, values)),
    () => add(makeFile(pick(names), '', { ...values, type: '5', mode: '0000755\0' })),
    () => add(makeFile(pick(names), '', { ...values, type: '2', target: pick(targets) })),
    () => add(makeFile(pick(names), pick(['', 'evil']), { ...values, type: pick(letters), target: pick(targets) })),
    () => add(Buffer.alloc(pick([512, 512, 1024]))),
  ])();
}

function reorder(parts: Buffer[], pick: Pick, random: Random): void {
  const index = random(parts.length);
  const part = parts[index] ?? Buffer.alloc(0);
  pick([
    () => parts.splice(index, 1),
    () => parts.splice(index, 1, part.subarray(0, Math.max(0, part.length - 512))),
    () => parts.splice(index, 0, Buffer.from(pick([...parts, part]))),
    () => parts.push(...parts.splice(index, 1)),
  ])();
}

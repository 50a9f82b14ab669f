import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { isHeader } from '../../../lib/content/archive/tarHeader.ts';
import {
  encodeHeader,
  encodeTar,
  endSize,
  layOutTar,
  readTarStream,
  roundToBlock,
  type TarEntry,
} from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { PluginError } from '../../../lib/errors.ts';
import { listTar } from '../../support/archive/listTar.ts';
import { makeFile, makeHeader, padBlocks } from '../../support/archive/tarBytes.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('layOutTar', () => {
  const descriptor = { mediaType: 'x/y', digest: digestOf('x'), size: 513 };
  const entries: readonly TarEntry[] = [
    { path: 'metadata.json', content: Buffer.from('{}') },
    { path: 'config/', folder: true },
    { path: 'v2/a/manifests/1.0', target: digestOf('x') },
    { path: 'v2/a/blobs/x', descriptor },
    { path: 'empty', content: Buffer.alloc(0) },
  ];

  it('places entries one after the other, in blocks, with two empty blocks at the end', () => {
    const { entries: placed, size, volumeSize } = layOutTar(entries, 4000);
    expect(placed.map(({ position, start, size: own }) => [position, start, own])).to.deep.equal([
      [0, 512, 2],
      [1024, 1536, 0],
      [1536, 2048, 0],
      [2048, 2560, 513],
      [3584, 4096, 0],
    ]);
    expect(placed.map(({ entry }) => entry)).to.deep.equal(entries);
    expect({ size, volumeSize }).to.deep.equal({ size: 4096 + endSize, volumeSize: 4000 });
    expect([0, 1, 512, 513].map(roundToBlock)).to.deep.equal([0, 512, 512, 1024]);
  });

  it('has fixed owners, modes and times', async () => {
    const listed = await listTar(encodeTar([{ path: 'a', content: Buffer.from('text') }]));
    expect(listed).to.deep.equal([
      { path: 'a', mode: 0o644, uid: 0, gid: 0, mtime: '1980-01-01T00:00:00.000Z', text: 'text' },
    ]);
    const modeOf = (entry: TarEntry): string => encodeHeader(entry, 0).toString('latin1', 100, 107).trim();
    expect(
      entries
        .slice(0, 3)
        .map(modeOf)
        .map((mode) => Number.parseInt(mode, 8)),
    ).to.deep.equal([0o644, 0o755, 0o777]);
  });

  it('adds a pax header only for a long name or target, and for a size above 8 GiB', async () => {
    const content = Buffer.alloc(0);
    const [split, long] = [`${'a'.repeat(150)}/${'b'.repeat(90)}`, 'c'.repeat(101)];
    const sizes: [TarEntry, number, number][] = [
      [{ path: split, content }, 8 * 2 ** 30 - 1, 1],
      [{ path: long, content }, 0, 3],
      [{ path: 'a', target: long }, 0, 3],
      [{ path: 'a', content }, 8 * 2 ** 30, 3],
    ];
    for (const [entry, size, blocks] of sizes) {
      const header = encodeHeader(entry, size);
      expect(header.length / 512, entry.path.slice(0, 5)).to.equal(blocks);
      expect(isHeader(header.subarray(0, 512))).to.equal(true);
      expect(isHeader(header.subarray(-512))).to.equal(true);
    }
    const listed = await listTar(encodeTar([split, long].map((path) => ({ path, content }))));
    expect(listed.map(({ path }) => path)).to.deep.equal([split, long]);
  });
});

describe('readTarStream', () => {
  const where = 'backup.tar';
  const tar = Buffer.concat([
    makeHeader({ name: './folder/', type: '5' }),
    makeFile('./folder/a', 'first'),
    makeHeader({ name: 'link', type: '2', target: 'a' }),
    makeFile('b', 'x'.repeat(1500)),
    makeFile('empty', ''),
  ]);
  const end = Buffer.alloc(endSize);

  /** A stream of chunks of some size. Counts the bytes that were read. */
  async function* chunksOf(bytes: Buffer, size: number, seen = { bytes: 0 }): AsyncGenerator<Buffer> {
    for (let at = 0; at < bytes.length; at += size) {
      const chunk = bytes.subarray(at, at + size);
      seen.bytes += chunk.length;
      yield chunk;
    }
  }
  const read = async (bytes: Buffer, size = 1000): Promise<[string, number, string][]> => {
    const files: [string, number, string][] = [];
    for await (const file of readTarStream(chunksOf(bytes, size), where))
      files.push([file.path, file.size, String(await buffer(file.content))]);
    return files;
  };

  it('gives the files of a tar in chunks of any size, without a leading ./', async () => {
    for (const size of [1, 7, 512, 100_000])
      expect(await read(Buffer.concat([tar, end]), size), String(size)).to.deep.equal([
        ['folder/a', 5, 'first'],
        ['b', 1500, 'x'.repeat(1500)],
        ['empty', 0, ''],
      ]);
  });

  it('reads a tar without the blocks at its end, and reads past them to the end of the stream', async () => {
    expect(await read(tar)).to.have.length(3);
    const seen = { bytes: 0 };
    const long = Buffer.concat([tar, end, Buffer.alloc(5000, 'x')]);
    const names: string[] = [];
    for await (const { path } of readTarStream(chunksOf(long, 100, seen), where)) names.push(path);
    expect(names).to.have.length(3);
    expect(seen.bytes).to.equal(long.length);
  });

  it('skips the rest of a file that is read in part', async () => {
    const parts: string[] = [];
    for await (const { content } of readTarStream(chunksOf(Buffer.concat([tar, end]), 700), where))
      for await (const chunk of content) {
        parts.push(String(chunk.subarray(0, 5)));
        break;
      }
    expect(parts).to.deep.equal(['first', 'xxxxx']);
  });

  it('fails in the content at which a stream ends, so that a reader cannot take it for whole', async () => {
    const failures: PluginError[] = [];
    const reading = (async () => {
      for await (const { path, content } of readTarStream(chunksOf(tar.subarray(0, 3000), 100), where))
        if (path === 'b') failures.push(await failureOf(buffer(content), 'invalid-file'));
    })();
    await failureOf(reading, 'invalid-file');
    expect(failures).to.have.length(1);
  });

  it('refuses a stream that ends in content that is skipped', async () => {
    const names: string[] = [];
    const listing = (async () => {
      for await (const { path } of readTarStream(chunksOf(tar.subarray(0, 3000), 100), where)) names.push(path);
    })();
    expect((await failureOf(listing, 'invalid-file')).message).to.match(/ it is truncated$/);
    expect(names).to.deep.equal(['folder/a', 'b']);
  });

  it('refuses a stream that is no tar, or is truncated', async () => {
    for (const bytes of [
      Buffer.from('text'),
      padBlocks('x'.repeat(600)),
      tar.subarray(0, 1000),
      tar.subarray(0, 2500),
      tar.subarray(0, 3000),
    ]) {
      const { message, hint } = await failureOf(read(bytes), 'invalid-file');
      expect(message).to.match(/^backup\.tar cannot be read: it is (?:not a tar, or is )?truncated$/);
      expect(hint).to.match(/^Copy it again/);
    }
  });
});

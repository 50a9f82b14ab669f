import { gunzipSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { expect } from 'chai';
import { isFile, makeLayer, readLayer } from '../../../lib/content/archive/layerReader.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Overlay } from '../../../lib/content/store/derivedImage.ts';
import { listTar } from '../../support/archive/listTar.ts';
import { makeFile, makeHeader, makePax } from '../../support/archive/tarBytes.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const mediaType = 'application/vnd.oci.image.layer.v1.tar+gzip';
const end = Buffer.alloc(1024);
const limits = { packed: 2 ** 20, unpacked: 2 ** 20, headers: 100, of: 'a test', code: 'invalid-release' } as const;

/** Reads a layer of the given bytes. `entries` are its files with their content. Other entries are skipped. */
async function read(bytes: Buffer, changed: { packed?: number; unpacked?: number } = {}) {
  const source = new Overlay('the registry', undefined);
  const files: [path: string, text: string][] = [];
  const unpacked = await readLayer(
    source,
    source.add(mediaType, bytes),
    { ...limits, ...changed },
    makeContext(),
    (entry) => {
      if (!isFile(entry)) return undefined;
      const chunks: Buffer[] = [];
      return {
        write: (chunk) => chunks.push(chunk),
        end: () => files.push([entry.path, Buffer.concat(chunks).toString()]),
      };
    },
  );
  return { files, unpacked };
}

describe('readLayer', () => {
  const tar = Buffer.concat([
    makeHeader({ name: 'folder/', type: '5' }),
    makeFile('folder/a', 'first'),
    makeHeader({ name: 'link', type: '2', target: 'folder/a' }),
    makeFile('b', 'x'.repeat(2000)),
    end,
  ]);

  it('reads the files of a layer with any compression, and counts each unpacked byte', async () => {
    for (const bytes of [tar, gzipSync(tar), zstdCompressSync(tar)]) {
      const { files, unpacked } = await read(bytes);
      expect(files).to.deep.equal([
        ['folder/a', 'first'],
        ['b', 'x'.repeat(2000)],
      ]);
      expect(unpacked).to.equal(tar.length);
    }
  });

  it('refuses a layer that is larger than the limit, and reads none of it', async () => {
    const { message } = await failureOf(read(tar, { packed: tar.length - 1 }), 'too-large');
    expect(message).to.equal(`layer ${digestOf(tar)} in the registry is too large for a test`);
  });

  it('counts every byte that leaves gzip, of skipped headers and of announced sizes', async () => {
    // A pax header of more than 1 MiB is not read. Each is a gzip member of its own.
    const skipped = gzipSync(makePax('x'.repeat(2 * 2 ** 20)));
    // A file that alone would not be too large. It has no content, because the size in its header counts.
    const large = gzipSync(makeHeader({ name: 'large' }, 2 * 2 ** 20));
    const layer = Buffer.concat([skipped, large, gzipSync(end)]);
    const { message } = await failureOf(read(layer, { unpacked: 4 * 2 ** 20 }), 'too-large');
    expect(message).to.match(/^layer \S+ in the registry is too large when it is unpacked$/);
    const alone = Buffer.concat([skipped, gzipSync(end)]);
    expect((await read(alone, { unpacked: 4 * 2 ** 20 })).files).to.deep.equal([]);
    await failureOf(read(alone, { unpacked: 2 * 2 ** 20 }), 'too-large');
  });

  it('limits the number of headers, of files and of skipped headers together', async () => {
    const three = Buffer.concat([makePax('x'), makeHeader({ name: 'of no known type', type: 'Z' }), makeFile('a', '')]);
    const repeat = (count: number): Buffer => Buffer.concat([...Array<Buffer>(count).fill(three), end]);
    expect((await read(repeat(33))).files).to.have.length(33);
    expect((await failureOf(read(repeat(34)), 'too-large')).message).to.match(/has more than 100 headers$/);
  });

  it('unpacks no layer that is compressed twice', async () => {
    for (const inner of [gzipSync(tar), zstdCompressSync(tar)]) {
      const error = await failureOf(read(gzipSync(inner)), 'invalid-release');
      expect(error.message).to.match(/it is compressed twice$/);
    }
  });

  it('ignores bytes after the end', async () => {
    const long = Buffer.concat([tar, Buffer.alloc(50 * 2 ** 20)]);
    expect((await read(gzipSync(long, { level: 1 }))).files).to.have.length(2);
  });

  it('refuses a layer that is truncated or not an archive', async () => {
    for (const bytes of [tar.subarray(0, 1100), Buffer.alloc(5000, 'x'), gzipSync(tar).subarray(0, 50)]) {
      const error = await failureOf(read(bytes), 'invalid-release');
      expect(error.message).to.contain('is not a valid archive: ');
    }
  });

  it('reports corrupt content as corrupt, even if it is no archive or too large when it is unpacked', async () => {
    const bytes = gzipSync(tar);
    const digest = digestOf(bytes);
    const bomb = gzipSync(Buffer.alloc(2 * 2 ** 20), { level: 1 });
    const sized = Buffer.concat([bomb, Buffer.alloc(bytes.length)]).subarray(0, bytes.length);
    for (const corrupt of [sized, Buffer.from(bytes).fill(0, 0, 10), Buffer.alloc(bytes.length)]) {
      const source = new Overlay('the registry', undefined, new Map([[digest, corrupt]]));
      const descriptor = { mediaType, digest, size: bytes.length };
      await failureOf(
        readLayer(source, descriptor, limits, makeContext(), () => undefined),
        'digest-mismatch',
      );
    }
  });

  it('passes on an error of the visitor, and visits nothing after it', async () => {
    const source = new Overlay('the registry', undefined);
    const visited: string[] = [];
    const failing = readLayer(source, source.add(mediaType, tar), limits, makeContext(), ({ path }) => {
      visited.push(path);
      if (path === 'folder/a') throw new RangeError('too many files');
      return undefined;
    });
    expect(await failing.catch((error: unknown) => error)).to.be.instanceOf(RangeError);
    expect(visited).to.deep.equal(['folder/', 'folder/a']);
  });

  it('unpacks nothing after an interruption', async () => {
    const source = new Overlay('the registry', undefined);
    const context = makeContext();
    const layer = source.add(mediaType, gzipSync(tar));
    context.interrupt();
    await failureOf(
      readLayer(source, layer, limits, context, () => undefined),
      'interrupted',
    );
  });
});

describe('makeLayer', () => {
  it('makes a world-readable layer that belongs to root, folders before their files', async () => {
    const content = new Map([
      ['a/c/file', Buffer.from('text')],
      ['a/b', Buffer.alloc(70_000, 'x')],
    ]);
    const { bytes, diffId } = makeLayer(content);
    const tar = gunzipSync(bytes);
    expect(digestOf(tar)).to.equal(diffId);
    const entries = await listTar(tar);
    expect(entries.map(({ path }) => path)).to.deep.equal(['a/', 'a/b', 'a/c/', 'a/c/file']);
    for (const { path, mode, uid, gid, mtime } of entries) {
      expect({ mode, uid, gid }, path).to.deep.equal({ mode: path.endsWith('/') ? 0o755 : 0o644, uid: 0, gid: 0 });
      expect(mtime).to.equal('1980-01-01T00:00:00.000Z');
    }
    expect(entries.map(({ text }) => text)).to.deep.equal(['', 'x'.repeat(70_000), '', 'text']);
  });

  it('makes the same bytes for any order of the files', () => {
    const files: [string, Buffer][] = [
      ['b/c', Buffer.from('c')],
      ['a', Buffer.from('a')],
    ];
    const { bytes } = makeLayer(new Map(files));
    expect(makeLayer(new Map(files.toReversed())).bytes.equals(bytes)).to.equal(true);
  });
});

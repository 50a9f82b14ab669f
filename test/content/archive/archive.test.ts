import { execFileSync } from 'node:child_process';
import { mkdir, open, readFile, readlink, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { Header, Pax } from 'tar';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { entriesOf, makeTarFile, writeTar } from '../../support/archive/archive.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { describeSource, makeSample } from '../store/contract.ts';

describeSource('Archive', async (content, repository, context) => {
  const entries = await entriesOf(content, repository);
  const { folder, path } = await writeTar(makeTarFile(entries));
  const archive = await Archive.open(path, context);
  return {
    store: archive.repository(repository),
    damage: async (digest, change) => {
      const place = archive.entries.get(`v2/${repository}/blobs/${digest}`);
      if (!place) throw new Error(`there is no ${digest}`);
      await using file = await open(path, 'r+');
      const { buffer: bytes } = await file.read(Buffer.alloc(place.size), 0, place.size, place.start);
      await file.write(change(bytes), 0, place.size, place.start);
    },
    remove: async () => {
      await archive.close();
      await removeFolder(folder);
    },
  };
});

describe('Archive', () => {
  const context = makeContext();
  const cleanups: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const clean of cleanups.splice(0).reverse()) await clean();
  });

  const write = async (bytes: Buffer): Promise<string> => {
    const { folder, path } = await writeTar(bytes);
    cleanups.push(() => removeFolder(folder));
    return path;
  };
  const openTar = async (path: string, tolerant = false): Promise<Archive> => {
    const archive = await Archive.open(path, context, tolerant);
    cleanups.push(() => archive.close());
    return archive;
  };
  const digest = digestOf('layer');
  const entries: readonly TarEntry[] = [
    { path: 'metadata.json', content: Buffer.from('{}\n') },
    { path: `v2/a/manifests/1.0`, target: digest },
    { path: `v2/a/blobs/${digest}`, content: Buffer.alloc(3000, 'x') },
    { path: 'config/empty.yaml', content: Buffer.alloc(0) },
    { path: 'config/exact.yaml', content: Buffer.alloc(1024, 'y') },
  ];

  it('lists files and links with their places, in order', async () => {
    const archive = await openTar(await write(makeTarFile(entries)));
    expect([...archive.entries.keys()]).to.deep.equal(entries.map(({ path }) => path));
    expect(archive.entries.get('v2/a/manifests/1.0')).to.deep.include({ target: digest, size: 0 });
    expect(archive.size).to.equal(layOutTar(entries).size);
    expect(archive.isRepacked).to.equal(false);
    expect(archive.repositories()).to.deep.equal(['a']);
    expect((await archive.read('metadata.json')).toString()).to.equal('{}\n');
    expect(await archive.read('config/empty.yaml')).to.have.length(0);
  });

  it('reads small files only, and only existing ones', async () => {
    const archive = await openTar(await write(makeTarFile(entries)));
    await failureOf(archive.read(`v2/a/blobs/${digest}`, 2999), 'too-large');
    await failureOf(archive.read('nope'), 'not-found');
    await failureOf(archive.read('v2/a/manifests/1.0'), 'not-found');
  });

  it('lists the tags of one repository only', async () => {
    const archive = await openTar(
      await write(makeTarFile([...entries, { path: 'v2/b/manifests/2.0', target: digest }])),
    );
    expect(await archive.repository('a').tags()).to.deep.equal(['1.0']);
  });

  it('streams many files at the same time, and continues if one of the readers stops', async () => {
    const archive = await openTar(await write(makeTarFile(entries)));
    const path = `v2/a/blobs/${digest}`;
    archive.stream(path).destroy();
    const left = archive.stream(path);
    left.once('data', () => left.destroy());
    const all = await Promise.all(Array.from({ length: 100 }, (_, index) => buffer(archive.stream(path, index))));
    expect(all.map(({ length }) => length)).to.deep.equal(all.map((_, index) => 3000 - index));
    expect(await buffer(archive.stream(path, 3001))).to.have.length(0);
  });

  it('says in words that a file was changed below it', async () => {
    const path = await write(makeTarFile(entries));
    const archive = await openTar(path);
    await truncate(path, 2048);
    await failureOf(archive.read(`v2/a/blobs/${digest}`), 'not-readable');
  });

  it('reads tars of GNU tar, with folders and a leading ./', async function () {
    requirePeer(this, 'tar');
    const folder = await makeFolder();
    cleanups.push(() => removeFolder(folder));
    const long = join('a'.repeat(90), 'b'.repeat(90));
    await mkdir(join(folder, 'in', long), { recursive: true });
    await writeFile(join(folder, 'in', long, 'file'), 'content');
    await mkdir(join(folder, 'in', 'v2/a/manifests'), { recursive: true });
    await symlink(digest, join(folder, 'in', 'v2/a/manifests/1.0'));
    for (const format of ['ustar', 'pax', 'gnu']) {
      const path = join(folder, `${format}.tar`);
      await runSuccessfully('tar', ['--format', format, '-C', join(folder, 'in'), '-cf', path, '.']);
      const archive = await openTar(path);
      expect((await archive.read(`${long}/file`)).toString()).to.equal('content');
      expect(archive.entries.get('v2/a/manifests/1.0')?.target).to.equal(digest);
      expect(archive.isRepacked).to.equal(true);
    }
  });

  it('is read by GNU tar, which unpacks the same tree', async function () {
    requirePeer(this, 'tar');
    const sample = makeSample();
    const long = Array.from({ length: 12 }, () => 'folder-with-a-long-name').join('/');
    const packed = [
      ...(await entriesOf(sample.content, sample.repository)),
      { path: `${'a'.repeat(80)}/${'b'.repeat(90)}`, content: Buffer.from('split') },
      { path: `${long}/file`, content: Buffer.from('long') },
      { path: `v2/${'c'.repeat(120)}/manifests/link`, target: digest },
    ];
    const path = await write(makeTarFile(packed));
    const archive = await openTar(path);
    const listing = (await runSuccessfully('tar', ['-tf', path])).trim().split('\n');
    expect(listing).to.deep.equal(packed.map((entry) => entry.path));
    expect([...archive.entries.keys()]).to.deep.equal(listing);
    const root = await makeFolder();
    cleanups.push(() => removeFolder(root));
    await runSuccessfully('tar', ['-xf', path, '-C', root]);
    for (const entry of packed) {
      if ('target' in entry) {
        expect(await readlink(join(root, entry.path))).to.equal(entry.target);
      } else if ('content' in entry) {
        const unpacked = await readFile(join(root, entry.path));
        expect(unpacked.equals(entry.content), entry.path).to.equal(true);
        expect((await archive.read(entry.path)).equals(unpacked), entry.path).to.equal(true);
      }
    }
  });

  it('finds its way past content of more than 8 GiB', async function () {
    const size = 9 * 2 ** 30;
    const large = { mediaType: 'application/octet-stream', digest, size };
    const planned = [{ path: 'large', descriptor: large }, ...entries];
    const layout = layOutTar(planned);
    const path = await write(Buffer.alloc(0));
    await using file = await open(path, 'r+');
    await file.truncate(layout.size);
    for (const { entry, header, position, start } of layout.entries) {
      await file.write(header, 0, header.length, position);
      if ('content' in entry) await file.write(entry.content, 0, entry.content.length, start);
    }
    const archive = await openTar(path);
    expect(archive.entries.get('large')).to.deep.include({ size });
    expect((await archive.read('metadata.json')).toString()).to.equal('{}\n');
    requirePeer(this, 'tar');
    const listing = await runSuccessfully('tar', ['-tvf', path]);
    expect(listing).to.contain(String(size));
  });

  describe('with something that is no bundle', () => {
    for (const [what, bytes] of Object.entries({
      'an empty file': Buffer.alloc(0),
      'a single byte': Buffer.from('x'),
      'a text': Buffer.from('hello\n'.repeat(1000)),
      'nothing but zeroes': Buffer.alloc(10_240),
    })) {
      it(`refuses ${what}`, async () => {
        const path = await write(bytes);
        const error = await failureOf(Archive.open(path, context), 'invalid-bundle');
        expect(error.message).to.contain(path).and.contain('not a tar');
        await failureOf(Archive.open(path, context, true), 'invalid-bundle');
      });
    }

    it('says of a file beside a bundle which one it belongs to, and of a gzipped one how to decompress it', async () => {
      const hintOf = async (suffix: string, bytes: Buffer): Promise<string | undefined> => {
        const path = `${await write(Buffer.alloc(0))}.tar${suffix}`;
        await writeFile(path, bytes);
        return (await failureOf(Archive.open(path, context), 'invalid-bundle')).hint;
      };
      expect(await hintOf('.sha256', Buffer.from('x'))).to.match(/^Give the bundle: .*\.tar$/);
      expect(await hintOf('.yaml', Buffer.from('x'))).to.match(/^Give the bundle: .*\.tar$/);
      expect(await hintOf('.gz', gzipSync('x'))).to.match(/^Decompress it: gunzip -k .*\.tar\.gz$/);
    });

    it('refuses a folder, and a missing file', async () => {
      const path = await write(Buffer.alloc(0));
      await failureOf(Archive.open(join(path, '..'), context), 'not-readable');
      await failureOf(Archive.open(`${path}.not`, context), 'not-readable');
    });

    const block = (fields: Partial<Header>): Buffer => {
      const header = new Header({ path: 'x', mode: 0o644, size: 0, mtime: new Date(0), type: 'File', ...fields });
      header.encode();
      return header.block ?? Buffer.alloc(0);
    };
    const pax = (records: string): Buffer => {
      const bytes = Buffer.alloc(Math.ceil(records.length / 512) * 512);
      bytes.write(records);
      return Buffer.concat([block({ path: 'PaxHeader/x', type: 'ExtendedHeader', size: records.length }), bytes]);
    };
    const record = (text: string): string => {
      const length = text.length + 2 + String(text.length + 4).length;
      return `${length} ${text}\n`;
    };
    const negative = (): Buffer => {
      const bytes = block({ type: 'Directory' });
      bytes.fill(0xff, 124, 136);
      bytes.write('        ', 148);
      const sum = bytes.reduce((total, byte) => total + byte, 0);
      bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
      return bytes;
    };
    for (const [what, bytes] of Object.entries({
      'a path that leaves it': block({ path: '../../etc/passwd' }),
      'a path that leaves it halfway': block({ path: 'a/../../b' }),
      'an absolute path': block({ path: '/etc/passwd' }),
      'a path that leaves it, in a pax header': Buffer.concat([pax(record('path=../x')), block({})]),
      'a hard link': block({ type: 'Link', linkpath: 'metadata.json' }),
      'a device': block({ type: 'CharacterDevice' }),
      'a pipe': block({ type: 'FIFO' }),
      'a sparse file': block({ type: 'GNUDumpDir' }),
      'a name twice': block({ path: 'metadata.json' }),
      'a name twice, written otherwise': block({ path: './metadata.json' }),
      'a pax header that is absurdly large': Buffer.concat([
        block({ type: 'ExtendedHeader', size: 100_000 }),
        Buffer.alloc(100_352),
      ]),
      'a long name of GNU tar that is absurdly large': Buffer.concat([
        block({ type: 'NextFileHasLongPath', size: 100_000 }),
        Buffer.alloc(100_352),
      ]),
      'a long name of GNU tar that leaves it': Buffer.concat([
        block({ type: 'NextFileHasLongPath', size: 5 }),
        Buffer.concat([Buffer.from('../x\0')], 512),
        block({}),
      ]),
      'a size that no file has': Buffer.concat([pax(record('size=1e300')), block({})]),
      'a size that is no whole number': Buffer.concat([pax(record('size=1.5')), block({}), Buffer.alloc(512)]),
      'a size that says that it goes on for ever': Buffer.concat([pax(record('size=Infinity')), block({})]),
      'a size below zero, which would lead it back': negative(),
      'a link that leads anywhere but to a manifest beside it': block({
        path: 'v2/a/manifests/2.0',
        type: 'SymbolicLink',
        linkpath: '../../../etc/passwd',
      }),
      'a link that is no tag': block({ path: 'config/link', type: 'SymbolicLink', linkpath: digest }),
      'an entry below a link': block({ path: 'v2/a/manifests/1.0/x' }),
      'a header for no entry': pax(record('path=x')),
      'garbage for a header': Buffer.alloc(512, 'garbage'),
      'a header of which every bit was flipped': block({}).map((byte) => ~byte),
      'a header that was wiped out': Buffer.concat([Buffer.alloc(512), Buffer.alloc(512, 'content')]),
    })) {
      it(`refuses a tar with ${what}, and opens it up to that point on request`, async () => {
        const good = makeTarFile(entries).subarray(0, -1024);
        const path = await write(Buffer.concat([good, bytes, Buffer.alloc(1024)]));
        const error = await failureOf(Archive.open(path, context), 'invalid-bundle');
        expect(error.message).to.contain(path);
        const archive = await openTar(path, true);
        expect([...archive.entries.keys()]).to.deep.equal(entries.map((entry) => entry.path));
        expect(archive.damage?.message).to.equal(error.message);
      });
    }
  });

  describe('with a tar that is cut', () => {
    const whole = makeTarFile(entries);
    const layout = layOutTar(entries);
    const [, link, blob, , last] = layout.entries;
    if (!link || !blob || !last) throw new Error('the entries are fewer');
    for (const [what, at, cutEntry, count] of [
      ['in the first header', 100, undefined, 0],
      ['before the content of the first file', 512, 'metadata.json', 0],
      ['between two entries', link.position, undefined, 1],
      ['in a header', blob.position + 100, undefined, 2],
      ['before some content', blob.start, blob.entry.path, 2],
      ['in some content', blob.start + 2000, blob.entry.path, 2],
      ['after some content, before its padding ends', blob.start + 3000, blob.entry.path, 2],
      ['after the last content', last.start + 1024, undefined, 5],
      ['in the first of the blocks that end it', last.start + 1100, undefined, 5],
      ['before the last of the blocks that end it', last.start + 1536, undefined, 5],
    ] as const) {
      it(`refuses one truncated ${what}, and opens it up to that point on request`, async () => {
        const path = await write(whole.subarray(0, at));
        await failureOf(Archive.open(path, context), 'invalid-bundle');
        if (count === 0) {
          await failureOf(Archive.open(path, context, true), 'invalid-bundle');
          return;
        }
        const archive = await openTar(path, true);
        expect(archive.entries.size).to.equal(count);
        expect(archive.cutEntry).to.equal(cutEntry);
        expect(archive.damage?.message).to.match(/truncated/);
        expect((await archive.read('metadata.json')).toString()).to.equal('{}\n');
      });
    }
  });

  describe('on something larger than the tar', () => {
    it('ignores bytes after the end', async () => {
      const whole = makeTarFile(entries);
      const archive = await openTar(await write(Buffer.concat([whole, Buffer.alloc(5000, 'old data')])));
      expect(archive.size).to.equal(whole.length);
      expect(archive.entries.size).to.equal(entries.length);
    });

    it('reads a device that holds the tar, and notices one that is too small for it', async function () {
      const whole = makeTarFile(entries);
      const path = await write(Buffer.concat([whole, Buffer.alloc(512 * 1000, 'old data')]));
      const cut = await write(whole.subarray(0, 5 * 512));
      const attach = (file: string): string => execFileSync('losetup', ['--find', '--show', file]).toString().trim();
      let device: string;
      try {
        device = attach(path);
      } catch (error) {
        process.emitWarning(`SKIPPED, no loop device can be made here: ${String(error)}`);
        this.skip();
        return;
      }
      cleanups.push(() => Promise.resolve(execFileSync('losetup', ['--detach', device])));
      const archive = await openTar(device);
      expect(archive.size).to.equal(whole.length);
      expect((await buffer(archive.stream(`v2/a/blobs/${digest}`))).toString()).to.equal('x'.repeat(3000));
      const small = attach(cut);
      cleanups.push(() => Promise.resolve(execFileSync('losetup', ['--detach', small])));
      const error = await failureOf(Archive.open(small, context), 'invalid-bundle');
      expect(error.message).to.contain('truncated');
      expect((await openTar(small, true)).cutEntry).to.equal(`v2/a/blobs/${digest}`);
    });
  });

  it('is interrupted while it lists', async () => {
    const interrupted = makeContext();
    interrupted.interrupt();
    await failureOf(Archive.open(await write(makeTarFile(entries)), interrupted), 'interrupted');
  });

  it('applies a pax header to the entry that follows it', async () => {
    const header = new Pax({ path: 'renamed', size: 3, mtime: new Date(0) }).encode();
    const whole = makeTarFile([{ path: 'original', content: Buffer.from('abc') }]);
    const archive = await openTar(await write(Buffer.concat([header, whole])));
    expect([...archive.entries.keys()]).to.deep.equal(['renamed']);
  });
});

import { execFileSync } from 'node:child_process';
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { type TarLayout } from '../../../lib/content/archive/tarLayout.ts';
import { journalOf, partialOf } from '../../../lib/content/archive/unfinished.ts';
import { useWrittenArchive } from '../../support/archive/writtenArchive.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { contentOf, type Sample } from '../store/contract.ts';

describe('ArchiveWriter', () => {
  const context = makeContext();
  let sample: Sample;
  let folder: string;
  let path: string;
  let whole: Buffer;
  let layout: TarLayout;
  const { made, openWriter, pushAll, pushSome } = useWrittenArchive();
  beforeEach(() => {
    ({ sample, folder, path, whole, layout } = made());
  });

  it('writes the same tar in whichever order content comes', async () => {
    const writer = await openWriter();
    await pushAll(writer);
    await writer.finish();
    expect((await readFile(path)).equals(whole)).to.equal(true);
    expect(await readdir(folder)).to.deep.equal(['upgrade.tar']);
    const archive = await Archive.open(path, context);
    expect((await archive.repository('openshift/release').resolve('1.0-multi')).digest).to.equal(sample.list.digest);
    await archive.close();
  });

  it('makes files that only their owner may write, with any umask', async () => {
    const before = process.umask(0);
    try {
      for (const mask of [0, 0o077]) {
        process.umask(mask);
        const at = join(folder, `upgrade-${mask}.tar`);
        const writer = await openWriter(layout, at);
        expect((await stat(journalOf(at))).mode & 0o777).to.equal(0o644 & ~mask);
        await pushAll(writer);
        await writer.finish();
        expect((await stat(at)).mode & 0o777).to.equal(0o644 & ~mask);
      }
    } finally {
      process.umask(before);
    }
  });

  it('writes no final name before it is finished, and does not finish an incomplete archive', async () => {
    await writeFile(path, 'an older bundle');
    const writer = await openWriter();
    await pushSome(writer);
    const error = await failureOf(writer.finish(), 'incomplete');
    expect(error.message).to.contain(path);
    expect(await readFile(path, 'utf8')).to.equal('an older bundle');
    await pushAll(writer);
    expect(await readFile(path, 'utf8')).to.equal('an older bundle');
    await writer.finish();
    expect((await readFile(path)).equals(whole)).to.equal(true);
  });

  it('refuses content that is not in its layout', async () => {
    const writer = await openWriter();
    const { digest, size } = sample.layer;
    const other = { mediaType: 'x/y', digest: `sha256:${'0'.repeat(64)}`, size: 1 } as const;
    expect(writer.place(other.digest)).to.equal(undefined);
    expect(writer.place(digest)).to.deep.include({ path, present: 0 });
    await failureOf(
      writer.push(other, () => Promise.reject(new Error('nobody may ask'))),
      'not-found',
    );
    writer.noteFinished(digest);
    expect(writer.place(digest)).to.deep.include({ present: size });
  });

  it('takes content in chunks of any size, and twice at the same time', async () => {
    const writer = await openWriter();
    for (const { descriptor, bytes } of await contentOf(sample)) {
      const open = (): Promise<Readable> => {
        const chunks = [1, 2, 65_537, Infinity].map((end, index, ends) => bytes.subarray(ends[index - 1] ?? 0, end));
        return Promise.resolve(Readable.from(chunks));
      };
      await Promise.all([writer.push(descriptor, open), writer.push(descriptor, open)]);
    }
    await writer.finish();
    expect((await readFile(path)).equals(whole)).to.equal(true);
  });

  it('refuses bytes that are not the descriptor’s, and a source that fails', async () => {
    const writer = await openWriter();
    const { bytes, descriptor } =
      (await contentOf(sample)).find(({ descriptor: { size } }) => size > 1000) ?? expect.fail();
    const corrupt = Buffer.from(bytes).fill(1, 0, 1);
    const push = (content: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<void> =>
      writer.push(descriptor, () => Promise.resolve(Readable.from(content)));
    await failureOf(push([corrupt]), 'digest-mismatch');
    await failureOf(push([bytes.subarray(1)]), 'size-mismatch');
    await failureOf(push([bytes, Buffer.from('x')]), 'size-mismatch');
    const failing = async function* (): AsyncGenerator<Buffer> {
      yield await Promise.resolve(bytes.subarray(0, 1000));
      throw new Error('the cable is out');
    };
    const error = await push(failing()).catch((error: unknown) => error);
    expect(error).to.be.an('error').with.property('message').that.includes('the cable is out');
    await failureOf(writer.finish(), 'incomplete');
    await pushAll(writer);
    await writer.finish();
    expect((await readFile(path)).equals(whole)).to.equal(true);
  });

  describe('when it cannot write', () => {
    let mounted: string | undefined;
    afterEach(() => {
      if (mounted !== undefined) execFileSync('umount', ['--lazy', mounted]);
      mounted = undefined;
    });
    const mount = async (test: Mocha.Context, ...args: string[]): Promise<string> => {
      const point = join(folder, 'mounted');
      await mkdir(point, { recursive: true });
      try {
        execFileSync('mount', [...args, point], { stdio: 'pipe' });
      } catch (error) {
        process.emitWarning(`SKIPPED, nothing can be mounted here: ${String(error)}`);
        test.skip();
      }
      return (mounted = point);
    };

    it('fails before it writes anything if the disk is too small', async function () {
      const small = await mount(this, '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs');
      const error = await failureOf(openWriter(layout, join(small, 'upgrade.tar')), 'disk-full');
      expect(error.message).to.contain(small);
      expect(await readdir(small)).to.deep.equal([]);
    });

    it('reports a full disk, and resumes if there is space', async function () {
      const small = await mount(this, '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs');
      const at = join(small, 'upgrade.tar');
      const writer = await openWriter(layout, at);
      await writeFile(join(small, 'filler'), Buffer.alloc(2 ** 20)).catch(() => undefined);
      const error = await failureOf(pushAll(writer), 'disk-full');
      expect(error.message).to.contain(at);
      expect(error.hint).to.contain('resumes where it stopped');
      await failureOf(writer.finish(), 'incomplete');
      await writer.close();
      await rm(join(small, 'filler'));
      const second = await openWriter(layout, at);
      await pushAll(second);
      await second.finish();
      expect((await readFile(at)).equals(whole)).to.equal(true);
    });

    it('reports a read-only file system', async function () {
      const readOnly = await mount(this, '-t', 'tmpfs', '-o', 'ro', 'tmpfs');
      const error = await failureOf(openWriter(layout, join(readOnly, 'upgrade.tar')), 'not-writable');
      expect(error.message).to.contain(readOnly);
    });

    it('reports a folder without write permission', async function () {
      const own = join(folder, 'own');
      await mkdir(own);
      await chmod(own, 0o555);
      if (process.getuid?.() === 0) this.skip();
      await failureOf(openWriter(layout, join(own, 'upgrade.tar')), 'not-writable');
    });

    it('reports a missing folder, a file instead of it, and a used name', async () => {
      await failureOf(openWriter(layout, join(folder, 'nowhere', 'upgrade.tar')), 'not-writable');
      await writeFile(join(folder, 'file'), '');
      await failureOf(openWriter(layout, join(folder, 'file', 'upgrade.tar')), 'not-writable');
      await mkdir(partialOf(path));
      await failureOf(openWriter(), 'not-writable');
    });

    it('counts the space of an unfinished run once', async function () {
      const small = await mount(this, '-t', 'tmpfs', '-o', 'size=600k', 'tmpfs');
      const at = join(small, 'upgrade.tar');
      const writer = await openWriter(layout, at);
      await pushAll(writer);
      await writer.close();
      const again = await openWriter(layout, at);
      await again.finish();
      expect((await stat(at)).size).to.equal(layout.size);
    });
  });
});

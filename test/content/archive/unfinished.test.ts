import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, open, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar, type TarEntry, type TarLayout } from '../../../lib/content/archive/tarLayout.ts';
import { journalOf, partialOf } from '../../../lib/content/archive/unfinished.ts';
import { makeTarFile } from '../../support/archive/archive.ts';
import { useWrittenArchive } from '../../support/archive/writtenArchive.ts';
import { makeContext } from '../../support/context.ts';
import { makePipe } from '../../support/pipe.ts';
import { failureOf } from '../../support/program/failure.ts';
import { contentOf, type Sample } from '../store/contract.ts';

describe('the journal of an archive', () => {
  const context = makeContext();
  let sample: Sample;
  let folder: string;
  let path: string;
  let whole: Buffer;
  let entries: TarEntry[];
  let layout: TarLayout;
  const { made, openWriter, pushAll, pushSome } = useWrittenArchive();
  beforeEach(() => {
    ({ sample, folder, path, whole, entries, layout } = made());
  });

  describe('when a run resumes', () => {
    const goOn = async (): Promise<ArchiveWriter> => {
      await made().writers.at(-1)?.close();
      return openWriter();
    };

    it('distinguishes complete, unfinished and removed content', async () => {
      const first = await openWriter();
      const done = await pushSome(first);
      first.noteProgress(sample.layer.digest, 70_000);
      first.noteProgress(sample.layer.digest, 140_000);
      const second = await goOn();
      expect([...second.resumed]).to.deep.equal(done.digest === sample.layer.digest ? [] : [done.digest]);
      expect(second.place(sample.layer.digest)?.present).to.equal(140_000);
      second.noteFinished(sample.layer.digest);
      second.noteFinished(sample.empty.digest);
      second.forget(sample.layer.digest);
      const third = await goOn();
      expect(third.resumed.has(sample.empty.digest)).to.equal(true);
      expect(third.resumed.has(sample.layer.digest)).to.equal(false);
      expect(third.place(sample.layer.digest)?.present).to.equal(0);
      await pushAll(third);
      await third.finish();
      expect((await readFile(path)).equals(whole)).to.equal(true);
    });

    it('pushes only missing blobs', async () => {
      const done = await pushSome(await openWriter());
      const writer = await goOn();
      await writer.push(done, () => Promise.reject(new Error('nobody may ask')));
    });

    for (const [what, torn] of [
      ['in its last line', (digest: string) => `sha256:${'1'.repeat(30)}`.slice(0, digest.length)],
      // Half of "<digest> <bytes>" looks like a complete "<digest>".
      ['so that its last line looks like another', (digest: string) => digest],
      ['in a number', (digest: string) => `${digest} 12`],
      ['with bytes that are no text', () => '\u0000\u0000\uFFFD'],
    ] as const) {
      it(`resumes repeatedly from a journal that was torn ${what}, up to that point`, async () => {
        const first = await openWriter();
        first.noteFinished(sample.empty.digest);
        await first.close();
        await appendFile(journalOf(path), torn(sample.layer.digest));
        for (let run = 0; run < 2; run += 1) {
          const writer = await goOn();
          expect([...writer.resumed]).to.deep.equal([sample.empty.digest]);
          expect(writer.place(sample.layer.digest)?.present).to.equal(0);
        }
        const writer = await goOn();
        writer.noteFinished(sample.layer.digest);
        expect((await goOn()).resumed.has(sample.layer.digest)).to.equal(true);
      });
    }

    it('ignores invalid lines', async () => {
      const first = await openWriter();
      first.noteFinished(sample.empty.digest);
      await first.close();
      const { digest } = sample.layer;
      await appendFile(journalOf(path), `${digest} -5\n${digest} 1e9\n${digest} x\nrubbish\n\n`);
      const writer = await goOn();
      expect([...writer.resumed]).to.deep.equal([sample.empty.digest]);
      expect(writer.place(digest)?.present).to.equal(0);
    });

    for (const [what, change] of Object.entries<() => Promise<unknown>>({
      'the journal is of another layout': async () => {
        const other = layOutTar([...entries, { path: 'z', content: Buffer.alloc(0) }]);
        const writer = await ArchiveWriter.open(join(folder, 'other.tar'), other, context);
        await writer.close();
        await writeFile(journalOf(path), await readFile(journalOf(join(folder, 'other.tar'))));
      },
      'the journal is gone': () => rm(journalOf(path)),
      'the journal is empty': () => truncate(journalOf(path), 0),
      'the file has another size': () => truncate(partialOf(path), layout.size - 512),
      'the file is gone': () => rm(partialOf(path)),
    })) {
      it(`starts from the beginning if ${what}`, async () => {
        const first = await openWriter();
        await pushAll(first);
        await first.close();
        await change();
        const writer = await goOn();
        expect(writer.resumed.size).to.equal(0);
        const bytes = await readFile(partialOf(path));
        expect(bytes.equals(makeTarFile(entries))).to.equal(true);
        await pushAll(writer);
        await writer.finish();
        expect((await readFile(path)).equals(whole)).to.equal(true);
      });
    }

    it('writes content again that is not in the journal, which a power failure may lose', async () => {
      const first = await openWriter();
      await pushAll(first);
      await first.close();
      await using file = await open(partialOf(path), 'r+');
      await file.write(Buffer.alloc(1024), 0, 1024, 0);
      const writer = await goOn();
      await writer.finish();
      expect((await readFile(path)).equals(whole)).to.equal(true);
    });

    it('loses nothing that was whole when the process is killed', async () => {
      const child = fork(new URL('../../support/archive/archiveChild.ts', import.meta.url), [path], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
        serialization: 'advanced',
      });
      const done = await killAfter(child, entries, sample);
      const writer = await openWriter();
      expect([...writer.resumed]).to.deep.equal(done);
      for (const { descriptor, bytes } of await contentOf(sample)) {
        if (!writer.resumed.has(descriptor.digest)) continue;
        const read = Buffer.alloc(bytes.length);
        await writer.read(
          read,
          layout.entries.find(({ entry }) => 'descriptor' in entry && entry.descriptor.digest === descriptor.digest)
            ?.start ?? 0,
        );
        expect(read.equals(bytes)).to.equal(true);
      }
      await pushAll(writer);
      await writer.finish();
      expect((await readFile(path)).equals(whole)).to.equal(true);
    });
  });

  it('refuses a journal that is a link or a pipe', async () => {
    await writeFile(join(folder, 'elsewhere'), Buffer.alloc(layout.size));
    await symlink(join(folder, 'elsewhere'), journalOf(path));
    await failureOf(ArchiveWriter.open(path, layout, context), 'not-writable');
    await rm(journalOf(path));
    using _pipe = makePipe(journalOf(path));
    const { message, hint } = await failureOf(ArchiveWriter.open(path, layout, context), 'not-writable');
    expect(message).to.equal(`${journalOf(path)} is a link, a pipe or another special file`);
    expect(hint).to.include('remove it');
    expect((await readFile(join(folder, 'elsewhere'))).equals(Buffer.alloc(layout.size))).to.equal(true);
  });
});

/**
 * Has a child write all content of a layout, kills it in the middle, and returns the content that it reported as
 * complete.
 */
async function killAfter(child: ChildProcess, entries: readonly TarEntry[], sample: Sample): Promise<unknown[]> {
  const done: unknown[] = [];
  child.send({ entries, content: await contentOf(sample), stopAfter: 2 });
  while (done.length < 2) {
    const [digest] = (await once(child, 'message')) as unknown[];
    done.push(digest);
  }
  child.kill('SIGKILL');
  await once(child, 'exit');
  return done;
}

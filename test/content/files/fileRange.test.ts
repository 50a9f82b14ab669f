import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { open, readFile, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { Volumes } from '../../../lib/content/archive/volumes.ts';
import {
  describeReadError,
  hashFile,
  ignoreMissing,
  isMissing,
  readAhead,
  readChunks,
  readFileContent,
  readFully,
  readOpenFile,
  readPieces,
  readRange,
  writeFully,
  writePieces,
} from '../../../lib/content/files/fileRange.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import { failReads } from '../../fakes/files/failingDisk.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const mebibyte = 2 ** 20;
const bytes = randomBytes(3 * mebibyte + 5);

describe('a range of a file', () => {
  let folder: string;
  let path: string;
  let file: FileHandle;
  const { signal } = makeContext();
  before(async () => {
    folder = await makeFolder();
    path = join(folder, 'content');
    await writeFile(path, bytes);
    file = await open(path);
  });
  after(async () => {
    await file.close();
    await removeFolder(folder);
  });

  /** The functions that read a range. */
  const ways: Record<string, (start: number, size: number, signal: AbortSignal) => AsyncIterable<Buffer>> = {
    readRange: (...range) => readRange(file, path, ...range),
    readChunks: (...range) => readChunks(file, path, ...range),
    readAhead: (...range) => readAhead(file, path, ...range),
    async *readFully(...range) {
      yield await readFully(file, path, ...range);
    },
  };
  for (const [name, stream] of Object.entries(ways)) {
    const read = (start: number, size: number, { signal: stop } = { signal }): Promise<Buffer> =>
      collect(stream(start, size, stop));

    it(`is read by ${name} from its start, up to its size or the end of the file`, async () => {
      for (const [start, size] of [
        [0, bytes.length],
        [7, 2 * mebibyte],
        [mebibyte, 10],
        [3 * mebibyte, 100],
        [bytes.length, 10],
        [4, 0],
      ] as const) {
        const part = bytes.subarray(start, start + size);
        expect((await read(start, size)).equals(part), `${start} ${size}`).to.equal(true);
      }
    });

    it(`is not read by ${name} after an interruption`, async () => {
      const context = makeContext();
      context.interrupt();
      await failureOf(read(0, 10, context), 'interrupted');
    });

    it(`is named by ${name} if it is not readable, with the byte`, async () => {
      using _ = await failReads(path, { start: 2 * mebibyte, size: 1 });
      const { message } = await failureOf(read(5, 3 * mebibyte), 'not-readable');
      expect(message).to.match(/^byte \d+ of .*content cannot be read: .*EIO/);
      const [, byte] = /^byte (\d+)/.exec(message) ?? [];
      expect(Number(byte)).to.equal(mebibyte + 5);
    });
  }

  it('is read by readChunks into two buffers in turn', async () => {
    const seen: ArrayBufferLike[] = [];
    for await (const chunk of readChunks(file, path, 0, Infinity, signal)) seen.push(chunk.buffer);
    expect(seen).to.have.length(4);
    expect([new Set(seen).size, seen[0] === seen[2], seen[1] === seen[3]]).to.deep.equal([2, true, true]);
  });

  it('is read by readAhead into shared memory, one chunk ahead of the caller', async () => {
    const seen: Buffer[] = [];
    for await (const chunk of readAhead(file, path, 0, Infinity, signal)) {
      seen.push(chunk);
      const [previous] = seen.slice(-2);
      expect(previous?.buffer).to.be.instanceOf(SharedArrayBuffer);
      const at = (seen.length - 1) * mebibyte;
      // The chunk before this one is still whole.
      if (at > 0) expect(previous?.equals(bytes.subarray(at - mebibyte, at))).to.equal(true);
    }
    expect(seen).to.have.length(4);
  });

  it('may be left by the caller of readAhead before an unreadable chunk', async () => {
    using _ = await failReads(path, { start: mebibyte, size: 1 });
    const rejected: unknown[] = [];
    const note = (reason: unknown): void => void rejected.push(reason);
    process.on('unhandledRejection', note);
    for await (const chunk of readAhead(file, path, 0, Infinity, signal)) {
      expect(chunk.equals(bytes.subarray(0, mebibyte))).to.equal(true);
      // The read of the next chunk fails meanwhile.
      await setImmediate();
      break;
    }
    process.off('unhandledRejection', note);
    expect(rejected).to.deep.equal([]);
  });

  it('has a digest, which is computed from the start to the end of the file', async () => {
    expect(await hashFile(file, path, signal)).to.equal(digestOf(bytes));
  });
});

describe('several ranges of files', () => {
  let folder: string;
  let paths: string[];
  beforeEach(async () => {
    folder = await makeFolder();
    paths = ['one', 'two'].map((name) => join(folder, name));
    for (const path of paths) await writeFile(path, '........');
  });
  afterEach(() => removeFolder(folder));
  const texts = () => Promise.all(paths.map((path) => readFile(path, 'utf8')));

  it('are written by writeFully to the end, if each write accepts only a part', async () => {
    const [first = '', second = ''] = paths;
    const volumes = await Volumes.open(
      [
        { path: first, size: 8 },
        { path: second, size: 8 },
      ],
      ({ path }) => open(path, 'r+'),
    );
    await writeFully(volumes, Buffer.from('abcdef'), 5);
    await volumes.close();
    expect(await texts()).to.deep.equal(['.....abc', 'def.....']);
  });

  it('are read and written as one, from an offset and up to the shorter end', async () => {
    const fds = paths.map((path) => openSync(path, 'r+'));
    try {
      const [one = 0, two = 0] = fds;
      const pieces = [
        { path: 'one', fd: one, position: 2, size: 3 },
        { path: 'two', fd: two, position: 0, size: 4 },
      ];
      writePieces(pieces, Buffer.from('abcdefXYZ'), 1);
      expect(await texts()).to.deep.equal(['...ab...', 'cdef....']);
      const read = Buffer.alloc(9, '-');
      readPieces(pieces, read, 2);
      expect(read.toString()).to.equal('bcdef----');
      readPieces(pieces, read, 5);
      expect(read.toString()).to.equal('efdef----');
    } finally {
      for (const fd of fds) closeSync(fd);
    }
  });

  it('end at the end of a file that is too short', () => {
    const fd = openSync(paths[0] ?? '', 'r');
    try {
      const read = Buffer.alloc(9, '-');
      const piece = { path: 'one', fd, position: 5, size: 6 };
      readPieces([piece, piece], read, 0);
      expect(read.toString()).to.equal('...------');
    } finally {
      closeSync(fd);
    }
  });
});

describe('readFileContent', () => {
  let folder: string;
  let path: string;
  const { signal } = makeContext();
  before(async () => {
    folder = await makeFolder();
    path = join(folder, 'content');
    await writeFile(path, bytes.subarray(0, 600_000));
  });
  after(() => removeFolder(folder));

  it('streams a whole file', async () => {
    expect((await buffer(readFileContent(path, signal))).equals(bytes.subarray(0, 600_000))).to.equal(true);
  });

  it('opens the file at the first read', async () => {
    const stream = readFileContent(join(folder, 'later'), signal);
    await writeFile(join(folder, 'later'), 'text');
    expect((await buffer(stream)).toString()).to.equal('text');
  });

  it('reports a missing file and a folder', async () => {
    const missing = await failureOf(buffer(readFileContent(join(folder, 'none'), signal)), 'not-found');
    expect(missing.message).to.match(/^.*none cannot be read: /);
    await failureOf(buffer(readFileContent(join(path, 'below'), signal)), 'not-found');
    await failureOf(buffer(readFileContent(folder, signal)), 'not-readable');
  });

  it('is interrupted between two reads', async () => {
    const context = makeContext();
    const stream = readFileContent(path, context.signal);
    stream.once('data', () => {
      context.interrupt();
    });
    await failureOf(buffer(stream), 'interrupted');
  });

  it('starts at an offset, and closes the file, if readOpenFile streams it', async () => {
    let opened: FileHandle | undefined;
    const openFile = async (): Promise<FileHandle> => (opened = await open(path));
    const rest = await buffer(readOpenFile(openFile, path, signal, 599_990));
    expect(rest.equals(bytes.subarray(599_990, 600_000))).to.equal(true);
    expect(opened?.fd).to.equal(-1);
  });
});

describe('an error of reading', () => {
  const errorOf = (code: string): Error => Object.assign(new Error(`${code}: reason`), { code });

  it('is not-found for a missing file or folder, else not-readable', () => {
    for (const code of ['ENOENT', 'ENOTDIR']) {
      expect(isMissing(errorOf(code))).to.equal(true);
      expect(describeReadError(errorOf(code), 'file')).to.include({ code: 'not-found' });
      expect(() => {
        ignoreMissing(errorOf(code));
      }).not.to.throw();
    }
    for (const code of ['EACCES', 'EIO']) {
      const error = errorOf(code);
      expect(isMissing(error)).to.equal(false);
      expect(describeReadError(error, 'file')).to.include({ code: 'not-readable', cause: error });
      expect(() => ignoreMissing(error)).to.throw(error);
    }
  });

  it('stays if it is a PluginError, of which not-found means a missing file', () => {
    const [missing, other] = [new PluginError('not-found', 'none'), new PluginError('interrupted', 'stop')];
    expect(describeReadError(missing, 'file')).to.equal(missing);
    expect(() => {
      ignoreMissing(missing);
    }).not.to.throw();
    expect(() => ignoreMissing(other)).to.throw(other);
  });
});

async function collect(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of chunks) parts.push(Buffer.from(chunk));
  return Buffer.concat(parts);
}

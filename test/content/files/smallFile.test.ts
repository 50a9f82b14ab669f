import { expect } from 'chai';
import { execFileSync, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readPem, readSmallFile } from '../../../lib/content/files/smallFile.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('readSmallFile', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
  });
  after(() => removeFolder(folder));

  const makePipe = (name: string): string => {
    const path = join(folder, name);
    execFileSync('mkfifo', [path]);
    return path;
  };

  it('reads a file up to its limit, and nothing longer', async () => {
    const path = join(folder, 'file');
    await writeFile(path, 'x'.repeat(200_000));
    expect(await readSmallFile(path, 200_000)).to.have.length(200_000);
    const error = await failureOf(readSmallFile(path, 199_999), 'too-large');
    expect(error.message).to.equal(`${path} exceeds the limit of 199999 bytes`);
  });

  it('names a missing file, and a path that is not a file', async () => {
    await failureOf(readSmallFile(join(folder, 'none'), 10), 'not-found');
    expect((await failureOf(readSmallFile(folder, 10), 'not-readable')).message).to.equal(`${folder} is a folder`);
  });

  it('does not read a device, which may have no end', async function () {
    if (process.platform === 'win32') this.skip();
    const error = await failureOf(readSmallFile('/dev/zero', 10), 'not-readable');
    expect(error.message).to.equal('/dev/zero is not a regular file');
  });

  describe('of a pipe', function () {
    before(function () {
      if (process.platform === 'win32') this.skip();
    });

    it('does not wait for a writer', async () => {
      const path = makePipe('idle');
      const error = await failureOf(readSmallFile(path, 10), 'not-readable');
      expect(error.message).to.equal(`${path} is a pipe without a writer`);
    });

    it('reads what another process writes slowly', async () => {
      const path = makePipe('busy');
      // Opened for reading and writing, the pipe has a writer before a reader.
      const writer = spawn('sh', [
        '-c',
        `exec 3<>${path}; echo ready; sleep 0.2; echo one >&3; sleep 0.2; echo two >&3`,
      ]);
      await new Promise((resolve) => writer.stdout.once('data', resolve));
      expect(String(await readSmallFile(path, 10))).to.equal('one\ntwo\n');
    });

    it('reads no more of an endless one than its limit', async () => {
      const path = makePipe('endless');
      const writer = spawn('sh', ['-c', `exec 3<>${path}; echo ready; exec yes >&3`]);
      try {
        await new Promise((resolve) => writer.stdout.once('data', resolve));
        await failureOf(readSmallFile(path, 1_000_000), 'too-large');
      } finally {
        writer.kill();
      }
    });
  });
});

describe('readPem', () => {
  it('reports a missing file as one that cannot be read, because a missing object is another thing', async () => {
    const error = await failureOf(readPem('/none.crt'), 'not-readable');
    expect(error.message).to.equal('the PEM file /none.crt does not exist');
  });
});

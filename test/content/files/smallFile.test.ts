import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { constants } from 'node:fs';
import { writeFile, link, mkdir, readFile, stat, symlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { Journal } from '../../../lib/content/archive/unfinished.ts';
import { checkLock, readHolder, takeLock } from '../../../lib/content/files/lock.ts';
import { readPem, readSmallFile, openRegular, openRegularSync } from '../../../lib/content/files/smallFile.ts';
import { whileLocked } from '../../../lib/mirroring/mirror/destination.ts';
import { makePipe } from '../../support/pipe.ts';
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

    it('reads a pipe that another process writes slowly', async () => {
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

describe('a file of this program on a medium', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));
  const special = /^\S+ is a link, a pipe or another special file$/;

  it('is opened if it is a regular file, and is never writable for others', async () => {
    const { O_CREAT, O_EXCL, O_RDWR } = constants;
    const before = process.umask(0);
    try {
      for (const mask of [0, 0o077]) {
        process.umask(mask);
        const path = join(folder, String(mask));
        await using file = await openRegular(path, O_RDWR | O_CREAT | O_EXCL);
        await file.writeFile('x');
        expect((await stat(path)).mode & 0o777).to.equal(0o644 & ~mask);
      }
    } finally {
      process.umask(before);
    }
    await link(join(folder, '0'), join(folder, 'hard'));
    await using file = await openRegular(join(folder, 'hard'));
    expect(await file.readFile('utf8')).to.equal('x');
  });

  it('is refused at once if it is a link, a pipe, a socket, a device or a folder', async () => {
    await writeFile(join(folder, 'file'), 'kept');
    await symlink(join(folder, 'file'), join(folder, 'link'));
    await mkdir(join(folder, 'folder'));
    using _pipe = makePipe(join(folder, 'pipe'));
    const server = createServer().listen(join(folder, 'socket'));
    await new Promise((resolve) => server.once('listening', resolve));
    for (const name of ['link', 'pipe', 'socket', 'folder', '/dev/zero']) {
      const path = name.startsWith('/') ? name : join(folder, name);
      for (const flags of [constants.O_RDONLY, constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC]) {
        if (name === 'folder' && flags !== constants.O_RDONLY) continue;
        expect((await failureOf(openRegular(path, flags), 'not-writable')).message).to.match(special);
        expect(() => openRegularSync(path, flags)).to.throw(special);
      }
    }
    server.close();
    expect(await readFile(join(folder, 'file'), 'utf8')).to.equal('kept');
  });

  it('does not hold a run if it is a lock that is a pipe', async () => {
    const path = join(folder, '.mirror.lock');
    using _pipe = makePipe(path);
    const lock = (): Promise<void> => whileLocked([folder], () => Promise.resolve());
    for (const take of [() => takeLock(path, 'x'), () => checkLock(path, 'x'), lock]) {
      const error = await failureOf(take(), 'not-writable');
      expect(error.message).to.match(special).and.include(path);
      expect(error.hint).to.include('remove it');
    }
    expect(await readHolder(path)).to.equal(undefined);
  });

  it('does not hold a run if it is a journal that is a pipe', async () => {
    const path = join(folder, 'upgrade.tar.partial.journal');
    using _pipe = makePipe(path);
    const { message } = await failureOf(Journal.resume(path, 'identity'), 'not-writable');
    expect(message).to.match(special).and.include(path);
  });

  it('is not read beyond a limit if it is a lock', async () => {
    const path = join(folder, 'upgrade.tar.lock');
    await writeFile(path, 'x'.repeat(70_000));
    await failureOf(takeLock(path, 'x'), 'too-large');
  });
});

/** Whether strace may trace a process here. Containers often forbid it. */
const hasStrace = spawnSync('strace', ['-o', '/dev/null', 'true']).status === 0;

describe('syncFolder, when the disk fails', () => {
  /** Runs code with an injected error of fsync, and returns what it prints. */
  const runWith = async (error: string, code: string): Promise<string> => {
    const inject = ['-f', '-o', '/dev/null', '-e', 'trace=fsync', '-e', `inject=fsync:error=${error}`];
    const program = ['--input-type=module', '-e', code];
    const child = spawn('strace', [...inject, process.execPath, ...program], { stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    for await (const chunk of child.stdout) output += String(chunk);
    return output.trim();
  };
  const url = JSON.stringify(new URL('../../../lib/content/files/disk.ts', import.meta.url).href);
  const code = `import { syncFolder } from ${url};
    await syncFolder('/tmp').then(() => console.log('synced'), (error) => console.log(error.code));`;

  it('reports an input/output error, and no file system that cannot sync folders', async function () {
    if (!hasStrace) this.skip();
    for (const error of ['EIO', 'ENOSPC']) expect(await runWith(error, code)).to.equal(error);
    for (const error of ['EINVAL', 'EOPNOTSUPP', 'EPERM']) expect(await runWith(error, code)).to.equal('synced');
  });
});

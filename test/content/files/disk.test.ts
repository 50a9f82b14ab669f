import { mkdir, mkdtemp, open, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  checkFileWritable,
  checkSpace,
  describeWriteError,
  makeFolders,
  syncFolder,
} from '../../../lib/content/files/disk.ts';
import { PluginError } from '../../../lib/errors.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('describeWriteError', () => {
  const of = (code: string): unknown =>
    describeWriteError(Object.assign(new Error(`${code}: it failed`), { code }), '/media/drive/upgrade.tar');

  it('reports that the disk is full, and that the next run resumes', () => {
    for (const code of ['ENOSPC', 'EDQUOT']) {
      expect(of(code)).to.be.instanceOf(PluginError).and.include({ code: 'disk-full' });
    }
  });

  it('says which file systems hold large files', () => {
    expect(of('EFBIG')).to.include({ code: 'not-writable' }).and.have.property('hint').that.contains('FAT32');
  });

  it('names the file that cannot be written, and the cause', () => {
    for (const code of ['EACCES', 'EROFS', 'EPERM', 'ENOENT', 'EISDIR', 'ERR_FS_EISDIR', 'EIO']) {
      const error = of(code) as PluginError;
      expect(error).to.include({ code: 'not-writable' });
      expect(error.message).to.contain('/media/drive/upgrade.tar').and.contain(code);
    }
  });

  it('leaves everything else as it is', () => {
    for (const error of [new PluginError('digest-mismatch', 'x'), new TypeError('x'), 'x', undefined]) {
      expect(describeWriteError(error, 'x')).to.equal(error);
    }
  });
});

describe('checkSpace', () => {
  it('accepts content that fits, and names both sizes otherwise', async () => {
    const path = join(tmpdir(), 'upgrade.tar');
    await checkSpace(path, 1);
    await checkSpace(path, -1);
    const error = await failureOf(checkSpace(path, 2 ** 52), 'disk-full');
    expect(error.message).to.match(/needs 4\.0 PiB more, and .* has [\d.]+ [MGT]iB free/);
  });

  it('names a folder that is held open by its path', async () => {
    await using held = await open(tmpdir());
    const error = await failureOf(checkSpace(`/proc/self/fd/${held.fd}/database`, 2 ** 52), 'disk-full');
    expect(error.message).to.match(new RegExp(`^${tmpdir()}/database needs .* and ${tmpdir()} has `));
  });
});

describe('syncFolder', () => {
  it('accepts existing folders and missing ones', async () => {
    await syncFolder(tmpdir());
    await syncFolder(join(tmpdir(), 'nowhere', 'at', 'all'));
  });
});

describe('makeFolders and checkFileWritable', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'folders-'));
    await writeFile(join(folder, 'file'), '');
  });
  afterEach(() => rm(folder, { recursive: true }));
  const fail = (path: string): Promise<unknown> => makeFolders(path).catch((error: unknown) => error);

  it('creates missing folders, at the same time as other processes, and accepts existing ones', async () => {
    const path = join(folder, 'a', 'b', 'c');
    await checkFileWritable(join(path, 'file'));
    await Promise.all([makeFolders(path, 0o700), makeFolders(path), makeFolders(join(folder, 'a', 'b'))]);
    expect((await stat(path)).isDirectory()).to.equal(true);
    await symlink(path, join(folder, 'link'));
    await makeFolders(join(folder, 'link', 'd'));
    await checkFileWritable(join(folder, 'link', 'file'));
  });

  it('ends with the error of the system if Node.js itself never ends', async () => {
    await symlink('nowhere', join(folder, 'link'));
    for (const [path, code] of [
      ['/proc/nowhere/a/b', 'ENOENT'],
      [join(folder, 'file', 'a', 'b'), 'EEXIST'],
      [join(folder, 'link', 'a'), 'EEXIST'],
    ] as const) {
      expect(await fail(path), path).to.have.property('code', code);
    }
  });

  it('tells before anything is written that a file cannot be', async () => {
    for (const path of [join(folder, 'file', 'a'), join(folder, 'file', 'a', 'b')]) {
      expect((await failureOf(checkFileWritable(path), 'not-writable')).message).to.contain(join(folder, 'file'));
    }
    expect((await failureOf(checkFileWritable(folder), 'not-writable')).message).to.contain(`${folder} is a folder`);
    if (process.getuid?.() === 0) return;
    await mkdir(join(folder, 'closed'), { mode: 0o500 });
    await failureOf(checkFileWritable(join(folder, 'closed', 'a')), 'not-writable');
  });
});

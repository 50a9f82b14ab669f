import { link, mkdir, mkdtemp, readdir, readFile, rm, rmdir, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { writeAtomically } from '../../../lib/content/files/atomicWrite.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('writeAtomically', () => {
  let path: string;
  beforeEach(async () => {
    path = join(await mkdtemp(join(tmpdir(), 'write-')), 'below', 'file');
  });
  afterEach(() => rm(dirname(dirname(path)), { recursive: true }));

  it('makes the folder and the file, or leaves the file as it was', async () => {
    await writeAtomically(path, 'old', { mode: 0o600 });
    expect([await readFile(path, 'utf8'), (await stat(path)).mode & 0o777]).to.deep.equal(['old', 0o600]);
    await mkdir(`${path}.partial`);
    await failureOf(writeAtomically(path, 'new'), 'not-writable');
    expect(await readFile(path, 'utf8')).to.equal('old');
    await rmdir(`${path}.partial`);
    await writeAtomically(path, 'new');
    expect(await readFile(path, 'utf8')).to.equal('new');
    expect(await readdir(dirname(path))).to.deep.equal(['file']);
  });

  it('writes through no link that another user made', async () => {
    const target = join(dirname(dirname(path)), 'target');
    await writeFile(target, 'kept');
    await mkdir(dirname(path));
    for (const make of [symlink, link]) {
      await make(target, `${path}.partial`);
      await writeAtomically(path, 'new');
      expect(await readFile(target, 'utf8')).to.equal('kept');
    }
  });

  it('leaves nothing when it fails, and names the file as its caller does', async () => {
    const prepare = (): Promise<never> => Promise.reject(Object.assign(new Error('EPERM'), { code: 'EPERM' }));
    const error = await failureOf(writeAtomically(path, 'new', { prepare, name: 'the file' }), 'not-writable');
    expect(error.message).to.include('the file cannot be written');
    expect(await readdir(dirname(path))).to.deep.equal([]);
  });
});

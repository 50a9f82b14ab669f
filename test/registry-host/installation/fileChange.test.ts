import { chmod, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { checkWritable, readWithAttributes, replaceFile } from '../../../lib/registry-host/installation/fileChange.ts';

describe('replaceFile', () => {
  const target = { path: '/etc/file', within: '/' };
  let root: string;
  let files: HostFiles;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'file-change-'));
    files = new HostFiles(root);
  });
  afterEach(() => rm(root, { recursive: true, force: true }));
  const modeOf = async (name: string): Promise<number> => (await stat(join(root, name))).mode & 0o777;

  it('gives a new file its mode, and keeps a new folder to its owner', async () => {
    await replaceFile(files, target, 'new');
    expect([await modeOf('etc/file'), await modeOf('etc')]).to.deep.equal([0o644, 0o700]);
    await replaceFile(files, { ...target, path: '/etc/key' }, 'new', { mode: 0o640 });
    expect(await modeOf('etc/key')).to.equal(0o640);
  });

  it('can be tried before, also in folders that are missing', async () => {
    await checkWritable(files, { ...target, path: '/etc/a/b/file' });
    expect(await readdir(root)).to.deep.equal([]);
  });

  it('keeps the mode of a file that exists, unless it is given', async () => {
    await replaceFile(files, target, 'old');
    await chmod(join(root, 'etc/file'), 0o604);
    await replaceFile(files, target, 'new');
    expect(await readWithAttributes(files, target)).to.deep.include({ content: Buffer.from('new'), mode: 0o604 });
    const { uid, gid } = await stat(root);
    await replaceFile(files, target, 'restored', { attributes: { mode: 0o600, uid, gid } });
    expect(await modeOf('etc/file')).to.equal(0o600);
  });

  it('gives a file to the owner of the replaced file', async function () {
    if (process.getuid?.() !== 0) this.skip();
    await replaceFile(files, target, 'old');
    await replaceFile(files, target, 'new', { attributes: { mode: 0o640, uid: 12345, gid: 54321 } });
    await replaceFile(files, target, 'newer');
    expect(await readWithAttributes(files, target)).to.deep.include({ mode: 0o640, uid: 12345, gid: 54321 });
  });
});

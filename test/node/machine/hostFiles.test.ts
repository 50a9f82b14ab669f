import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { lchown, mkdir, mkdtemp, rename, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { fileLimit, HostFiles, openMachineFolder } from '../../../lib/node/machine/hostFiles.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('HostFiles', () => {
  let root: string;
  let files: HostFiles;
  before(function () {
    if (process.platform !== 'linux') this.skip();
  });
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'host-files-'));
    files = new HostFiles(root);
    await mkdir(join(root, 'srv/quay'), { recursive: true });
    await writeFile(join(root, 'srv/quay/config.yaml'), 'content');
  });
  afterEach(() => rm(root, { recursive: true }));
  const link = (target: string, path: string): Promise<void> => symlink(target, join(root, path));

  describe('resolve', () => {
    it('follows absolute and relative links as the host does, and none out of the root', async () => {
      await link('/srv', 'opt');
      await link('quay/config.yaml', 'srv/config');
      await link('../../../../../srv', 'srv/quay/up');
      await link('/opt/quay', 'srv/quay/again');
      for (const path of [
        '/opt/config',
        '/srv/quay/again/config.yaml',
        '/srv/quay/up/config',
        '/opt//./quay/../quay/config.yaml',
      ]) {
        expect(await files.resolve(path), path).to.equal('/srv/quay/config.yaml');
        expect(await files.readText(path), path).to.equal('content');
      }
      expect(await files.resolve('/../../etc/passwd')).to.equal('/etc/passwd');
    });

    it('keeps the parts that are missing', async () => {
      await link('/srv', 'opt');
      expect(await files.resolve('/opt/a/../b/c')).to.equal('/srv/b/c');
    });

    it('follows 40 links, as Linux does, and refuses more and endless ones', async () => {
      await link('/srv', 'link-0');
      for (let index = 1; index <= 40; index++) await link(`/link-${index - 1}`, `link-${index}`);
      expect(await files.resolve('/link-39/quay')).to.equal('/srv/quay');
      await link('loop', 'loop');
      for (const path of ['/link-40', '/loop'])
        expect((await failureOf(files.resolve(path), 'not-readable')).message).to.equal(
          `${path} has too many symbolic links`,
        );
    });

    it('refuses a link of another user, at each place of a path', async function () {
      if (process.geteuid?.() !== 0) this.skip();
      await link('/srv', 'opt');
      await lchown(join(root, 'opt'), 1234, 1234);
      for (const act of [files.resolve('/opt'), files.read('/opt/quay/config.yaml'), files.exists('/opt/quay')]) {
        const { message, hint } = await failureOf(act, 'not-readable');
        expect(message).to.equal(`${root}/opt is a symbolic link of another user, 1234`);
        expect(hint).to.contain('Replace it');
      }
    });
  });

  describe('read', () => {
    it('returns the bytes of a file, and nothing of a missing one', async () => {
      expect(await files.read('/srv/quay/config.yaml')).to.deep.equal(Buffer.from('content'));
      for (const path of ['/srv/quay/other', '/srv/other/config.yaml']) {
        expect(await files.read(path)).to.equal(undefined);
        expect(await files.readText(path)).to.equal(undefined);
      }
    });

    it('refuses a file that is larger than any configuration', async () => {
      await truncate(join(root, 'srv/quay/config.yaml'), fileLimit);
      expect((await files.read('/srv/quay/config.yaml'))?.length).to.equal(fileLimit);
      await truncate(join(root, 'srv/quay/config.yaml'), fileLimit + 1);
      const { message } = await failureOf(files.read('/srv/quay/config.yaml'), 'too-large');
      expect(message).to.contain(`${root}/srv/quay/config.yaml`);
    });

    it('refuses a folder, and a pipe without waiting for it', async () => {
      spawnSync('mkfifo', [join(root, 'pipe')]);
      expect(existsSync(join(root, 'pipe'))).to.equal(true);
      for (const path of ['/srv/quay', '/pipe'])
        expect((await failureOf(files.read(path), 'not-readable')).message).to.contain('is not a regular file');
    });
  });

  it('lists the names in a folder, sorted, and none of a missing one', async () => {
    await writeFile(join(root, 'srv/quay/a'), '');
    await link('/srv', 'opt');
    expect(await files.list('/opt/quay')).to.deep.equal(['a', 'config.yaml']);
    expect(await files.list('/srv/none')).to.deep.equal([]);
  });

  it('tells whether a file, a folder or a link exists, also a link that leads nowhere', async () => {
    await link('/nowhere', 'srv/link');
    const paths = ['/srv/quay', '/srv/quay/config.yaml', '/srv/link', '/srv/none', '/none/x'];
    const found = await Promise.all(paths.map((path) => files.exists(path)));
    expect(found).to.deep.equal([true, true, true, false, false]);
  });

  describe('openFolder and openParent', () => {
    it('open the folder that a path leads to within its limit, and create missing ones on request', async () => {
      await link('/srv/quay', 'opt');
      const { folder, name } = await files.openParent({ path: '/opt/config.yaml', within: '/srv' });
      expect([folder.path, name]).to.deep.equal(['/srv/quay', 'config.yaml']);
      await folder[Symbol.asyncDispose]();
      const target = { path: '/srv/new/below', within: '/srv' };
      const missing = await files.openFolder(target).then(
        () => undefined,
        (error: unknown) => (error as NodeJS.ErrnoException).code,
      );
      expect(missing).to.equal('ENOENT');
      await (await files.openFolder(target, true))[Symbol.asyncDispose]();
      expect((await stat(join(root, 'srv/new/below'))).mode & 0o777).to.equal(0o700);
    });

    it('refuse a path that a link leads out of its limit', async () => {
      await mkdir(join(root, 'srv/quay-other'));
      await link('../quay-other', 'srv/quay/data');
      for (const open of [
        files.openFolder({ path: '/srv/quay/data', within: '/srv/quay' }, true),
        files.openParent({ path: '/srv/quay/data/file', within: '/srv/quay' }, true),
      ]) {
        const { message, hint } = await failureOf(open, 'not-writable');
        expect(message).to.match(/\/srv\/quay\/data.* leads to \/srv\/quay-other.*, outside of \/srv\/quay$/);
        expect(hint).to.contain('Replace the symbolic link');
      }
      await (await files.openFolder({ path: '/srv/quay', within: '/srv/quay' }))[Symbol.asyncDispose]();
    });

    it('refuse a file in the place of a folder', async () => {
      const target = { path: '/srv/quay/config.yaml', within: '/' };
      expect((await failureOf(files.openFolder(target, true), 'not-writable')).message).to.contain(
        `${root}/srv/quay/config.yaml cannot be written`,
      );
    });
  });

  it('reads in a folder that it holds open, although another one replaced it, until it is disposed', async () => {
    const folder = await files.openFolder({ path: '/srv/quay', within: '/' });
    const held = files.hold('/srv/quay', folder);
    expect(files.heldAt('/srv/quay')).to.equal(folder);
    await rename(join(root, 'srv/quay'), join(root, 'srv/aside'));
    await mkdir(join(root, 'srv/quay'));
    expect(await files.readText(`${folder.held}/config.yaml`)).to.equal('content');
    expect(files.locate(`${folder.held}/x`)).to.equal(`${folder.held}/x`);
    expect(files.locate('/srv/x')).to.equal(`${root}/srv/x`);
    await held[Symbol.asyncDispose]();
    expect(files.heldAt('/srv/quay')).to.equal(undefined);
  });

  it('opens a folder of this machine, which must exist', async () => {
    await using folder = await openMachineFolder(join(root, 'srv'));
    expect(await folder.list()).to.deep.equal(['quay']);
    const missing = await failureOf(openMachineFolder(join(root, 'none')), 'not-found');
    expect(missing.message).to.contain(join(root, 'none'));
  });
});

import { chown, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile, lchown } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { StateFolder, takeStateLock } from '../../../lib/registry-host/installation/stateFolder.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { failureOf } from '../../support/program/failure.ts';

const user = 1234;

describe('StateFolder in the folder of another user', function () {
  let root: string;
  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'state-folder-'));
    await mkdir(join(root, 'home'), { recursive: true });
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  /** Replaces the folder with a link to the folder of the system, as its owner does. */
  async function swap(): Promise<void> {
    await rename(join(root, 'home'), join(root, 'home.aside'));
    await symlink(join(root, 'system'), join(root, 'home'));
    await lchown(join(root, 'home'), user, user);
  }

  it('trusts no state of another user, nor in a folder of one', async () => {
    const quayRoot = { value: '/home', file: '', line: 0 };
    const state = new StateFolder(new HostFiles(root), { quayRoot });
    await state.write('backups/file', 'x');
    expect(String(await state.read('backups/file'))).to.equal('x');
    for (const name of ['backups/file', '.']) {
      await chown(join(root, state.path, name), user, user);
      await failureOf(state.read('backups/file'), 'not-readable');
      await chown(join(root, state.path, name), 0, 0);
    }
  });

  it('finds the state of this program where it was locked', async () => {
    const files = new HostFiles(root);
    const quayRoot = { value: '/home', file: '', line: 0 };
    await mkdir(join(root, 'system/.oc-mirror-registry/backup'), { recursive: true, mode: 0o700 });
    {
      await using _lock = await takeStateLock(files, { quayRoot });
      const state = new StateFolder(files, { quayRoot });
      await state.makeFolder('backup');
      await swap();
      await writeFile(join(await state.locate('backup'), 'dump'), '');
      await rm(await state.locate('../.oc-mirror-registry/missing'), { force: true });
    }
    expect(await readdir(join(root, 'home.aside/.oc-mirror-registry/backup'))).to.deep.equal(['dump']);
    expect(await readdir(join(root, 'home.aside/.oc-mirror-registry'))).to.deep.equal(['backup']);
    expect(await readdir(join(root, 'system/.oc-mirror-registry/backup'))).to.deep.equal([]);
  });
});

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { readStorageConfig } from '../../../lib/node/runtime/storageConfig.ts';

describe('readStorageConfig', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'host-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  const write = async (path: string, ...lines: string[]): Promise<void> => {
    await mkdir(join(root, path, '..'), { recursive: true });
    await writeFile(join(root, path), lines.join('\n'));
  };
  const read = (environment: Record<string, string> = {}) => readStorageConfig({ root, environment });

  it('has the defaults of root without a file', async () => {
    expect(await read()).to.deep.equal({
      driver: 'overlay',
      graphRoot: '/var/lib/containers/storage',
      runRoot: '/run/containers/storage',
      additionalStores: [],
    });
  });

  it('reads the file of a node as it is there', async () => {
    await write(
      'etc/containers/storage.conf',
      '# comment',
      '[storage]',
      'driver = "overlay" # the only one',
      'graphroot = "/var/lib/containers/storage"',
      "runroot = '/run/containers/storage'",
      '[storage.options]',
      '# additionalimagestores = [ "/no" ]',
      'additionalimagestores = [',
      '  "/usr/lib/containers/storage", # of the distribution',
      '  "/var/lib/shared/oc-upgrade-bundle/store"',
      ']',
      '[storage.options.overlay]',
      'skip_mount_home = "true"',
    );
    const { additionalStores } = await read();
    expect(additionalStores).to.deep.equal(['/usr/lib/containers/storage', '/var/lib/shared/oc-upgrade-bundle/store']);
  });

  it('prefers /etc to /usr, one that is named to both, and drop-ins to all, in their order', async () => {
    await write('usr/share/containers/storage.conf', '[storage]', 'graphroot = "/usr"', 'driver = "vfs"');
    expect(await read()).to.include({ graphRoot: '/usr', driver: 'vfs' });
    await write('etc/containers/storage.conf', '[storage]', 'graphroot = "/etc"');
    expect(await read()).to.include({ graphRoot: '/etc', driver: 'overlay' });
    await write('own.conf', 'storage.graphroot = "/own"');
    expect(await read({ CONTAINERS_STORAGE_CONF: '/own.conf' })).to.include({ graphRoot: '/own' });
    await write('etc/containers/storage.conf.d/20.conf', '[storage]', 'graphroot = "/twenty"');
    await write('etc/containers/storage.conf.d/10.conf', '[storage]', 'graphroot = "/ten"');
    await write('etc/containers/storage.conf.d/90.conf.off', '[storage]', 'graphroot = "/off"');
    expect(await read({ STORAGE_DRIVER: 'vfs' })).to.include({ graphRoot: '/twenty', driver: 'vfs' });
  });
});

import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { describeMainStore, readStorageConfig, readToml, stringsOf } from '../../../lib/node/runtime/storageConfig.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { run } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { storageCases, type StorageCase } from './storageCases.ts';

const usual = {
  driver: 'overlay',
  graphRoot: '/var/lib/containers/storage',
  runRoot: '/run/containers/storage',
  imageStore: undefined,
  mountProgram: undefined,
  additionalStores: [],
};

describe('readStorageConfig', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'host-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  const write = async (files: StorageCase['files']): Promise<void> => {
    for (const [path, content] of Object.entries(files)) {
      await mkdir(dirname(join(root, path)), { recursive: true });
      if (typeof content === 'string') await writeFile(join(root, path), content);
      else await symlink(content.link, join(root, path));
    }
  };

  for (const { name, files, environment = {}, expected } of storageCases)
    for (const rules of ['one-file', 'drop-ins'] as const)
      it(`reads ${name} (${rules})`, async () => {
        await write(files);
        expect(await readStorageConfig({ root, environment }, rules)).to.deep.equal({ ...usual, ...expected[rules] });
      });

  it('reads the file of a node as it is there', async () => {
    const lines = [
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
    ];
    await write({ 'etc/containers/storage.conf': lines.join('\n') });
    const host = { root, environment: {} };
    const { additionalStores } = await readStorageConfig(host, 'one-file');
    expect(additionalStores).to.deep.equal(['/usr/lib/containers/storage', '/var/lib/shared/oc-upgrade-bundle/store']);
    const main = await describeMainStore(host, 'one-file');
    expect(main?.variable).to.equal('CONTAINERS_STORAGE_CONF');
    expect(main?.text).to.match(/additionalimagestores = \[\]\n.*\nskip_mount_home/);
    expect(await describeMainStore(host, 'drop-ins')).to.deep.equal({
      variable: 'CONTAINERS_STORAGE_CONF_OVERRIDE',
      text: '[storage.options]\nadditionalimagestores = [{ append = false }]\n',
    });
  });

  it('says which file a variable names that is missing', async () => {
    const environment = { CONTAINERS_STORAGE_CONF: '/run/absent.conf' };
    for (const rules of ['one-file', 'drop-ins'] as const)
      expect((await failureOf(readStorageConfig({ root, environment }, rules), 'not-readable')).message).to.equal(
        '/run/absent.conf does not exist',
      );
  });

  // In a mount namespace with the folders of the case, the podman of this machine says which store it uses.
  describe('as podman does on this machine', () => {
    let rules: 'one-file' | 'drop-ins';
    before(async function () {
      await requireRoot(this);
      const { code, stdout } = await run('podman', ['--version']);
      if (code !== 0) this.skip();
      rules = /version [1-5]\./.test(stdout) ? 'one-file' : 'drop-ins';
    });
    const mounts = [
      'mount -t tmpfs tmpfs /run && mkdir -p /var/lib/containers && mount -t tmpfs tmpfs /var/lib/containers',
      'for f in etc/containers usr/share/containers; do mkdir -p "$0/$f" "/$f" && mount --bind "$0/$f" "/$f"; done',
      'if [ -d "$0/run" ]; then cp -r "$0/run/." /run; fi; exec podman info --format json',
    ];
    for (const { name, files, environment = {}, expected } of storageCases.filter(({ expected: each }) =>
      Object.values(each).every(({ additionalStores = [] }) => additionalStores.length === 0),
    ))
      it(`reads ${name}`, async () => {
        await write(files);
        const variables = Object.entries(environment).map(([key, value]) => `${key}=${value}`);
        const command = ['env', ...variables, 'unshare', '-m', 'sh', '-c', mounts.join(' && '), root];
        const { stdout, stderr } = await run('env', ['-u', 'CONTAINERS_STORAGE_CONF', ...command]);
        const { store } = JSON.parse(stdout.slice(stdout.indexOf('{')) || `"${stderr}"`) as { store: object };
        const { driver, graphRoot, runRoot } = { ...usual, ...expected[rules] };
        expect(store).to.include({ graphDriverName: driver, graphRoot, runRoot });
      });
  });
});

describe('readToml', () => {
  it('reads tables, dotted keys, lists and tables of the same name', () => {
    const values = readToml('a.b = "1"\n[c]\nd = ["2", "3"]\n[[r]]\np = "4"\n[[r]]\np = "5"\n', 'x.conf');
    expect(['a.b', 'c.d', 'r.p'].map((key) => stringsOf(values, key))).to.deep.equal([['1'], ['2', '3'], ['4', '5']]);
    expect(stringsOf(values, 'c.e')).to.equal(undefined);
  });

  it('tells an empty list from none', () => {
    expect(stringsOf(readToml('[c]\nd = []\n', 'x.conf'), 'c.d')).to.deep.equal([]);
  });

  it('names the line of an invalid file, and never its text', async () => {
    const error = await failureOf(
      Promise.resolve().then(() => readToml('a = 1\npassword = secret\n', 'x.conf')),
      'invalid-file',
    );
    expect(error.message).to.equal('x.conf is not valid TOML: line 2');
  });
});

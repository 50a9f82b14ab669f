import { expect } from 'chai';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { digestOf } from '../../../../lib/oci/digest.ts';
import { makeBundle } from '../../../support/content/bundle.ts';
import { executeProgram, type Execution } from '../../../support/program/execution.ts';

// A machine below a root has its own storage.conf, in place of that of the tests.
const env = { ...process.env };
delete env['CONTAINERS_STORAGE_CONF'];
const upgradeBundle = (...args: string[]): Promise<Execution> => executeProgram('oc-adm_upgrade_bundle', args, { env });

describe('a command on the files of a machine below --root', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'root-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  it('is refused by storage if there is no such folder, and the root is part of what is printed', async () => {
    const refused = await upgradeBundle('storage', '--write', `--root=${root}/absent`);
    expect(refused.code).to.equal(2);
    expect(refused.stderr).to.match(/^error \([a-z-]+\): --root: there is no folder \S+\/absent\nhint: /);
    expect(await stat(`${root}/absent`).catch(() => undefined)).to.equal(undefined);
    const file = join(root, 'etc/containers/storage.conf');
    const written = await upgradeBundle('storage', '--write', `--root=${root}`);
    expect(written.stdout)
      .to.contain(`${file} names /var/`)
      .and.to.contain(`Next: chroot ${root} systemctl restart crio`);
    expect(await readFile(file, 'utf8')).to.contain('additionalimagestores');
    expect((await upgradeBundle('storage', '--remove', `--root=${root}`)).stdout).to.contain(`${file} is removed`);
  });

  it('has storage print its result as JSON', async () => {
    const file = join(root, 'etc/containers/storage.conf');
    const store = join(root, 'store');
    const storage = async (...args: string[]): Promise<unknown> => {
      const { stdout } = await upgradeBundle('storage', `--root=${root}`, '--store-path=/store', '-o', 'json', ...args);
      return JSON.parse(stdout);
    };
    expect(await storage())
      .to.deep.include({ file, store, changed: false })
      .and.to.have.property('content');
    expect(await storage('--write')).to.deep.equal({ outputVersion: 1, file, store, changed: true });
    expect(await storage('--write')).to.deep.equal({ outputVersion: 1, file, store, changed: false });
    expect(await storage('--remove')).to.deep.equal({ outputVersion: 1, file, store, changed: true });
  });

  it('has load compare the whole bundle with a file of sha256sum', async () => {
    await using bundle = await makeBundle();
    const sums = join(root, 'sums');
    await writeFile(sums, `${digestOf('another').slice('sha256:'.length)}  ${bundle.path}\n`);
    const differing = await upgradeBundle('load', bundle.path, `--sha256=${sums}`, `--root=${root}`);
    expect(differing.stderr).to.contain(digestOf('another'));
    const other = await upgradeBundle('load', bundle.path, `--digest=${'0'.repeat(64)}`, `--root=${root}`);
    expect(other.stderr).to.contain(`sha256:${'0'.repeat(64)}`);
    const digest = `--digest=${digestOf('another')}`;
    const both = await upgradeBundle('load', bundle.path, `--sha256=${sums}`, digest, `--root=${root}`);
    expect(both.stderr).to.contain('--digest and --sha256 exclude each other');
  });
});

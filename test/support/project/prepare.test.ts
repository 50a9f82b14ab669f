import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { run, type RunResult } from '../peers.ts';

const script = fileURLToPath(new URL('../../../.ci/prepare.mjs', import.meta.url));

describe('prepare', () => {
  let root: string;

  // A separate project, on a machine whose PATH has only programs of the test.
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'prepare-'));
    for (const folder of ['.ci', 'bin', 'node_modules']) await mkdir(join(root, folder));
    await copyFile(script, join(root, '.ci/prepare.mjs'));
    await writeFile(join(root, 'package-lock.json'), '{}');
    await symlink('/bin/sh', join(root, 'bin/sh'));
    await addCommand('npm', 'echo "npm $*" >> "$LOG"');
  });

  afterEach(() => rm(root, { recursive: true, force: true }));

  async function addCommand(name: string, body: string): Promise<void> {
    await writeFile(join(root, 'bin', name), `#!/bin/sh\n${body}\n`);
    await chmod(join(root, 'bin', name), 0o755);
  }

  async function prepare(...words: string[]): Promise<RunResult & { log: string }> {
    const env = { PATH: join(root, 'bin'), LOG: join(root, 'log') };
    const result = await run(process.execPath, [join(root, '.ci/prepare.mjs'), ...words], { env });
    return { ...result, log: await readFile(join(root, 'log'), 'utf8').catch(() => '') };
  }

  async function addPeers(): Promise<void> {
    const packages = /^const peers = \{(.*?)^\};/ms.exec(await readFile(script, 'utf8'))?.[1] ?? '';
    for (const [, name = ''] of packages.matchAll(/^ {2}'?([\w.-]+)'?: /gm)) await addCommand(name, 'true');
  }

  it('installs missing packages', async () => {
    await addPeers();
    const { code, log } = await prepare();
    expect(code).to.equal(0);
    expect(log).to.match(/^npm ci .*--no-audit/);
  });

  it('installs the packages again when the lock file has changed since', async () => {
    await addPeers();
    await writeFile(join(root, 'node_modules/.package-lock.json'), '{}');
    await utimes(join(root, 'node_modules/.package-lock.json'), 1e9, 1e9);
    expect((await prepare()).log).to.match(/^npm ci /);
  });

  it('says and does nothing when everything is there', async () => {
    await addPeers();
    await writeFile(join(root, 'node_modules/.package-lock.json'), '{}');
    expect(await prepare('peers')).to.include({ code: 0, stdout: '', stderr: '', log: '' });
  });

  it('leaves the programs of others alone unless it is asked for them', async () => {
    await writeFile(join(root, 'node_modules/.package-lock.json'), '{}');
    await addCommand('apt-get', 'echo "apt-get $*" >> "$LOG"');
    expect(await prepare()).to.include({ code: 0, stdout: '', stderr: '', log: '' });
  });

  it('fails when the packages cannot be installed', async () => {
    await addPeers();
    await addCommand('npm', 'exit 1');
    const { code, stderr } = await prepare();
    expect(code).to.equal(1);
    expect(stderr).to.include('npm ci failed');
  });

  it('reports no error of apt-get if the packages are installed one by one', async function () {
    if (process.getuid?.() !== 0) this.skip();
    await writeFile(join(root, 'node_modules/.package-lock.json'), '{}');
    await addPeers();
    for (const name of ['skopeo', 'zsh']) await rm(join(root, 'bin', name));
    // As on a fresh machine, where the first installation fails.
    const body = `[ "$2" = update ] && exit 0
[ $# = 5 ] || { echo held broken packages >&2; exit 100; }
/bin/ln -s podman "\${0%/*}/$5"`;
    await addCommand('apt-get', body);
    const { code, stderr } = await prepare('peers');
    expect(code).to.equal(0);
    expect(stderr).to.equal('Installing these Debian packages for the tests: skopeo, zsh (apt-get) …\n');
  });

  it('continues with a warning if a peer cannot be installed', async () => {
    await writeFile(join(root, 'node_modules/.package-lock.json'), '{}');
    await addCommand('apt-get', 'echo "apt-get $*" >> "$LOG"; echo "E: no network" >&2; exit 100');
    const { code, stderr, log } = await prepare('peers');
    expect(code).to.equal(0);
    expect(stderr).to.include('NOT INSTALLED: docker-registry, skopeo, podman, newuidmap, slirp4netns, openssl');
    if (process.getuid?.() === 0) {
      expect(stderr).to.match(/^Installing these Debian packages for the tests: docker-registry, skopeo/);
      expect(log).to.include('apt-get -qq update');
      expect(stderr).to.include('E: no network');
    }
  });
});

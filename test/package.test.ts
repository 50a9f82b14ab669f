import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { list } from 'tar';
import { parse } from 'yaml';
import { makeZip } from '../.config/zip.ts';
import { requirePeer, run, runSuccessfully } from './support/peers.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

interface Plugin {
  spec: { platforms: { uri: string; sha256: string; bin: string; files: { from: string; to: string }[] }[] };
}

describe('npm run package', function () {
  // The executable is large, and compressed with the greatest care.
  this.timeout(400_000);
  let folder: string;
  let packages: string;
  let archive: string;
  before(async function () {
    if (process.platform !== 'linux' || process.arch !== 'x64') this.skip();
    folder = await mkdtemp(join(tmpdir(), 'package-'));
    packages = join(folder, 'packages');
    const args = [join(root, '.config/package.ts'), packages, 'linux-x64'];
    await runSuccessfully(process.execPath, args, { timeout: 400_000 });
    archive = join(packages, (await readdir(packages)).find((name) => name.endsWith('.tar.gz')) ?? '');
    await mkdir(join(folder, 'alone'));
    await runSuccessfully('tar', ['-xzf', archive, '-C', join(folder, 'alone')]);
  });
  after(() => (folder ? rm(folder, { recursive: true, force: true }) : undefined));

  const alone = (name: string): string => join(folder, 'alone', name);
  /** Nothing of this machine’s: no Node.js on the path, no options for it. */
  const bare = { PATH: '/usr/bin:/bin', NODE_OPTIONS: '--no-such-option', HOME: '/nonexistent' };

  it('packs regular files alone, which is all that krew takes, without owners and times', async () => {
    const entries: unknown[] = [];
    await list({
      file: archive,
      onReadEntry: ({ path, type, mode, mtime, uid, uname }) =>
        entries.push([path, type, mode, mtime?.getTime(), uid, uname]),
    });
    expect(entries).to.deep.equal([
      ['oc-disconnected', 'File', 0o755, 0, undefined, ''],
      ['LICENSE', 'File', 0o644, 0, undefined, ''],
      ['THIRD-PARTY-NOTICES', 'File', 0o644, 0, undefined, ''],
    ]);
    expect((await stat(archive)).size).to.be.below(60e6);
  });

  it('tells the checksums as sha256sum does', async () => {
    await runSuccessfully('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: packages });
  });

  it('names the licence of every package, and that of Node.js', async () => {
    const notices = await readFile(alone('THIRD-PARTY-NOTICES'), 'utf8');
    for (const name of ['yargs', 'tar', 'openpgp', '@kubernetes/client-node', 'semver']) {
      expect(notices).to.match(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(.+\\)$`, 'm'));
    }
    expect(notices)
      .to.match(/^Node\.js$/m)
      .and.to.match(/OpenSSL/);
  });

  it('makes one executable that is each program by the name that it is called by', async () => {
    for (const [name, help] of [
      ['oc-adm_upgrade_bundle', /^Put everything/],
      ['oc-adm_release_mirror_config', /^Mirror /],
      ['kubectl-adm_mirror_registry', /^Look into the mirror registry/],
      ['oc-disconnected', /^Put everything/],
    ] as const) {
      if (name !== 'oc-disconnected') await symlink('oc-disconnected', alone(name));
      const { code, stdout, stderr } = await run(alone(name), ['--help'], { cwd: '/', env: bare });
      expect({ code, stderr }, name).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(help);
    }
    const byWord = await run(alone('oc-disconnected'), ['adm-mirror-registry', '--version'], { env: bare });
    expect(byWord.stdout).to.match(/^\d+\.\d+\.\d+/);
    expect((await run(alone('oc-adm_upgrade_bundle'), ['dance'], { env: bare })).code).to.equal(2);
  });

  it('asks nothing of the system that is not in RHEL 9', async () => {
    const { code, stdout } = await run('objdump', ['-p', alone('oc-disconnected')]);
    if (code === -1) return;
    const needed = [...stdout.matchAll(/NEEDED +(\S+)/g)].map(([, name]) => name);
    // libatomic has a package of its own there; all others are those of every installation.
    expect([
      ...['libc.so.6', 'libdl.so.2', 'libm.so.6', 'libpthread.so.0', 'ld-linux-x86-64.so.2'],
      ...['libstdc++.so.6', 'libgcc_s.so.1', 'libatomic.so.1'],
    ]).to.include.members(needed);
    const versions = [...stdout.matchAll(/GLIBC_2\.(\d+)/g)].map(([, minor]) => Number(minor));
    expect(Math.max(...versions)).to.be.within(17, 34);
  });

  it('is installed as krew does it, and run by kubectl', async function () {
    requirePeer(this, 'kubectl');
    for (const [file, words] of [
      ['plugin.yaml', 'adm-upgrade-bundle'],
      ['plugin-release-mirror-config.yaml', 'adm-release-mirror-config'],
      ['plugin-mirror-registry.yaml', 'adm-mirror-registry'],
    ] as const) {
      const { platforms } = (parse(await readFile(join(packages, 'krew', file), 'utf8')) as Plugin).spec;
      const [platform, ...others] = platforms;
      if (!platform || others.length > 0) throw new Error(`${file} has ${String(platforms.length)} platforms`);
      expect(platform.uri.endsWith(archive.slice(packages.length))).to.equal(true);
      const content = await readFile(archive);
      expect(createHash('sha256').update(content).digest('hex')).to.equal(platform.sha256);
      const [download, store, bin] = ['download', 'store', 'bin'].map((name) => join(folder, words, name));
      if (!download || !store || !bin) throw new Error('unreachable');
      for (const each of [download, store, bin]) await mkdir(each, { recursive: true });
      await runSuccessfully('tar', ['-xzf', archive, '-C', download]);
      for (const { from, to } of platform.files) {
        const target = join(store, to === '.' ? from : to);
        await mkdir(dirname(target), { recursive: true });
        await rename(join(download, from), target);
      }
      await chmod(join(store, platform.bin), 0o755);
      await symlink(join(store, platform.bin), join(bin, `kubectl-${words.replaceAll('-', '_')}`));
      const env = { ...bare, PATH: `${bin}:${process.env['PATH'] ?? ''}`, NODE_OPTIONS: '', HOME: folder };
      const { code, stdout } = await run('kubectl', [words, '--help'], { env });
      expect(code).to.equal(0);
      expect(stdout).to.include(`Usage: oc ${words}`);
      await rm(join(folder, words), { recursive: true });
    }
  });
});

describe('makeZip', () => {
  it('makes an archive that others read, the same each time', async function () {
    const folder = await mkdtemp(join(tmpdir(), 'zip-'));
    try {
      const entries = [
        { name: 'a.exe', content: Buffer.alloc(100_000, 'x'), mode: 0o755 },
        { name: 'LICENSE', content: Buffer.from('Do what is right.\n'), mode: 0o644 },
      ];
      expect(makeZip(entries).equals(makeZip(entries))).to.equal(true);
      await writeFile(join(folder, 'a.zip'), makeZip(entries));
      const { code, stdout } = await run('python3', [
        '-c',
        'import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n' +
          'for i in z.infolist(): print(i.filename, i.file_size, oct(i.external_attr >> 16))\nprint(z.read("LICENSE"))',
        join(folder, 'a.zip'),
      ]);
      if (code === -1) return this.skip();
      expect(stdout).to.equal("a.exe 100000 0o100755\nLICENSE 18 0o100644\nb'Do what is right.\\n'\n");
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

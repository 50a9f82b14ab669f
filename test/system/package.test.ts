import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { list } from 'tar';
import { parse } from 'yaml';
import { makeZip } from '../../.config/zip.ts';
import { manPages } from '../../.config/manPages.ts';
import manifest from '../../package.json' with { type: 'json' };
import { programs } from '../support/project/docs.ts';
import { describeCarriedPackages } from '../support/project/carriedPackages.ts';
import { requirePeer, run, runSuccessfully } from '../support/peers.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

interface Plugin {
  spec: { platforms: { uri: string; sha256: string; bin: string; files: { from: string; to: string }[] }[] };
}

describe('npm run package', function () {
  // The executables are large.
  this.timeout(900_000);
  let folder: string;
  let packages: string;
  let archive: string;
  before(async function () {
    if (process.platform !== 'linux' || process.arch !== 'x64') this.skip();
    folder = await mkdtemp(join(tmpdir(), 'package-'));
    packages = join(folder, 'packages');
    await mkdir(packages);
    await writeFile(join(packages, 'notes.txt'), 'mine');
    await writeFile(join(packages, `oc-disconnected-${manifest.version}-linux-amd64.tar.gz`), 'old');
    await makePackages(packages);
    archive = archiveFor('linux-amd64.tar.gz');
    await runSuccessfully(process.execPath, [join(root, '.config/krewFiles.ts'), packages, 'https://dl.test/v1']);
    await mkdir(join(folder, 'alone'));
    await runSuccessfully('tar', ['-xzf', archive, '-C', join(folder, 'alone')]);
    await mkdir(join(folder, 'arm64'));
    await runSuccessfully('tar', ['-xzf', archiveFor('linux-arm64.tar.gz'), '-C', join(folder, 'arm64')]);
    for (const name of ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config', 'kubectl-adm_mirror_registry']) {
      await symlink('oc-disconnected', alone(name));
    }
  });
  after(() => (folder ? rm(folder, { recursive: true, force: true }) : undefined));

  const archiveFor = (end: string): string => join(packages, `oc-disconnected-${manifest.version}-${end}`);
  const alone = (name: string): string => join(folder, 'alone', name);
  const makePackages = (into: string, ...platforms: readonly string[]): Promise<string> =>
    runSuccessfully(process.execPath, [join(root, '.config/package.ts'), into, '--fast', ...platforms], {
      timeout: 600_000,
    });
  /** No Node.js on the PATH, and no options for it. */
  const bare = { PATH: '/usr/bin:/bin', NODE_OPTIONS: '--no-such-option', HOME: '/nonexistent' };

  it('leaves files alone that it did not write', async () => {
    expect(await readFile(join(packages, 'notes.txt'), 'utf8')).to.equal('mine');
  });

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
      ...[...(await manPages(programs)).keys()].map((name) => [`man/${name}`, 'File', 0o644, 0, undefined, '']),
    ]);
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
      ['oc-adm_upgrade_bundle', /^Create one file/],
      ['oc-adm_release_mirror_config', /^Mirror /],
      ['kubectl-adm_mirror_registry', /^Inspect and upgrade the mirror registry/],
      ['oc-disconnected', /^Plugins of oc for OpenShift clusters/],
    ] as const) {
      const { code, stdout, stderr } = await run(alone(name), ['--help'], { cwd: '/', env: bare });
      expect({ code, stderr }, name).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(help);
    }
    const byWord = await run(alone('oc-disconnected'), ['adm-mirror-registry', '--version'], { env: bare });
    expect(byWord.stdout).to.match(/^\d+\.\d+\.\d+/);
    expect((await run(alone('oc-adm_upgrade_bundle'), ['dance'], { env: bare })).code).to.equal(2);
  });

  it('answers to kubectl what words may follow, by the name that kubectl calls for that', async () => {
    await symlink('kubectl-adm_mirror_registry', alone('kubectl_complete-adm_mirror_registry'));
    const answer = await run(alone('kubectl_complete-adm_mirror_registry'), ['certs', 'r'], { env: bare });
    expect(answer).to.deep.equal({ code: 0, stdout: 'renew\n:4\n', stderr: '' });
  });

  it('asks nothing of the system that a minimal RHEL 9 does not have, on either machine', async function () {
    requirePeer(this, 'readelf');
    for (const [file, machine] of [
      [alone('oc-disconnected'), 'Advanced Micro Devices X86-64'],
      [join(folder, 'arm64/oc-disconnected'), 'AArch64'],
    ] as const) {
      const header = await runSuccessfully('readelf', ['--file-header', '--dynamic', '--version-info', '--wide', file]);
      expect(header).to.match(new RegExp(`Machine: +${machine}`));
      const needed = [...header.matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name);
      expect(needed).to.include('libc.so.6');
      // Libraries of packages that every installation has: glibc, libstdc++ and libgcc.
      expect([
        ...['libc.so.6', 'libdl.so.2', 'libm.so.6', 'libpthread.so.0', 'libstdc++.so.6', 'libgcc_s.so.1'],
        ...['ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'],
      ]).to.include.members(needed);
      const minorOf = (name: RegExp): number =>
        Math.max(...[...header.matchAll(name)].map(([, minor]) => Number(minor)));
      // RHEL 9 has glibc 2.34, and the libstdc++ of GCC 11.
      expect(minorOf(/\bGLIBC_2\.(\d+)/g)).to.be.within(17, 34);
      expect(minorOf(/\bGLIBCXX_3\.4\.(\d+)/g)).to.be.within(9, 29);
      expect(minorOf(/\bCXXABI_1\.3\.(\d+)/g)).to.be.within(1, 13);
    }
  });

  it('runs on arm64', async function () {
    requirePeer(this, 'qemu-aarch64');
    const args = [
      '-L',
      '/usr/aarch64-linux-gnu',
      '-0',
      'oc-adm_mirror_registry',
      join(folder, 'arm64/oc-disconnected'),
    ];
    const { code, stdout, stderr } = await run('qemu-aarch64', [...args, '--help'], { env: bare });
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(stdout).to.match(/^Inspect and upgrade the mirror registry/);
  });

  it('makes a console program for Windows with all of it in it', async function () {
    requirePeer(this, 'python3');
    await mkdir(join(folder, 'windows'));
    await runSuccessfully('python3', ['-m', 'zipfile', '-e', archiveFor('windows-amd64.zip'), join(folder, 'windows')]);
    expect((await readdir(join(folder, 'windows'))).sort()).to.deep.equal([
      ...['LICENSE', 'THIRD-PARTY-NOTICES', 'oc-disconnected.exe'],
    ]);
    const content = await readFile(join(folder, 'windows/oc-disconnected.exe'));
    const header = content.readUInt32LE(0x3c);
    expect(content.toString('latin1', header, header + 4)).to.equal('PE\0\0');
    const [machine, subsystem] = [content.readUInt16LE(header + 4), content.readUInt16LE(header + 24 + 68)];
    expect({ machine, subsystem }).to.deep.equal({ machine: 0x8664, subsystem: 3 });
    // The switch that Node.js reads, and the program.
    expect(content.includes('NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2:1')).to.equal(true);
    expect(content.includes('Create one file with everything that an OpenShift update needs')).to.equal(true);
  });

  it('makes an archive for each platform except macOS, with the checksums of all in one file and in the manifests', async () => {
    const archives = (await readdir(packages)).filter((name) => /^oc-.*(?:gz|zip)$/.test(name));
    expect(archives.map((name) => name.replace(/^oc-disconnected-[^-]+-/, ''))).to.have.members([
      ...['linux-amd64.tar.gz', 'linux-arm64.tar.gz', 'windows-amd64.zip'],
    ]);
    const sums = await readFile(join(packages, 'SHA256SUMS'), 'utf8');
    const { platforms } = (parse(await readFile(join(packages, 'adm-upgrade-bundle.yaml'), 'utf8')) as Plugin).spec;
    const lines = platforms.map(({ uri, sha256 }) => `${sha256}  ${uri.replace(/.*\//, '')}`);
    expect(sums.trimEnd().split('\n')).to.include.members(lines);
    const listed = sums
      .trimEnd()
      .split('\n')
      .map((line) => line.slice(66));
    const others = (await readdir(packages)).filter(
      (name) => !['SHA256SUMS', 'krew-index', 'notes.txt'].includes(name),
    );
    expect(listed).to.have.members(others);
    expect(listed.filter((name) => name.endsWith('.cdx.json'))).to.have.length(archives.length);
    expect(platforms).to.have.length(archives.length);
  });

  it('makes archives of less than 60 MB, the same bytes again', async () => {
    const again = join(folder, 'again');
    await makePackages(again, 'linux-x64');
    const name = archive.slice(packages.length + 1);
    expect((await readFile(join(again, name))).equals(await readFile(archive)), name).to.equal(true);
    for (const each of await readdir(packages)) {
      if (each.startsWith('oc-')) expect((await stat(join(packages, each))).size, each).to.be.below(60e6);
    }
  });

  describeCarriedPackages((name, args) =>
    run(alone(name.replace('oc-adm_mirror_registry', 'kubectl-adm_mirror_registry')), args, { env: bare, cwd: folder }),
  );

  it('is installed as the page about it says, to the letter', async function () {
    requirePeer(this, 'unshare');
    if (process.getuid?.() !== 0) return this.skip();
    const page = await readFile(join(root, 'docs/how-to/install.md'), 'utf8');
    const sections = ['\n## Steps\n', '\n## Verify\n'].map((title) => page.split(title)[1]?.split(/^##/m)[0] ?? '');
    const blocks = sections.join('').matchAll(/^( *)```\n([^]*?)^\1```$/gm);
    const block = [...blocks].map(([, indent = '', text = '']) => text.replaceAll(`\n${indent}`, '\n')).join('');
    expect(block).to.include('/usr/local/bin');
    const tools = join(folder, 'tools');
    await mkdir(tools);
    await writeFile(join(tools, 'sudo'), '#!/bin/sh\nexec "$@"\n', { mode: 0o755 });
    // Finds a plugin as oc does.
    const oc = '#!/bin/bash\nname=oc-${1//-/_}; shift; exec "$name" "$@"\n';
    await writeFile(join(tools, 'oc'), oc, { mode: 0o755 });
    const script = `mount -t tmpfs none /usr/local/bin\n${block}ls /usr/local/bin\n`;
    const { code, stdout, stderr } = await run('unshare', ['--mount', 'bash', '-e', '-c', script], {
      cwd: packages,
      env: { ...bare, PATH: `${tools}:/usr/local/bin:/usr/bin:/bin` },
    });
    await rm(join(packages, 'oc-disconnected'), { force: true });
    expect(code, stderr).to.equal(0);
    expect(stdout)
      .to.match(/^oc-disconnected-.*: OK$/m)
      .and.to.match(/^ *oc adm-mirror-registry +\/usr\/local\/bin\//m);
    expect(stdout).to.match(
      /^oc-adm_mirror_registry\noc-adm_release_mirror_config\noc-adm_upgrade_bundle\noc-disconnected$/m,
    );
  });

  it('is installed as krew does it, and run by kubectl', async function () {
    requirePeer(this, 'kubectl');
    for (const words of ['adm-upgrade-bundle', 'adm-release-mirror-config', 'adm-mirror-registry']) {
      const file = `${words}.yaml`;
      const { platforms } = (parse(await readFile(join(packages, file), 'utf8')) as Plugin).spec;
      const platform = platforms.find(({ uri }) => uri.endsWith(archive.slice(packages.length)));
      if (!platform) throw new Error(`${file} has nothing for this platform`);
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
      expect(stdout).to.include(`Usage:\n  kubectl ${words}`);
      await rm(join(folder, words), { recursive: true });
    }
  });
});

describe('npm run package with an unknown platform', () => {
  it('ends with 2, names the platforms, and writes and removes nothing', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'package-'));
    try {
      await writeFile(join(folder, 'notes.txt'), 'mine');
      const script = join(root, '.config/package.ts');
      const { code, stderr } = await run(process.execPath, [script, folder, 'linux-x65']);
      expect(code).to.equal(2);
      expect(stderr)
        .to.match(/^error: unknown platform: linux-x65\n/)
        .and.to.include('linux-amd64, linux-arm64');
      expect(await readdir(folder)).to.deep.equal(['notes.txt']);
    } finally {
      await rm(folder, { recursive: true });
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

import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { list } from 'tar';
import { parse } from 'yaml';
import { imageNameOf, makeImage } from '../../.config/image.ts';
import { linkNames, platforms } from '../../.config/krew.ts';
import { manPages } from '../../.config/manPages.ts';
import { makeRpm, rpmNameOf } from '../../.config/rpm.ts';
import { makeZip } from '../../.config/zip.ts';
import manifest from '../../package.json' with { type: 'json' };
import { hasPeer, requirePeer, run, runSuccessfully } from '../support/peers.ts';
import { describeCarriedPackages } from '../support/project/carriedPackages.ts';
import { programs } from '../support/project/docs.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

interface Plugin {
  spec: { platforms: { uri: string; sha256: string; bin: string; files: { from: string; to: string }[] }[] };
}

describe('npm run package', function () {
  let folder: string;
  let packages: string;
  let archive: string;
  let base: string;
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
    runSuccessfully(process.execPath, [join(root, '.config/package.ts'), into, '--fast', ...platforms]);
  /** Signs the checksums as a release does. Returns the fingerprint of the key. */
  const signChecksums = async (): Promise<string> => {
    const env = { ...process.env, GNUPGHOME: join(folder, 'gpg') };
    await rm(env.GNUPGHOME, { recursive: true, force: true });
    await mkdir(env.GNUPGHOME, { mode: 0o700 });
    const gpg = (...args: string[]) => runSuccessfully('gpg', ['--batch', '--armor', ...args], { cwd: packages, env });
    try {
      await gpg('--passphrase', '', '--quick-generate-key', 'Project', 'ed25519', 'sign', 'never');
      await gpg('--yes', '--detach-sign', 'SHA256SUMS');
      await writeFile(join(packages, 'oc-disconnected.asc'), await gpg('--export'));
      return /^fpr:+(\w+):$/m.exec(await gpg('--list-keys', '--with-colons'))?.[1] ?? '';
    } finally {
      await run('gpgconf', ['--kill', 'all'], { env });
    }
  };
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
    // Without --ignore-missing it would want the executables, which are inside the archives.
    await runSuccessfully('sha256sum', ['--check', '--strict', '--ignore-missing', 'SHA256SUMS'], { cwd: packages });
  });

  it('has executables that find themselves in signed checksums, also by a key of the usual kind of gpg', async function () {
    requirePeer(this, 'gpg');
    const fingerprint = await signChecksums();
    const keys = ['--signature-keyring=oc-disconnected.asc', `--trust-fingerprint=${fingerprint}`];
    const doctor = (): ReturnType<typeof run> =>
      run(alone('oc-adm_upgrade_bundle'), ['doctor', '--checksums=SHA256SUMS', ...keys], { env: bare, cwd: packages });
    const { code, stdout, stderr } = await doctor();
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^ {2}Released +as linux-amd64\/oc-disconnected, signed by Project /m);
    const sums = await readFile(join(packages, 'SHA256SUMS'));
    await writeFile(join(packages, 'SHA256SUMS'), '\n', { flag: 'a' });
    expect((await doctor()).stderr).to.match(/^error \(untrusted\): no trusted key signed SHA256SUMS\n/);
    await writeFile(join(packages, 'SHA256SUMS'), sums);
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

  it('completes words for kubectl, by the name that kubectl calls', async () => {
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
        'libc.so.6',
        'libdl.so.2',
        'libm.so.6',
        'libpthread.so.0',
        'libstdc++.so.6',
        'libgcc_s.so.1',
        'ld-linux-x86-64.so.2',
        'ld-linux-aarch64.so.1',
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
      'LICENSE',
      'THIRD-PARTY-NOTICES',
      'oc-disconnected.exe',
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
      'linux-amd64.tar.gz',
      'linux-arm64.tar.gz',
      'windows-amd64.zip',
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
      (name) => !['krew-index', 'notes.txt'].includes(name) && !/^SHA256SUMS|\.asc$/.test(name),
    );
    const inside = ['linux-amd64/oc-disconnected', 'linux-arm64/oc-disconnected', 'windows-amd64/oc-disconnected.exe'];
    expect(listed.filter((name) => name !== '')).to.have.members([...others, ...inside]);
    expect(listed.filter((name) => name.endsWith('.cdx.json'))).to.have.length(archives.length);
    expect(platforms).to.have.length(archives.length);
  });

  it('makes archives of less than 60 MB, the same bytes again', async () => {
    const again = join(folder, 'again');
    base = await makeBase(join(folder, 'base'), alone('oc-disconnected'));
    const forms = [...(hasPeer('rpmbuild') ? ['rpm'] : []), ...(hasPeer('skopeo') ? ['image', `--base=${base}`] : [])];
    await makePackages(again, 'linux-x64', ...forms);
    const name = archive.slice(packages.length + 1);
    expect((await readFile(join(again, name))).equals(await readFile(archive)), name).to.equal(true);
    for (const each of await readdir(packages)) {
      if (each.startsWith('oc-')) expect((await stat(join(packages, each))).size, each).to.be.below(60e6);
    }
  });

  it('makes an rpm of the same files, which asks for their libraries, the same bytes again', async function () {
    requirePeer(this, 'rpmbuild');
    const [own] = platforms;
    if (!own) throw new Error('there is no platform');
    const file = join(folder, 'again', rpmNameOf(own));
    const query = (...args: string[]): Promise<string> => runSuccessfully('rpm', ['-qp', ...args, file]);
    const files = (await query('--dump'))
      .trimEnd()
      .split('\n')
      .map((line) => line.split(' '));
    const sum = createHash('sha256').update(await readFile(alone('oc-disconnected')));
    expect(files.find(([path]) => path === '/usr/bin/oc-disconnected')?.[3]).to.equal(sum.digest('hex'));
    const pages = [...(await manPages(programs)).keys()].map((name) => `/usr/share/man/man1/${name}`);
    expect(files.map(([path]) => path)).to.include.members([
      ...linkNames.map((name) => `/usr/bin/${name}`),
      ...pages,
      '/usr/share/licenses/oc-disconnected/THIRD-PARTY-NOTICES',
    ]);
    expect((await query('--requires')).split('\n'))
      .to.include('libstdc++.so.6()(64bit)')
      .and.not.include('/bin/sh');
    expect(await query('--info')).not.to.match(/example\.com/);
    const other = await makeRpm(own, { place: join(folder, 'alone'), folder, isFast: true });
    expect((await readFile(other)).equals(await readFile(file))).to.equal(true);
  });

  it('makes a container image on a base, the same bytes again', async function () {
    requirePeer(this, 'skopeo');
    const [own] = platforms;
    if (!own) throw new Error('there is no platform');
    const file = join(folder, 'again', imageNameOf(own));
    const inspected = await runSuccessfully('skopeo', ['inspect', '--config', `oci-archive:${file}`]);
    const { config, architecture } = JSON.parse(inspected) as { config: Record<string, object>; architecture: string };
    expect({ architecture, entrypoint: config['Entrypoint'], labels: config['Labels'] }).to.deep.equal({
      architecture: 'amd64',
      entrypoint: ['/usr/bin/oc-disconnected'],
      labels: {
        'of.base': 'kept',
        'org.opencontainers.image.licenses': 'Apache-2.0',
        'org.opencontainers.image.title': 'oc-disconnected',
        'org.opencontainers.image.version': manifest.version,
      },
    });
    const other = await makeImage(own, { place: join(folder, 'alone'), folder, base, isFast: true });
    expect((await readFile(other)).equals(await readFile(file))).to.equal(true);
    if (process.getuid?.() !== 0) return;
    // skopeo unpacks nothing, so the layers are unpacked in their order.
    await runSuccessfully('skopeo', ['copy', '--quiet', `oci-archive:${file}`, `dir:${join(folder, 'image')}`]);
    const { layers } = JSON.parse(await readFile(join(folder, 'image/manifest.json'), 'utf8')) as {
      layers: { digest: string }[];
    };
    await mkdir(join(folder, 'container'));
    for (const { digest } of layers) {
      const layer = join(folder, 'image', digest.replace('sha256:', ''));
      await runSuccessfully('tar', ['-xzf', layer, '-C', join(folder, 'container')]);
    }
    const words = [join(folder, 'container'), 'oc-adm_upgrade_bundle', 'inspect', '--help'];
    const { code, stdout } = await run('/usr/sbin/chroot', words, { env: bare });
    expect(code).to.equal(0);
    expect(stdout).to.match(/^Show the contents of a bundle\./);
  });

  describeCarriedPackages((name, args) =>
    run(alone(name.replace('oc-adm_mirror_registry', 'kubectl-adm_mirror_registry')), args, { env: bare, cwd: folder }),
  );

  it('is installed as the page about it says, to the letter', async function () {
    requirePeer(this, 'unshare', 'gpg');
    if (process.getuid?.() !== 0) return this.skip();
    const fingerprint = await signChecksums();
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
    const script = `mount -t tmpfs none /usr/local/bin\n${block}ls /usr/local/bin\n`.replace(
      'FINGERPRINT',
      fingerprint,
    );
    const home = join(folder, 'home');
    await mkdir(home, { mode: 0o700 });
    const { code, stdout, stderr } = await run('unshare', ['--mount', 'bash', '-e', '-c', script], {
      cwd: packages,
      env: { ...bare, HOME: home, PATH: `${tools}:/usr/local/bin:/usr/bin:/bin` },
    });
    await run('gpgconf', ['--kill', 'all'], { env: { ...process.env, GNUPGHOME: join(home, '.gnupg') } });
    await rm(join(packages, 'oc-disconnected'), { force: true });
    expect(code, stderr).to.equal(0);
    expect(stdout)
      .to.match(/^oc-disconnected-.*: OK$/m)
      .and.to.match(/^ {2}Released +as linux-amd64\/oc-disconnected, signed by Project /m)
      .and.to.match(/^ *oc adm-mirror-registry +\/usr\/local\/bin\//m);
    expect(stdout).to.match(
      /^oc-adm_mirror_registry\noc-adm_release_mirror_config\noc-adm_upgrade_bundle\noc-disconnected$/m,
    );
  });

  it('is installed as krew does it, and run by kubectl', async function () {
    requirePeer(this, 'kubectl');
    const sum = createHash('sha256')
      .update(await readFile(archive))
      .digest('hex');
    for (const words of ['adm-upgrade-bundle', 'adm-release-mirror-config', 'adm-mirror-registry']) {
      const file = `${words}.yaml`;
      const { platforms } = (parse(await readFile(join(packages, file), 'utf8')) as Plugin).spec;
      const platform = platforms.find(({ uri }) => uri.endsWith(archive.slice(packages.length)));
      if (!platform) throw new Error(`${file} has nothing for this platform`);
      expect(sum).to.equal(platform.sha256);
      const [download, store, bin] = ['download', 'store', 'bin'].map((name) => join(folder, words, name));
      if (!download || !store || !bin) throw new Error('unreachable');
      for (const each of [store, bin]) await mkdir(each, { recursive: true });
      await runSuccessfully('cp', ['-al', join(folder, 'alone'), download]);
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

/** Makes an image with the libraries that an executable needs, as a base. Returns its name for skopeo. */
async function makeBase(layout: string, executable: string): Promise<string> {
  const tree = `${layout}-tree`;
  const libraries = [...(await runSuccessfully('ldd', [executable])).matchAll(/\/\S+/g)].map(([path]) => path);
  for (const path of libraries) {
    await mkdir(dirname(tree + path), { recursive: true });
    await runSuccessfully('cp', ['--dereference', path, tree + path]);
  }
  const blobs = join(layout, 'blobs/sha256');
  await mkdir(blobs, { recursive: true });
  const put = async (content: Buffer | string, kind: string): Promise<object> => {
    const hex = createHash('sha256').update(content).digest('hex');
    await writeFile(join(blobs, hex), content);
    const mediaType = `application/vnd.oci.image.${kind}`;
    return { mediaType, digest: `sha256:${hex}`, size: Buffer.byteLength(content) };
  };
  await runSuccessfully('tar', ['-C', tree, '-cf', `${tree}.tar`, '.']);
  const layer = await readFile(`${tree}.tar`);
  const diff = `sha256:${createHash('sha256').update(layer).digest('hex')}`;
  const config = {
    architecture: 'amd64',
    os: 'linux',
    config: { Env: ['PATH=/usr/bin'], Labels: { 'of.base': 'kept' } },
    rootfs: { type: 'layers', diff_ids: [diff] },
  };
  const image = {
    schemaVersion: 2,
    config: await put(JSON.stringify(config), 'config.v1+json'),
    layers: [await put(gzipSync(layer), 'layer.v1.tar+gzip')],
  };
  const manifests = [await put(JSON.stringify(image), 'manifest.v1+json')];
  await writeFile(join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }));
  await writeFile(join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  return `oci:${layout}`;
}

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

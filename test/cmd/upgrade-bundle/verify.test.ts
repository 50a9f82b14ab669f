import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, readdir, readFile, truncate, unlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { formatMetadata, metadataPath } from '../../../lib/bundle/metadata/metadata.ts';
import type { VerifyReport } from '../../../lib/bundle/verify.ts';
import { layOutTar } from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { rewrite } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { executableOf } from '../../support/program/executables.ts';
import { executeProgram } from '../../support/program/execution.ts';

const executable = executableOf('oc-adm_upgrade_bundle');
const run = promisify(execFile);

interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

describe('verify', () => {
  let bundle: TestBundle;
  let trust: string[];
  const at = (name: string): string => join(bundle.folder, name);
  before(async () => {
    bundle = await makeBundle({ components: 8 });
    trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  });
  after(() => bundle.remove());

  function verify(args: readonly string[], interruptAt?: RegExp, env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
    return interruptAt
      ? interruptVerify(args, interruptAt)
      : executeProgram(executable, ['verify', ...args], { env: { ...process.env, ...env } });
  }

  async function interruptVerify(args: readonly string[], interruptAt: RegExp): Promise<Outcome> {
    const child = spawn(process.execPath, [executable, 'verify', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
      if (!child.killed && interruptAt.test(stderr)) child.kill('SIGINT');
    });
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, stdout, stderr };
  }

  it('ignores credentials, even invalid ones', async () => {
    await mkdir(at('.docker'));
    await writeFile(at('.docker/config.json'), '{');
    const env = { HOME: bundle.folder, REGISTRY_AUTH_FILE: at('none') };
    const { code, stderr } = await verify([bundle.path, ...trust], undefined, env);
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
  });

  it('prints the result, the signer and the digest of a bundle', async () => {
    const { code, stdout, stderr } = await verify([bundle.path, ...trust]);
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    expect(stdout)
      .to.match(/^Verified: .*\.tar\n/)
      .and.to.include(`key ${bundle.key.fingerprint}`);
    expect(stdout).to.include('all 9 are complete').and.to.include(bundle.result.digest);
    expect(stdout).to.include(`matches ${bundle.path}.sha256`);
  });

  it('says the same of the directory that it unpacks to', async () => {
    const { code, stdout } = await verify([await bundle.unpack(), ...trust]);
    expect(code).to.equal(0);
    expect(stdout)
      .to.match(/^Verified: /)
      .and.not.to.include('Digest');
  });

  it('writes a test for each part and image as JUnit', async () => {
    const good = await verify([bundle.path, ...trust, '-o', 'junit']);
    expect(good.code).to.equal(0);
    expect(good.stdout)
      .to.match(/<testsuites name="verify [^"]*" tests="\d+" failures="0">/)
      .and.to.contain('<testcase classname="bundle" name="signature" time="0"/>')
      .and.to.match(/<testcase classname="image" name="etcd" time="0">/);
    const unsigned = await verify([bundle.path, '-o', 'junit']);
    expect(unsigned.code).to.equal(1);
    expect(unsigned.stdout).to.match(/name="signature" time="0"><failure type="untrusted" message="[^"]+">/);
  });

  it('reports the problems in a few lines, and fails', async () => {
    const cut = await rewrite(bundle.path, at('cut.tar'), (bytes) => bytes.subarray(0, bytes.length * 0.6));
    const { code, stdout, stderr } = await verify([cut, ...trust]);
    expect(code).to.equal(1);
    expect(stdout)
      .to.match(/^FAILED: /)
      .and.to.match(/missing +\d+ blobs, needed by .* and \d+ more images/);
    expect(stdout.split('\n')).to.have.length.lessThan(20);
    expect(stderr).to.match(/^error \([a-z-]+\): .*cut\.tar is not a good bundle: \d+ problems\nhint: .*\nmore: .*\n$/);
  });

  it('lists everything as JSON', async () => {
    const good = await verify([bundle.path, ...trust, '-o', 'json']);
    expect(JSON.parse(good.stdout)).to.deep.include({ good: true, problems: [], digest: bundle.result.digest });
    const cut = await rewrite(bundle.path, at('cut.tar'), (bytes) => bytes.subarray(0, bytes.length * 0.6));
    const bad = await verify([cut, ...trust, '-o', 'json']);
    expect(bad.code).to.equal(1);
    const report = JSON.parse(bad.stdout) as VerifyReport & { good: boolean };
    expect(report.good).to.equal(false);
    expect(report.problems).to.have.length.greaterThan(20);
    expect(report.problems[0]).to.have.all.keys('kind', 'subject', 'what', 'images', 'message');
  });

  it('warns of a bundle that another tar program packed, and finds it good', async () => {
    const path = at('again.tar');
    // Without zeros that fill the last record.
    await run('tar', ['-b1', '-C', await bundle.unpack(), '-cf', path, 'metadata.json', 'config', 'v2']);
    const { code, stdout, stderr } = await verify([path, ...trust]);
    expect(code).to.equal(0);
    expect(stdout).to.match(/^Verified: /);
    expect(stderr).to.match(/^warning: .*again\.tar was packed again/);
    const { good, warnings } = JSON.parse((await verify([path, ...trust, '-o', 'json'])).stdout) as VerifyReport & {
      good: boolean;
    };
    expect(good).to.equal(true);
    expect(warnings.map(({ kind }) => kind)).to.deep.equal(['repacked']);
  });

  it('says what to do about a signature by a key that is not trusted', async () => {
    const { code, stdout, stderr } = await verify([bundle.path]);
    expect(code).to.equal(1);
    expect(stdout).to.include('no trusted key');
    expect(stderr).to.include(`Trust ${bundle.key.fingerprint} only`).and.to.include('\ntry: --signature-store, ');
    const allowed = await verify([bundle.path, '--allow-unsigned']);
    expect(allowed.code).to.equal(0);
    expect(allowed.stderr).to.match(/^warning: /);
  });

  it('names the existing file in place of a missing bundle', async () => {
    const misspelt = await verify([at('upgrade-4.12.4.tar')]);
    expect(misspelt.code).to.equal(1);
    expect(misspelt.stderr)
      .to.match(
        /^error \([a-z-]+\): there is no .*\/upgrade-4\.12\.4\.tar\nhint: .* has .*upgrade-4\.12\.4-x86_64\.tar/,
      )
      .and.not.to.include('ENOENT');
    expect((await verify([at('nowhere/a.tar')])).stderr).to.match(/\nhint: There is no folder .*nowhere: /);
  });

  it('does not look at credentials, which it does not need', async () => {
    const file = at('auth.json');
    await writeFile(file, '{');
    expect(await verify([bundle.path, ...trust], undefined, { REGISTRY_AUTH_FILE: file })).to.include({ code: 0 });
  });

  it('compares the whole with --digest and --sha256', async () => {
    const sums = at('all.sha256');
    await writeFile(
      sums,
      `${digestOf('x').slice(7)}  other.tar\n${digestOf('y').slice(7)} *upgrade-4.12.4-x86_64.tar\n`,
    );
    const differing = await verify([bundle.path, ...trust, `--sha256=${sums}`]);
    expect(differing.code).to.equal(1);
    expect(differing.stdout).to.include(`${sums} says ${digestOf('y')}`);
    for (const digest of [bundle.result.digest ?? '', bundle.result.digest?.slice('sha256:'.length).toUpperCase()]) {
      const right = await verify([bundle.path, ...trust, `--digest=${digest ?? ''}`]);
      expect(right.stdout).to.include('matches --digest');
    }
    const [malformed, unread, silent, useless] = await Promise.all([
      verify([bundle.path, '--digest=sha256:12']),
      verify([bundle.path, `--sha256=${at('nothing')}`]),
      verify([bundle.path, `--sha256=${bundle.keyFile}`]),
      verify([await bundle.unpack(), `--digest=${bundle.result.digest ?? ''}`]),
    ]);
    expect([malformed, unread, silent, useless].map(({ code }) => code)).to.deep.equal([2, 1, 1, 2]);
    expect(silent.stderr).to.include('is not in the form of sha256sum');
    await writeFile(sums, ['a', 'b'].map((name) => `${digestOf(name).slice('sha256:'.length)}  ${name}\n`).join(''));
    const lacking = await verify([bundle.path, `--sha256=${sums}`]);
    expect(lacking.stderr).to.include('has no digest of upgrade-4.12.4-x86_64.tar');
  });

  it('warns of a file beside the bundle that has no digest of it', async () => {
    const file = `${bundle.path}.sha256`;
    const before = await readFile(file);
    for (const text of ['', `${digestOf('x').slice(7)}  other.tar\n`]) {
      await writeFile(file, text);
      const { code, stderr } = await verify([bundle.path, ...trust]);
      expect([code, stderr]).to.deep.equal([
        0,
        `warning: ${file} has no digest of ${basename(bundle.path)}, so it was not compared.\n`,
      ]);
    }
    await writeFile(file, before);
  });

  it('lists the files to copy again, and nothing else', async () => {
    await using split = await makeBundle({ volumeSize: 40_000, layerSize: 20_000 });
    const own = [`--signature-keyring=${split.keyFile}`, `--trust-fingerprint=${split.key.fingerprint}`];
    const volumes = (await readdir(split.folder)).filter((name) => /\.\d{3}$/.test(name)).sort();
    for (const index of [1, 3]) await writeFile(join(split.folder, volumes[index] ?? ''), Buffer.alloc(40_000, 0x55));
    const listed = await verify([split.path, ...own, '--list-bad']);
    expect([listed.code, listed.stdout]).to.deep.equal([
      1,
      [1, 3].map((index) => `${join(split.folder, volumes[index] ?? '')}\n`).join(''),
    ]);
    const folder = await bundle.unpack();
    const blobs = join(folder, 'v2/openshift/release/blobs');
    const [blob = ''] = await readdir(blobs);
    await unlink(join(blobs, blob));
    expect((await verify([folder, ...trust, '--list-bad'])).stdout).to.equal(`${join(blobs, blob)}\n`);
    const good = await verify([bundle.path, ...trust, '--list-bad']);
    expect([good.code, good.stdout]).to.deep.equal([0, '']);
  });

  it('reads a bundle on a device that is larger', async function () {
    const disk = at('disk.img');
    await rewrite(bundle.path, disk, (bytes) => Buffer.concat([bytes, Buffer.alloc(3_000_000, 'old data')]));
    await truncate(disk, 4 * 1024 * 1024);
    const { stdout } = await run('losetup', ['--find', '--show', '--read-only', disk]).catch(() => ({ stdout: '' }));
    const device = stdout.trim();
    // Only root can create devices, and not on every machine.
    if (device === '') this.skip();
    try {
      const { code, stdout: words } = await verify([device, ...trust, `--sha256=${bundle.path}.sha256`]);
      expect(words)
        .to.match(/^Verified: \/dev\/loop/)
        .and.to.include(bundle.result.digest);
      expect(code).to.equal(0);
    } finally {
      await run('losetup', ['--detach', device]);
    }
  });

  it('ends with 130 when it is interrupted', async () => {
    const path = at('large.tar');
    const digest = digestOf('never reached');
    const descriptor = { digest, size: 64 * 1024 ** 3, mediaType: 'application/octet-stream' };
    const blob = { path: `v2/openshift/release/blobs/${digest}`, descriptor };
    const layOut = (length: number) => layOutTar([{ path: metadataPath, content: Buffer.alloc(length) }, blob]);
    const bytes = formatMetadata(bundle.result.metadata, (length) => layOut(length).size);
    const layout = layOut(bytes.length);
    const file = await open(path, 'w');
    for (const { header, position } of layout.entries) await file.write(header, 0, header.length, position);
    await file.write(bytes, 0, bytes.length, layout.entries[0]?.start);
    await file.truncate(layout.size);
    await file.close();
    try {
      const { code, stdout, stderr } = await verify([path, ...trust], /Verifying +\d+%/);
      expect(code, stderr).to.equal(130);
      expect(stdout).to.equal('');
      expect(stderr).to.include('Interrupted.');
    } finally {
      await unlink(path);
    }
  });
});

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { upgradeBundle } from '../../../../cmd/upgrade-bundle/commands.ts';
import type { MediaEvent } from '../../../../lib/node/media.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { digestOfFile, runProgram, startProgram } from '../../../support/content/creation.ts';
import { requireLoopDevices, skipLoudly, Drives } from '../../../support/loopDevice.ts';
import { run } from '../../../support/peers.ts';
import { executableOf } from '../../../support/program/executables.ts';
import type { Execution } from '../../../support/program/execution.ts';
import { expectOutput } from '../../../support/program/outputs.ts';
import { makeFolder, removeFolder } from '../../../support/release/mirrorDirectory.ts';
import { until } from '../../../support/until.ts';

const executable = executableOf('oc-adm_upgrade_bundle');

describe('oc adm-upgrade-bundle watch', () => {
  let bundle: TestBundle;
  let folder: string;
  let drives: Drives;
  const closing: (() => Promise<void>)[] = [];

  before(async function () {
    await requireLoopDevices(this);
    bundle = await makeBundle();
    closing.push(() => bundle.remove());
  });
  after(async () => {
    for (const close of closing) await close();
  });
  beforeEach(async () => {
    folder = await makeFolder();
    drives = await Drives.open(folder);
  });
  afterEach(async () => {
    await drives.close();
    await removeFolder(folder);
  });

  const environment = (): NodeJS.ProcessEnv => ({ PATH: drives.path });
  const place = (): string => `--mount-dir=${join(folder, 'media')}`;
  const watch = (...options: string[]): Promise<Execution> =>
    runProgram(folder, 'watch', [place(), ...options], environment());
  const makeDrive = async (): Promise<string> => {
    const files = join(folder, 'files');
    await mkdir(files, { recursive: true });
    await copyFile(bundle.path, join(files, basename(bundle.path)));
    return drives.makeExt4(files, 'OCPUPG');
  };

  it('reports existing bundles once, and leaves nothing mounted', async () => {
    const drive = await drives.plug(await makeDrive());
    const { code, stdout, stderr } = await watch('--once');
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^found +4\.12\.4 x86_64, \d+ KiB: .*\.tar on \/dev\/loop\d+ \(OCPUPG\)\n$/);
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(1);
    expect(await readdir(folder)).not.to.include('media');
  });

  it('fails with a hint if there is none', async () => {
    const { code, stdout, stderr } = await watch('--once', '-o', 'json');
    expect(code).to.equal(1);
    expect(stdout).to.equal('');
    expect(stderr)
      .to.match(/^error \([a-z-]+\): no medium of this machine has a bundle$/m)
      .and.to.match(/^hint: .*--device/m);
  });

  it('prints each inserted and removed USB drive as a line of JSON, until it is interrupted', async () => {
    const { child, outcome } = startProgram(folder, 'watch', [place(), '-o', 'json', '--interval=1'], environment());
    let text = '';
    child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const events = (): MediaEvent[] =>
      text
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as MediaEvent);
    const drive = await drives.plug(await makeDrive());
    await until(() => events().length === 1);
    expect(events()[0]).to.include({ event: 'found', device: drive.device, version: '4.12.4', label: 'OCPUPG' });
    await drive.pull();
    await until(() => events().length === 2);
    expect(events()[1]).to.include({ event: 'removed', device: drive.device });
    child.kill('SIGINT');
    const { code, stderr } = await outcome;
    expect([0, 130], stderr).to.include(code);
    expectOutput(upgradeBundle, ['watch', '-o', 'json'], text);
    expect(await readdir(folder)).not.to.include('media');
  });

  it('finds a USB drive from a container that has the machine’s file system in a folder', async function () {
    if ((await run('unshare', ['-m', 'true'])).code !== 0) skipLoudly(this, 'no mount namespace can be made here');
    const root = join(folder, 'host');
    await mkdir(root);
    // As in a pod of a DaemonSet, except that the list of devices is that of this test.
    const script =
      `mount --rbind / '${root}' && mount --make-rprivate '${root}' && ` +
      `mount --bind '${join(folder, 'bin', 'lsblk')}' '${root}/usr/bin/lsblk' && exec "$@"`;
    const own = [process.execPath, executable, 'watch', `--root=${root}`, place(), '-o', 'json', '--interval=1'];
    const child = spawn('unshare', ['-m', 'sh', '-c', script, 'sh', ...own], { stdio: ['ignore', 'pipe', 'pipe'] });
    const ended = once(child, 'close');
    let [text, errors] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
    const events = (): MediaEvent[] =>
      text
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as MediaEvent);
    try {
      const drive = await drives.plug(await makeDrive());
      await until(() => events().length === 1 || child.exitCode !== null);
      const [found] = events();
      expect(found, errors).to.include({ event: 'found', device: drive.device, label: 'OCPUPG' });
      const { path } = found as { path: string };
      expect(path).to.match(new RegExp(`^${root}${join(folder, 'media')}/.*\\.tar$`));
      expect(await digestOfFile(`/proc/${String(child.pid)}/root${path}`)).to.equal(bundle.result.digest);
      await drive.pull();
      await until(() => events().length === 2 || child.exitCode !== null);
      expect(events()[1]).to.include({ event: 'removed', device: drive.device });
    } finally {
      child.kill('SIGINT');
      await ended;
    }
    expect(await readdir(folder)).not.to.include('media');
  });

  it('says whose right it takes', async function () {
    if ((await run('setpriv', ['--version'])).code !== 0) this.skip();
    const args = [
      '--reuid=65534',
      '--clear-groups',
      process.execPath,
      executable,
      'watch',
      '--once',
      '--mount-dir=/run/x/y',
    ];
    const { code, stderr } = await run('setpriv', args, { cwd: '/', env: { ...process.env, HOME: '/nonexistent' } });
    // If other users cannot read the sources, there is nothing to test.
    if (!stderr.startsWith('error (')) this.skip();
    expect(code).to.equal(1);
    expect(stderr).to.match(/^hint: Run this as root, which can mount a USB drive\.$/m);
  });
});

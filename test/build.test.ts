import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { fetchRuntime } from '../.config/nodeRuntime.ts';
import { messageOf } from '../lib/errors.ts';
import { startExecutable } from './support/content/creation.ts';
import { skipLoudly } from './support/loopDevice.ts';
import { describeCarriedPackages } from './support/project/carriedPackages.ts';

const execute = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));

describe('npm run build', () => {
  let folder: string;
  const environment = { PATH: `${join(root, 'node_modules/.bin')}:/usr/bin:/bin` };
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'oc-disconnected-'));
    await execute(process.execPath, ['.config/build.ts', `${folder}/dist`], { cwd: root });
  });
  after(() => rm(folder, { recursive: true, force: true }));

  it('makes a folder of executables only', async () => {
    const files = await readdir(join(folder, 'dist/bin'));
    expect(files).to.have.length(3);
    for (const name of files) expect((await stat(join(folder, 'dist/bin', name))).mode & 0o111).to.equal(0o111);
  });

  for (const [name, help] of [
    ['oc-adm_upgrade_bundle', /^Create one file/],
    ['oc-adm_release_mirror_config', /^Mirror a release/],
    ['oc-adm_mirror_registry', /^Inspect and upgrade the mirror registry/],
  ] as const) {
    it(`makes ${name}, which runs through a link to it in any folder that has bin and lib`, async () => {
      const alone = await mkdtemp(join(folder, 'alone-'));
      await cp(join(folder, 'dist'), join(alone, 'copy'), { recursive: true });
      await symlink(join('copy/bin', name), join(alone, name));
      const { stdout, stderr } = await execute(join(alone, name), ['--help'], { cwd: alone, env: environment });
      expect(stdout).to.match(help);
      expect(stderr).to.equal('');
      const version = await execute(join(alone, name), ['--version'], { cwd: alone, env: environment });
      expect(version.stdout).to.match(/^\d+\.\d+\.\d+\S*( \(commit [0-9a-f]{12}\+?\))?\n$/);
    });

    it(`makes ${name} say that it needs lib, if it is copied without it`, async () => {
      const alone = await mkdtemp(join(folder, 'alone-'));
      await mkdir(join(alone, 'bin'));
      await copyFile(join(folder, 'dist/bin', name), join(alone, 'bin', name));
      const failure: unknown = await execute(join(alone, 'bin', name), { env: environment }).catch(
        (error: unknown) => error,
      );
      expect(failure).to.include({ code: 1, stdout: '' });
      expect(failure)
        .to.have.property('stderr')
        .that.includes(`error: ${join(alone, 'lib', name)}.js is missing\nhint:`);
    });

    it(`makes ${name} report a version of Node.js that is too old`, async () => {
      const old = join(folder, 'old.cjs');
      await writeFile(
        old,
        `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.1.2' } });
         delete require('node:tls').getCACertificates;
         for (const name of ['SuppressedError', 'DisposableStack', 'AsyncDisposableStack']) delete globalThis[name];
         delete Promise.withResolvers;`,
      );
      const failure: unknown = await execute(process.execPath, [
        '--require',
        old,
        join(folder, 'dist/bin', name),
      ]).catch((error: unknown) => error);
      expect(failure).to.include({ code: 1 });
      expect(failure)
        .to.have.property('stderr')
        .that.matches(/^error: this is Node.js 20\.1\.2, and version 24 or newer/);
    });
  }

  for (const version of ['18.20.8', '22.23.3']) {
    it(`makes executables that say which version they need, run by Node.js ${version} itself`, async function () {
      const name = `node-${process.platform}-${process.arch}`;
      const home = await fetchRuntime(name, version).catch((error: unknown) => skipLoudly(this, messageOf(error)));
      const node = join(home, 'bin/node');
      // All executables begin with the same check.
      const words = [join(folder, 'dist/bin/oc-adm_upgrade_bundle'), 'verify', '/nonexistent'];
      const failure: unknown = await execute(node, words).catch((error: unknown) => error);
      expect(failure).to.deep.include({
        code: 1,
        stdout: '',
        stderr:
          `error: this is Node.js ${version}, and version 24 or newer is needed\nhint: Put a newer 'node' first ` +
          `on the path.\n`,
      });
    });
  }

  describeCarriedPackages((name, args) => startExecutable(join(folder, 'dist/bin', name), folder, args).outcome);
});

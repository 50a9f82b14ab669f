import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { startApiServer } from './support/apiServer.ts';
import { openWorkshop, startExecutable } from './support/creation.ts';
import { makeKubeconfigFolder } from './support/kubeconfig.ts';
import { makeFixture } from './support/mirrorRegistry.ts';
import { installCertificates } from './support/mirrorRegistryCertificates.ts';
import { requirePeer } from './support/peers.ts';

const execute = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));

describe('npm run build', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'oc-disconnected-'));
    await execute(process.execPath, ['.config/build.ts', `${folder}/dist`], { cwd: root });
  });
  after(() => rm(folder, { recursive: true, force: true }));

  for (const [name, help] of [
    ['oc-adm_upgrade_bundle', /^Put everything/],
    ['oc-adm_release_mirror_config', /^Mirror a release/],
    ['oc-adm_mirror_registry', /^Look into the mirror registry/],
  ] as const) {
    it(`makes ${name} of one file that runs by itself in any folder`, async () => {
      const alone = await mkdtemp(join(folder, 'alone-'));
      await copyFile(join(folder, 'dist/bin', name), join(alone, name));
      const environment = { PATH: `${join(root, 'node_modules/.bin')}:/usr/bin:/bin` };
      const { stdout, stderr } = await execute(join(alone, name), ['--help'], { cwd: alone, env: environment });
      expect(stdout).to.match(help);
      expect(stderr).to.equal('');
      const version = await execute(join(alone, name), ['--version'], { cwd: alone, env: environment });
      expect(version.stdout).to.match(/^\d+\.\d+\.\d+\S*( \(commit [0-9a-f]{12}\+?\))?\n$/);
    });

    it(`makes ${name} say so where Node.js is too old for it`, async () => {
      const old = join(folder, 'old.cjs');
      await writeFile(
        old,
        `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.1.2' } });
         delete require('node:tls').getCACertificates;`,
      );
      const failure: unknown = await execute(process.execPath, [
        '--require',
        old,
        join(folder, 'dist/bin', name),
      ]).catch((error: unknown) => error);
      expect(failure).to.include({ code: 2 });
      expect(failure)
        .to.have.property('stderr')
        .that.matches(/^error: This is Node.js 20\.1\.2, and version 24 or newer/);
    });
  }

  // The packages for signatures, clusters and certificates travel compressed, and are read on first use.
  describe('makes programs that can', () => {
    const start = (name: string, args: readonly string[]) =>
      startExecutable(join(folder, 'dist/bin', name), folder, args).outcome;

    it('check the signature of a release', async () => {
      const workshop = await openWorkshop();
      try {
        const { code, stdout, stderr } = await start('oc-adm_upgrade_bundle', ['create', ...workshop.options()]);
        expect(code, stderr).to.equal(0);
        expect(stdout).to.include(`Signed by  Test release key <release@example.com> (${workshop.key.fingerprint})`);
      } finally {
        await workshop.close();
      }
    });

    it('log in to a cluster', async () => {
      const server = await startApiServer({ openshift: '4.14.3' });
      const kubeconfigs = await makeKubeconfigFolder();
      try {
        const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
        const { code, stdout, stderr } = await start('oc-adm_upgrade_bundle', [
          ...['preflight', `--kubeconfig=${kubeconfig}`, '-o', 'json'],
        ]);
        expect(code, stderr).to.be.oneOf([0, 1]);
        expect(stdout).to.include('"4.14.3"');
      } finally {
        await server.stop();
        await kubeconfigs.remove();
      }
    });

    it('issue certificates', async function () {
      requirePeer(this, 'openssl');
      const fixture = await makeFixture({ age: '2.0.7', hostname: 'registry.example.com:8443' });
      try {
        await installCertificates(fixture, {});
        const { code, stdout, stderr } = await start('oc-adm_mirror_registry', [
          ...['certs', 'renew', '--force', `--root=${fixture.root}`, '-o', 'json'],
        ]);
        expect(code, stderr).to.equal(0);
        expect(stdout).to.match(/ssl\.cert"/);
      } finally {
        await fixture.remove();
      }
    });
  });
});

import { expect } from 'chai';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeFixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { openWorkshop } from '../content/creation.ts';
import { makeKubeconfigFolder } from '../kubeconfig.ts';
import { requirePeer } from '../peers.ts';

/** Runs an executable, by its name, to its end. */
export type RunExecutable = (
  name: string,
  args: readonly string[],
) => Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>;

/**
 * The tests of a built executable with its packages for signatures, clusters and certificates. They are read on
 * first use.
 */
export function describeCarriedPackages(start: RunExecutable): void {
  describe('makes programs that can', () => {
    it('check the signature of a release, and of a bundle', async () => {
      await using workshop = await openWorkshop();
      const { code, stdout, stderr } = await start('oc-adm_upgrade_bundle', ['create', ...workshop.options()]);
      expect(code, stderr).to.equal(0);
      expect(stdout).to.include(`Signed by  Test release key <release@example.com> (${workshop.key.fingerprint})`);
      const args = ['verify', workshop.bundle, `--trust-fingerprint=${workshop.key.fingerprint}`];
      const verified = await start('oc-adm_upgrade_bundle', args);
      expect(verified.code, verified.stderr).to.equal(0);
      expect(verified.stdout)
        .to.match(/^Verified: /)
        .and.to.include('Signed by  Test release key');
    });

    it('log in to a cluster', async () => {
      await using server = await startApiServer({ openshift: '4.14.3' });
      await using kubeconfigs = await makeKubeconfigFolder();
      const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
      const args = ['preflight', `--kubeconfig=${kubeconfig}`, '-o', 'json'];
      const { code, stdout, stderr } = await start('oc-adm_upgrade_bundle', args);
      expect(code, stderr).to.be.oneOf([0, 1]);
      expect(stdout).to.include('"4.14.3"');
    });

    it('issue certificates', async function () {
      requirePeer(this, 'openssl');
      await using fixture = await makeFixture({ age: '2.0.7', hostname: 'registry.example.com:8443' });
      await installCertificates(fixture, {});
      const args = ['certs', 'renew', '--force', '--no-restart', `--root=${fixture.root}`, '-o', 'json'];
      const { code, stdout, stderr } = await start('oc-adm_mirror_registry', args);
      expect(code, stderr).to.equal(0);
      expect(stdout).to.match(/ssl\.cert"/);
    });
  });
}

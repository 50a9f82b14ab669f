import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import {
  readCertificates,
  type HostCertificates,
  formatTrust,
} from '../../../lib/registry-host/certificates/certificates.ts';
import type { Installation } from '../../../lib/registry-host/installation/installation.ts';
import { openFixtures, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import {
  installCertificates,
  type InstalledCertificates,
} from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { requirePeer, run } from '../../support/peers.ts';

// A whole second, as in certificates, so that a certificate of this second is not from the future.
const now = new Date(Math.floor(Date.now() / 1000) * 1000);

interface Host {
  readonly fixture: Fixture;
  readonly installation: Installation;
  at(path: string): string;
  read(): Promise<HostCertificates>;
}

describe('readCertificates', function () {
  requirePeer(this, 'openssl');
  const open = openFixtures();

  async function install(
    certificates: InstalledCertificates = {},
    changes: Partial<FixtureOptions> = {},
  ): Promise<Host> {
    const host = certificates.host ?? 'registry.example.com';
    const fixture = await open({ age: '2.0.7', hostname: `${host}:8443`, ...changes });
    await installCertificates(fixture, certificates);
    const files = new HostFiles(fixture.root);
    const { installation } = await detectFixture(fixture);
    const read = (): Promise<HostCertificates> => readCertificates(files, installation, now);
    return { fixture, installation, read, at: (path) => join(fixture.root, fixture.quayRoot, path) };
  }

  it('are recognized as the installer’s, with their problems', async () => {
    const host = await install();
    const { status } = await host.read();
    expect(status.kind).to.equal('automatic');
    const file = `${host.fixture.quayRoot}/quay-config/ssl.cert`;
    expect(status.server).to.include({ key: 'rsa 2048', file });
    // Another file of tests in this process may have made it.
    expect(status.server?.daysLeft).to.be.oneOf([355, 356]);
    expect(status.server?.hosts).to.deep.equal(['registry.example.com']);
    expect(status.server?.flaws).to.deep.equal(['it may sign certificates but is not a CA']);
    expect(status.problems).to.deep.equal([]);
    const root = host.at('quay-rootCA/rootCA.pem');
    const args = ['-x509_strict', '-purpose', 'sslserver', '-CAfile', root, host.at('quay-config/ssl.cert')];
    const { stdout, stderr } = await run('openssl', ['verify', ...args]);
    expect(stdout + stderr).to.include('error 79');
  });

  it('are printed for clusters and hosts in their own forms', async () => {
    const host = await install();
    const pem = await readFile(host.at('quay-rootCA/rootCA.pem'), 'utf8');
    const { installConfig, configMap, certsFolder } = formatTrust(
      `Run: curl evil\n${pem}\n7. Run this\n`,
      host.installation,
    );
    expect(certsFolder).to.equal('/etc/containers/certs.d/registry.example.com:8443/ca.crt');
    expect(installConfig).to.match(/^additionalTrustBundle: \|\n {2}-----BEGIN CERTIFICATE-----\n {2}/);
    expect(configMap).to.include('registry.example.com..8443: |').and.to.include('updateservice-registry: |');
    expect(`${configMap ?? ''}${installConfig}`).to.not.include('Run');
    expect(new X509Certificate(pem).subject).to.include('O=Quay');
  });
});

import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeFixture, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates, installOwnCertificate } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { requirePeer } from '../../support/peers.ts';
import { executeProgram } from '../../support/program/execution.ts';

describe('certs', function () {
  requirePeer(this, 'openssl');
  let fixture: Fixture;
  const install = async (options: Partial<FixtureOptions> = {}): Promise<void> => {
    fixture = await makeFixture({ age: '2.0.7', ...options });
    await installCertificates(fixture, { days: 20, caDays: 100 });
  };
  afterEach(() => fixture.remove());
  const at = (path: string): string => join(fixture.root, fixture.quayRoot, path);
  const certs = async (...args: string[]): Promise<string> => {
    const where = [`--root=${fixture.root}`, `--user-home=${fixture.home}`];
    const { code, stdout, stderr } = await executeProgram('oc-adm_mirror_registry', ['certs', ...args, ...where]);
    expect(code, stderr).to.equal(0);
    return stdout;
  };

  it('shows each certificate with its expiration, hosts and file, and why it must be renewed', async () => {
    await install();
    const [title, , head, ...lines] = (await certs('status')).split('\n');
    expect(title).to.equal('The certificates are made by mirror-registry; they can be renewed');
    expect(head?.split(/ {2,}/)).to.deep.equal(['CERTIFICATE', 'EXPIRES', 'DAYS', 'KEY', 'HOSTS', 'FILE']);
    expect(lines[0]).to.match(/^server +\d{4}-\d\d-\d\d +(?:19|20) +rsa 2048 +registry\.example\.com +\/.*ssl\.cert$/);
    expect(lines[1]).to.match(/^authority +\d{4}-\d\d-\d\d +(?:99|100) +rsa 2048 .*rootCA\.pem$/);
    expect(lines.filter((line) => line.startsWith('server to be renewed: '))).not.to.be.empty;
  });

  it('tells certificates of your own, and those without the key of their CA', async () => {
    await install();
    await rm(at('quay-rootCA/rootCA.key'));
    expect(await certs('show')).to.match(/they cannot be renewed, because the key of their CA is missing\n/);
    await installOwnCertificate(fixture);
    expect(await certs('show')).to.match(/^The certificates are your own; they are never changed\n/);
  });

  it('prints the CA for hosts, for install-config.yaml and for clusters', async () => {
    await install();
    const [hosts = '', installation = '', cluster = ''] = (await certs('trust')).split('\n---\n');
    expect(hosts).to.match(
      /^# For hosts .*: \/etc\/containers\/certs\.d\/registry\.example\.com:8443\/ca\.crt\n-----BEGIN/,
    );
    expect(installation).to.match(/^# For install-config\.yaml\nadditionalTrustBundle: \|\n {2}-----BEGIN/);
    expect(cluster).to.match(/^# For a cluster: name it in spec\.additionalTrustedCA .*\n.*kind: ConfigMap/s);
  });

  it('says that a cluster needs a name for a registry with an IPv6 address', async () => {
    await install({ hostname: '[2001:db8::1]:8443' });
    expect(await certs('trust')).to.match(/\n---\n# A cluster needs a name for 2001:db8::1: .*IPv6 addresses\.\n$/);
  });

  for (const [scope, systemctl] of [
    ['system', 'systemctl'],
    ['user', 'systemctl --user'],
  ] as const)
    it(`lists the files that a renewal in the ${scope} scope would write, and how to restart, and writes nothing`, async () => {
      await install({ scope });
      const before = await readFile(at('quay-config/ssl.cert'));
      const lines = (await certs('renew', '--dry-run=client', '--renew-before=30')).split('\n');
      expect(lines).to.include(`would write ${fixture.quayRoot}/quay-config/ssl.cert`);
      expect(lines).to.include(`Next, restart the registry: ${systemctl} restart quay-app.service`);
      expect(lines.filter((line) => line.startsWith('wrote '))).to.deep.equal([]);
      expect(await readFile(at('quay-config/ssl.cert'))).to.deep.equal(before);
    });

  it('renews once, and says until when clients trust the old CA', async () => {
    await install();
    const lines = (await certs('renew', '--no-restart', '--renew-before=120')).split('\n');
    expect(lines).to.include.members([
      `wrote ${fixture.quayRoot}/quay-config/ssl.cert`,
      `wrote ${fixture.quayRoot}/quay-rootCA/rootCA.pem`,
      'Next, restart the registry: systemctl restart quay-app.service',
    ]);
    expect(lines.join('\n')).to.match(
      /\nClients trust the previous CA certificate until it expires on \d{4}-\d\d-\d\d: /,
    );
    expect(await certs('renew', '--no-restart')).to.equal('No certificate needs renewal.\n');
  });

  it('changes the CA in two steps, and tells the task of clients in each', async () => {
    await install();
    // This step restarts nothing, so it needs no systemctl of the host.
    const prepared = await certs('renew', '--new-ca=prepare');
    expect(prepared).to.match(/\nGive both CAs to all clients, .* Then switch with --new-ca=switch\.\n$/);
    expect(await certs('status')).to.match(/^next authority +/m);
    const switched = await certs('renew', '--new-ca=switch', '--no-restart');
    expect(switched).to.contain('Clients that trust only the old CA can no longer connect');
  });
});

import { X509Certificate } from 'node:crypto';
import { chmod, copyFile, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { readCertificates, type HostCertificates } from '../../../lib/registry-host/certificates/certificates.ts';
import {
  findRenewals,
  renewCertificates,
  type Renewal,
  type RenewalOptions,
} from '../../../lib/registry-host/certificates/renewal.ts';
import { detectInstallation } from '../../../lib/registry-host/detect/detect.ts';
import { replaceFile } from '../../../lib/registry-host/installation/fileChange.ts';
import type { Installation } from '../../../lib/registry-host/installation/installation.ts';
import { makeFixture, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import {
  installCertificates,
  installOwnCertificate,
  type InstalledCertificates,
} from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { planFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

// A whole second, as in certificates, so that a certificate of this second is not from the future.
const now = new Date(Math.floor(Date.now() / 1000) * 1000);
const options: RenewalOptions = { now, renewBefore: 90, certDays: 397, caDays: 1024, addHosts: [], force: false };

interface Host {
  readonly fixture: Fixture;
  readonly files: HostFiles;
  readonly installation: Installation;
  at(path: string): string;
  read(): Promise<HostCertificates>;
  renew(changed?: Partial<RenewalOptions>): Promise<Renewal>;
}

describe('renewCertificates', function () {
  requirePeer(this, 'openssl');
  const fixtures: Fixture[] = [];
  afterEach(() => Promise.all(fixtures.splice(0).map((fixture) => fixture.remove())));

  async function install(
    certificates: InstalledCertificates = {},
    fixtureOptions: Partial<FixtureOptions> = {},
  ): Promise<Host> {
    const host = certificates.host ?? 'registry.example.com';
    const hostname = host.includes(':') ? `[${host}]:8443` : `${host}:8443`;
    const fixture = await makeFixture({ age: '2.0.7', hostname, ...fixtureOptions });
    fixtures.push(fixture);
    await installCertificates(fixture, certificates);
    const files = new HostFiles(fixture.root);
    const { installation } = await detectInstallation(files, { scope: 'auto', home: fixture.home });
    const read = (): Promise<HostCertificates> => readCertificates(files, installation, now);
    return {
      fixture,
      files,
      installation,
      read,
      at: (path) => join(fixture.root, fixture.quayRoot, path),
      renew: async (changed = {}) => {
        const renewal = await renewCertificates(files, await read(), installation, { ...options, ...changed });
        for (const { path, after = '', mode } of renewal.changes)
          await replaceFile(files, { path, within: fixture.quayRoot }, after, { mode });
        return renewal;
      },
    };
  }

  async function reasonsOf(host: Host): Promise<string> {
    const { server, authority } = findRenewals(await host.read(), host.installation, options);
    return [...server, ...authority].join('; ');
  }

  async function verifyStrictly(host: Host, root: string, ...more: string[]): Promise<string> {
    const args = ['-x509_strict', '-purpose', 'sslserver', ...more, '-CAfile', root, host.at('quay-config/ssl.cert')];
    const { code, stdout, stderr } = await run('openssl', ['verify', ...args]);
    return code === 0 ? 'good' : stdout + stderr;
  }

  it('pass a strict verification once they are renewed, under the old root and the new', async () => {
    const host = await install({ days: 20, caDays: 100 });
    const old = host.at('old.pem');
    await copyFile(host.at('quay-rootCA/rootCA.pem'), old);
    const key = await readFile(host.at('quay-config/ssl.key'));
    const before = await stat(host.at('quay-config/ssl.cert'));
    const renewal = await host.renew();
    expect(renewal.server.join()).to.include('in 20 days');
    expect(renewal.authority.join()).to.include('in 100 days');
    for (const root of [old, host.at('quay-rootCA/rootCA.pem')]) {
      expect(await verifyStrictly(host, root, '-verify_hostname', 'registry.example.com')).to.equal('good');
    }
    const { status } = await host.read();
    expect(status.kind).to.equal('automatic');
    expect([status.server?.daysLeft, status.authority?.daysLeft]).to.deep.equal([397, 1024]);
    expect(status.server?.subject).to.equal('CN=quay-enterprise');
    expect([...(status.server?.flaws ?? []), ...(status.authority?.flaws ?? [])]).to.deep.equal([]);
    expect(await readFile(host.at('quay-config/ssl.key'))).to.deep.equal(key);
    expect((await stat(host.at('quay-config/ssl.cert'))).mode).to.equal(before.mode);
    expect(await readFile(host.at('quay-config/ssl.cert'), 'utf8')).to.include(
      await readFile(host.at('quay-rootCA/rootCA.pem'), 'utf8'),
    );
    // The name of the CA is identical to the byte, because clients in Go compare its bytes.
    const [was, is] = await Promise.all(
      [old, host.at('quay-rootCA/rootCA.pem')].map((path) =>
        runSuccessfully('openssl', ['x509', '-in', path, '-noout', '-subject_hash', '-pubkey']),
      ),
    );
    expect(is).to.equal(was);
  });

  it('name a host with an underscore, and none that no certificate can be for', async () => {
    const host = await install({ days: 20 }, { hostname: 'mirror_registry:8443' });
    await host.renew();
    expect((await host.read()).status).to.deep.include({ problems: [] });
    expect(
      await verifyStrictly(host, host.at('quay-rootCA/rootCA.pem'), '-verify_hostname', 'mirror_registry'),
    ).to.equal('good');
    expect(await reasonsOf(host)).to.equal('');

    const unusable = await install({ days: 20 }, { hostname: '"mirror registry:8443"' });
    const before = await readFile(unusable.at('quay-config/ssl.cert'));
    expect((await failureOf(unusable.renew(), 'unsupported')).message)
      .to.include('mirror registry')
      .and.to.include('config.yaml:');
    expect(await readFile(unusable.at('quay-config/ssl.cert'))).to.deep.equal(before);
  });

  it('are left as they are the second time', async () => {
    const host = await install({ days: 20 });
    expect((await host.renew()).changes).to.have.length(1);
    expect((await host.renew()).changes).to.deep.equal([]);
    expect(await reasonsOf(host)).to.equal('');
  });

  it('renews authorities without key identifiers too', async () => {
    const host = await install({ old: true });
    const old = host.at('old.pem');
    await copyFile(host.at('quay-rootCA/rootCA.pem'), old);
    expect(await reasonsOf(host)).to.include('it has no subject key identifier');
    await host.renew();
    expect(await verifyStrictly(host, host.at('quay-rootCA/rootCA.pem'))).to.equal('good');
    expect(await runSuccessfully('openssl', ['verify', '-CAfile', old, host.at('quay-config/ssl.cert')])).to.include(
      'OK',
    );
  });

  for (const address of ['10.0.0.5', 'fd00::5']) {
    it(`name ${address} as an IP address`, async () => {
      // The installer cannot create a certificate for an IPv6 address.
      const host = await install(
        { host: address.includes(':') ? 'fd00' : address },
        { hostname: address.includes(':') ? `[${address}]:8443` : `${address}:8443` },
      );
      expect((await host.read()).status.problems.join()).to.include(`does not name the host ${address}`);
      await host.renew();
      expect(await verifyStrictly(host, host.at('quay-rootCA/rootCA.pem'), '-verify_ip', address)).to.equal('good');
      expect((await host.read()).status.problems).to.deep.equal([]);
      expect(await reasonsOf(host)).to.equal('');
    });
  }

  it('take further names, and keep those they had', async () => {
    const host = await install();
    await host.renew({ addHosts: ['10.0.0.7', 'mirror.example.com'] });
    await host.renew({ force: true });
    expect((await host.read()).status.server?.hosts).to.have.members([
      'registry.example.com',
      '10.0.0.7',
      'mirror.example.com',
    ]);
  });

  it('are renewed on the way when Quay is upgraded, unless they are new', async () => {
    const host = await install();
    await host.renew();
    const later = new Date(now.getTime() + 31 * 24 * 60 * 60 * 1000);
    const certificates = await readCertificates(host.files, host.installation, later);
    const find = (changed: Partial<RenewalOptions>): readonly string[] =>
      findRenewals(certificates, host.installation, { ...options, ...changed }).server;
    expect(find({ now: later })).to.deep.equal([]);
    expect(find({ withQuay: true })).to.deep.equal([]);
    expect(find({ now: later, withQuay: true }).join()).to.include('older than 30 days');
  });

  it('are renewed when they have ended', async () => {
    const host = await install({ days: -1 });
    expect((await host.read()).status.problems.join()).to.include('expired on');
    await host.renew();
    expect((await host.read()).status.problems).to.deep.equal([]);
  });

  it('are good for clients with the right time although the clock of the host is a year ahead', async () => {
    const host = await install();
    const day = 24 * 60 * 60 * 1000;
    await host.renew({ now: new Date(now.getTime() + 365 * day) });
    expect((await host.read()).status.problems).to.deep.equal([]);
    expect(await verifyStrictly(host, host.at('quay-rootCA/rootCA.pem'))).to.equal('good');
    await host.renew({ now: new Date(now.getTime() + 500 * day), force: true });
    const { server } = (await host.read()).status;
    const validity = Date.parse(server?.notAfter ?? '') - Date.parse(server?.notBefore ?? '');
    expect(Math.round(validity / day)).to.equal(825);
  });

  it('that are valid only from a later day are problems, and renewed only on request', async () => {
    const host = await install();
    const back = new Date('2001-02-03T04:05:06Z');
    const certificates = await readCertificates(host.files, host.installation, back);
    expect(certificates.status.problems.join()).to.match(
      /the certificate is valid only from .*, and the clock of this host says 2001-02-03,its CA is valid only from/,
    );
    const renew = (force: boolean): Promise<Renewal> =>
      renewCertificates(host.files, certificates, host.installation, { ...options, now: back, force });
    expect((await failureOf(renew(false), 'not-ready')).hint).to.include('Set the clock of this host');
    expect((await renew(true)).authority).to.include(`it is valid only from ${now.toISOString().slice(0, 10)}`);
    const plan = await planFixture(host.fixture, {}, back);
    expect(plan.blockers.join()).to.include('the certificate is valid only from');
  });

  it('get a new key if the old one is too short, or if one is requested', async () => {
    const host = await install({ bits: 1024 });
    const old = host.at('old.pem');
    await copyFile(host.at('quay-rootCA/rootCA.pem'), old);
    expect((await host.renew()).key).to.deep.equal(['RSA of 1024 bits is too short']);
    expect((await host.read()).status.server).to.deep.include({ key: 'rsa 2048', subject: 'CN=quay-enterprise' });
    const short = await readFile(host.at('quay-config/ssl.key'), 'utf8');
    expect((await host.renew()).changes).to.deep.equal([]);
    expect((await host.renew({ rotateKey: true })).server).to.include('it gets a new key');
    expect(await readFile(host.at('quay-config/ssl.key'), 'utf8')).not.to.equal(short);
    expect((await stat(host.at('quay-config/ssl.key'))).mode & 0o777).to.equal(0o644);
    expect((await host.read()).status).to.deep.include({ kind: 'automatic', hasKey: true, problems: [] });
    for (const root of [old, host.at('quay-rootCA/rootCA.pem')])
      expect(await verifyStrictly(host, root)).to.equal('good');
  });

  it('are not renewed on a key that is another’s, or lost, unless a new one is asked for', async () => {
    const host = await install({ days: 20 });
    const key = host.at('quay-config/ssl.key');
    await copyFile(host.at('quay-rootCA/rootCA.key'), key);
    expect((await host.read()).status.problems.join()).to.include('ssl.key is not the key of');
    expect((await failureOf(host.renew(), 'invalid-file')).settings).to.include('rotateKey');
    await rm(key);
    expect((await failureOf(host.renew(), 'invalid-file')).message).to.include('ssl.key is missing');
    await host.renew({ rotateKey: true });
    expect((await stat(key)).mode & 0o777).to.equal(0o644);
    expect((await host.read()).status.problems).to.deep.equal([]);
  });

  it('that the administrator provides are never changed, even beside those of the installer', async () => {
    const host = await install();
    await installOwnCertificate(host.fixture);
    const { status } = await host.read();
    expect(status).to.include({ kind: 'own' }).and.not.to.have.property('authority');
    expect(await reasonsOf(host)).to.equal('');
    for (const changed of [{}, { force: true }, { newAuthority: 'prepare' }, { newAuthority: 'switch' }] as const) {
      await failureOf(host.renew(changed), 'unsupported');
    }
  });

  it('keep their recorded origin, with any names', async () => {
    const host = await install();
    const { server } = (await host.read()).status;
    const state = `${host.fixture.quayRoot}/.oc-mirror-registry/state.json`;
    const write = async (at: Host, text: string): Promise<void> => {
      await at.fixture.write(state, text, 0o600);
      await chmod(at.at('.oc-mirror-registry'), 0o700);
    };
    const record = (certs: object): Promise<void> => write(host, JSON.stringify({ images: {}, unitSha256: {}, certs }));
    const known = { leafSha256: server?.sha256, notAfter: server?.notAfter };
    await record({ ...known, origin: 'own' });
    expect((await host.read()).status.kind).to.equal('own');
    await record({ ...known, leafSha256: 'another', origin: 'own' });
    expect((await host.read()).status.kind).to.equal('automatic');
    await write(host, '{ damaged');
    expect((await host.read()).status.kind).to.equal('automatic');

    const named = await install({ name: 'registry.example.com' });
    expect((await named.read()).status.kind).to.equal('own');
    const sha256 = new X509Certificate(await readFile(named.at('quay-config/ssl.cert'))).fingerprint256;
    const leafSha256 = sha256.replaceAll(':', '').toLowerCase();
    await write(named, JSON.stringify({ images: {}, unitSha256: {}, certs: { ...known, leafSha256, origin: 'auto' } }));
    expect((await named.read()).status.kind).to.equal('automatic');
  });

  it('cannot be renewed without the key of their CA, behind a TLS proxy, or if they are missing', async () => {
    const stranded = await install();
    await rm(stranded.at('quay-rootCA/rootCA.key'));
    expect((await stranded.read()).status.kind).to.equal('stranded');
    expect((await failureOf(stranded.renew(), 'unsupported')).hint).to.include('prepare a new CA');
    await stranded.renew({ newAuthority: 'prepare' });
    await stranded.renew({ newAuthority: 'switch' });
    expect((await stat(stranded.at('quay-rootCA/rootCA.key'))).mode & 0o777).to.equal(0o600);

    const external = await install();
    const proxied = { ...external.installation, externalTls: true, servesTls: false };
    const behind = await readCertificates(external.files, proxied, now);
    expect(behind.status).to.deep.include({ kind: 'external', problems: [] });
    await failureOf(renewCertificates(external.files, behind, proxied, options), 'unsupported');

    const missing = await install();
    await rm(missing.at('quay-config/ssl.cert'));
    expect((await missing.read()).status).to.include({ kind: 'missing' });
    await failureOf(missing.renew(), 'unsupported');
  });

  it('get a new authority in two steps, with both trusted in between', async () => {
    const host = await install({ days: 20 });
    const served = await readFile(host.at('quay-config/ssl.cert'));
    await failureOf(host.renew({ newAuthority: 'switch' }), 'not-found');
    const prepared = await host.renew({ newAuthority: 'prepare' });
    expect(prepared.trusted.match(/BEGIN CERT/g)).to.have.length(2);
    expect(await readFile(host.at('quay-config/ssl.cert'))).to.deep.equal(served);
    expect((await stat(host.at('quay-rootCA/next/rootCA.key'))).mode & 0o777).to.equal(0o600);
    expect((await host.renew({ newAuthority: 'prepare' })).changes).to.deep.equal([]);

    await host.fixture.write('/both.pem', prepared.trusted);
    await host.renew({ newAuthority: 'switch' });
    expect(await verifyStrictly(host, host.at('quay-rootCA/rootCA.pem'))).to.equal('good');
    expect(await verifyStrictly(host, join(host.fixture.root, 'both.pem'))).to.equal('good');
    const { status } = await host.read();
    expect(status).to.include({ kind: 'automatic' }).and.not.to.have.property('next');
    expect((await stat(host.at('quay-rootCA/rootCA.key'))).mode & 0o777).to.equal(0o600);
    await failureOf(host.renew({ newAuthority: 'switch' }), 'not-found');
  });

  it('once renewed serve curl and skopeo that trust the old root alone', async function () {
    requirePeer(this, 'docker-registry', 'curl', 'skopeo');
    const host = await install({ host: '127.0.0.1', days: 20, caDays: 100 });
    const old = host.at('trusted/ca.crt');
    await host.fixture.write(
      `${host.fixture.quayRoot}/trusted/ca.crt`,
      await readFile(host.at('quay-rootCA/rootCA.pem'), 'utf8'),
    );
    await host.renew();
    const certificate = { certificateFile: host.at('quay-config/ssl.cert'), keyFile: host.at('quay-config/ssl.key') };
    await using registry = await startDockerRegistry({ certificate });
    expect(await runSuccessfully('curl', ['-sS', '--cacert', old, `${registry.url}/v2/`])).to.equal('{}');
    const image = `docker://${registry.host}/test/empty:latest`;
    const { stderr } = await run('skopeo', ['inspect', '--cert-dir', host.at('trusted'), image]);
    expect(stderr).to.include('manifest unknown');
    expect((await run('skopeo', ['inspect', image])).stderr).to.include('x509');
  });
});

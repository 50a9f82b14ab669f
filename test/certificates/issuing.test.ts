import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  createAuthority,
  createConstrainedAuthority,
  createKeyLike,
  createServerCertificate,
  issueServerCertificate,
  listFlaws,
  reissueAuthority,
  type Authority,
  isWithin,
} from '../../lib/certificates/issuing.ts';
import { run, runSuccessfully } from '../support/peers.ts';

const permitted = { names: ['localhost'], networks: ['192.0.2.0/25', '127.0.0.0/8', 'fd00:1::/64', '::1/128'] };
const now = new Date();

describe('createConstrainedAuthority', () => {
  let authority: Authority;
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'issuing-'));
    authority = await createConstrainedAuthority('a test', permitted, { now, days: 3650 });
    await writeFile(join(folder, 'ca.crt'), authority.certificate);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  async function verify(hosts: readonly string[]): Promise<string> {
    const { certificate } = await createServerCertificate('a server', { hosts, authority, now, days: 365 });
    const file = join(folder, 'leaf.crt');
    await writeFile(file, certificate);
    const { stdout, stderr } = await run('openssl', [
      'verify',
      '-x509_strict',
      '-CAfile',
      join(folder, 'ca.crt'),
      file,
    ]);
    return stdout + stderr;
  }

  it('lets openssl accept permitted names and addresses', async () => {
    expect(await verify(['localhost', '127.0.0.1', '::1', '192.0.2.126', 'fd00:1::a'])).to.match(/: OK/);
  });

  for (const host of ['192.0.2.128', 'fd00:2::a', '10.0.0.1', 'quay.io'])
    it(`makes openssl refuse a certificate for ${host}`, async () => {
      expect(await verify(['localhost', host])).to.include('permitted subtree violation');
    });

  it('writes the constraints critical, as openssl reads them', async () => {
    const stdout = await runSuccessfully('openssl', ['x509', '-in', join(folder, 'ca.crt'), '-noout', '-text']);
    expect(stdout).to.match(/CA:TRUE, pathlen:1$/m);
    expect(stdout).to.match(
      /X509v3 Name Constraints: critical\s+Permitted:\s+DNS:localhost\s+IP:192\.0\.2\.0\/255\.255\.255\.128/,
    );
  });

  it('issues certificates that are valid for clocks behind, and not longer than the CA', async () => {
    const request = { hosts: ['localhost'], authority, now, days: 5000 };
    const { validFromDate: from, validToDate: to } = new X509Certificate(
      (await createServerCertificate('a server', request)).certificate,
    );
    expect(to).to.deep.equal(new X509Certificate(authority.certificate).validToDate);
    expect(now.getTime() - from.getTime()).to.be.at.least(5 * 60_000);
  });

  it('compares addresses with networks in the same way', () => {
    expect(isWithin('192.0.2.127', permitted.networks)).to.equal(true);
    expect(isWithin('192.0.2.128', permitted.networks)).to.equal(false);
    expect(isWithin('fd00:1::7', permitted.networks)).to.equal(true);
    expect(isWithin('fd00:1:0:1::7', permitted.networks)).to.equal(false);
    expect(isWithin('10.0.0.1', ['10.0.0.1'])).to.equal(true);
    expect(isWithin('10.0.0.2', ['10.0.0.1'])).to.equal(false);
    expect(isWithin('::2', ['::1'])).to.equal(false);
  });

  it('permits many names', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `registry-${index}.site.example.com`);
    const large = await createConstrainedAuthority('a test', { names, networks: [] }, { now, days: 10 });
    const file = join(folder, 'large.crt');
    await writeFile(file, large.certificate);
    const stdout = await runSuccessfully('openssl', ['x509', '-in', file, '-noout', '-text']);
    for (const name of names) expect(stdout).to.contain(`DNS:${name}\n`);
  });
});

describe('certificates of servers and CAs', () => {
  let folder: string;
  let authority: Authority;
  let server: Authority;
  const days = 90;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'issuing-'));
    authority = await createAuthority('quay.site.test', { now, days: 3650 });
    server = await createServerCertificate('quay.site.test', {
      ...{ hosts: ['quay.site.test', '192.0.2.1', '2001:db8::1'], authority, now, days },
    });
  });
  after(() => rm(folder, { recursive: true, force: true }));

  /** Makes a self-signed certificate with openssl. */
  async function openssl(key: readonly string[], ...extensions: readonly string[]): Promise<string> {
    const file = join(folder, 'own.crt');
    const added = extensions.flatMap((each) => ['-addext', each]);
    const args = ['req', '-x509', '-nodes', '-subj', '/CN=own', '-keyout', '/dev/null', '-out', file, ...key, ...added];
    await runSuccessfully('openssl', args);
    return readFile(file, 'utf8');
  }
  const p384 = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:secp384r1'];
  const keyOf = (pem: string) => new X509Certificate(pem).publicKey;

  it('names hosts and addresses, and is for servers alone', () => {
    const { subjectAltName, ca, keyUsage } = new X509Certificate(server.certificate);
    expect(subjectAltName).to.equal('DNS:quay.site.test, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1');
    expect(ca).to.equal(false);
    expect(keyUsage).to.deep.equal(['1.3.6.1.5.5.7.3.1']);
  });

  it('have no flaws, and different serial numbers', async () => {
    for (const { certificate } of [authority, server]) expect(await listFlaws(certificate)).to.deep.equal([]);
    const serials = [authority, server].map(({ certificate }) => new X509Certificate(certificate).serialNumber);
    expect(new Set(serials).size).to.equal(2);
    for (const serial of serials) expect(serial).to.match(/^[4-7][0-9A-F]{31}$/);
  });

  it('are signed by their CA', () => {
    expect(new X509Certificate(server.certificate).verify(keyOf(authority.certificate))).to.equal(true);
  });

  it('keep the subject, the key and the beginning of the certificate that they replace', async () => {
    const old = new X509Certificate(server.certificate);
    const later = new Date(now.getTime() + 30 * 24 * 3600_000);
    const request = { like: server.certificate, hosts: ['quay.site.test'], authority, now: later, days };
    const again = new X509Certificate(await issueServerCertificate(request));
    expect(again.subject).to.equal(old.subject);
    expect(again.publicKey.equals(old.publicKey)).to.equal(true);
    expect(again.validFromDate).to.deep.equal(old.validFromDate);
    const key = await createKeyLike(server.certificate);
    const other = new X509Certificate(await issueServerCertificate({ ...request, key }));
    expect(other.checkPrivateKey(createPrivateKey(key))).to.equal(true);
  });

  it('are valid for 825 days at most, with the days before', async () => {
    const later = new Date(now.getTime() + 900 * 24 * 3600_000);
    const request = { like: server.certificate, hosts: ['quay.site.test'], authority, now: later, days };
    const { validFromDate, validToDate } = new X509Certificate(await issueServerCertificate(request));
    expect(Math.round((validToDate.getTime() - validFromDate.getTime()) / (24 * 3600_000))).to.equal(825);
  });

  it('may encipher keys only with RSA', async () => {
    const usageOf = async (like: string): Promise<string> => {
      const file = join(folder, 'usage.crt');
      await writeFile(file, await issueServerCertificate({ like, hosts: ['x'], authority, now, days }));
      return runSuccessfully('openssl', ['x509', '-in', file, '-noout', '-ext', 'keyUsage']);
    };
    expect(await usageOf(server.certificate)).to.contain('Digital Signature\n');
    expect(await usageOf(await openssl(['-newkey', 'rsa:2048']))).to.contain('Digital Signature, Key Encipherment\n');
  });

  it('of a CA keep its key and name, so that clients keep their trust', async () => {
    const certificate = await reissueAuthority({ ...authority, now, days: 3650 });
    const [old, again] = [new X509Certificate(authority.certificate), new X509Certificate(certificate)];
    expect(again.subject).to.equal(old.subject);
    expect(again.serialNumber).not.to.equal(old.serialNumber);
    expect(new X509Certificate(server.certificate).verify(again.publicKey)).to.equal(true);
    expect(new X509Certificate(server.certificate).checkIssued(again)).to.equal(true);
  });

  it('of a CA have a name of at most 64 characters', async () => {
    const { certificate } = await createAuthority(`${'x'.repeat(70)}.test`, { now, days });
    expect(new X509Certificate(certificate).subject).to.contain(`CN=${'x'.repeat(64)}\n`);
  });

  it('get a new key of the same kind', async () => {
    for (const [options, type] of [
      [p384, 'ec'],
      [['-newkey', 'rsa:3072'], 'rsa'],
    ] as const) {
      const pem = await openssl(options);
      const key = createPrivateKey(await createKeyLike(pem));
      expect(key.asymmetricKeyType).to.equal(type);
      expect(key.asymmetricKeyDetails).to.deep.equal(keyOf(pem).asymmetricKeyDetails);
    }
    const weak = await openssl(['-newkey', 'rsa:1024']);
    expect(createPrivateKey(await createKeyLike(weak)).asymmetricKeyDetails?.modulusLength).to.equal(2048);
  });

  it('are refused by strict clients for each of their flaws', async () => {
    const plain = ['basicConstraints=critical,CA:false', 'subjectAltName=DNS:x'];
    for (const [extensions, flaws] of [
      [['basicConstraints=CA:true', 'keyUsage=keyCertSign'], ['its basic constraints are not critical']],
      [['basicConstraints=critical,CA:true', 'keyUsage=digitalSignature'], ['it may not sign certificates']],
      [[...plain, 'keyUsage=keyCertSign'], ['it may sign certificates but is not a CA']],
      [plain.slice(0, 1), ['it names no host']],
      [[...plain.slice(0, 1), 'subjectAltName=DNS:192.0.2.1'], ['it has the address 192.0.2.1 as a DNS name']],
      [plain, []],
    ] as const)
      expect(await listFlaws(await openssl(p384, ...extensions)), extensions.join()).to.deep.equal(flaws);
  });
});

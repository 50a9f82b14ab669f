import { X509Certificate } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  createConstrainedAuthority,
  createServerCertificate,
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
  });
});

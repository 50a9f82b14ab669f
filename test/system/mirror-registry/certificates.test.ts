import { existsSync } from 'node:fs';
import { chown, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createServerCertificate } from '../../../lib/certificates/issuing.ts';
import type { CertificateStatus } from '../../../lib/registry-host/certificates/certificates.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';

describe('changeCertificates', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(() => registry.stop());

  /** Returns the exit code of a client that trusts only one CA. */
  async function ask(authority: string): Promise<number> {
    const url = `https://localhost:${registry.host.port}/v2/`;
    return (await run('curl', ['-sS', '--cacert', authority, url])).code;
  }

  const oldRoot = (): string => join(registry.fixture.root, 'old-root.pem');

  it('renews in place, restarts Quay alone, keeps the trust of clients, and does nothing the second time', async () => {
    const { code, stdout, stderr } = await registry.call('certs renew');
    expect(code, stderr).to.equal(0);
    expect(stdout).to.include('Done: the registry is healthy with the new certificate.');
    expect(registry.host.calls).to.deep.equal(['systemctl daemon-reload', 'systemctl restart quay-app.service']);
    expect([await ask(oldRoot()), await ask(registry.at('quay-rootCA/rootCA.pem'))]).to.deep.equal([0, 0]);
    const before = await registry.snapshot(true);
    expect((await registry.call('certs renew')).stdout).to.equal('No certificate needs renewal.\n');
    expect(await registry.snapshot(true)).to.deep.equal(before);
    expect(registry.host.calls).to.have.length(2);
  });

  it('restores the old certificates if Quay does not become healthy with the new ones', async () => {
    const before = await registry.snapshot();
    const { host } = registry;
    let asked = 0;
    host.healthOf = () => {
      asked += 1;
      return asked > 1 && asked < 5 ? { ...healthy, status: 503 } : healthy;
    };
    const { code, stderr } = await registry.call('certs renew');
    expect(code, stderr).to.equal(3);
    expect(stderr).to.include('the renewal of certificates was rolled back');
    expect(await registry.snapshot()).to.deep.equal(before);
    expect(await ask(oldRoot())).to.equal(0);
  });

  it('refuses a registry that is not healthy, except with --force', async () => {
    const before = await registry.snapshot();
    registry.host.healthOf = () => ({ ...healthy, status: 503 });
    const refused = await registry.call('certs renew');
    expect([refused.code, await registry.snapshot()]).to.deep.equal([1, before]);
    expect(refused.stderr).to.include('not healthy before the change').and.to.include('try: --force');
    expect((await registry.call('certs renew', ['--force'])).code).to.equal(3);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('leaves the restart to others on request', async () => {
    const { code, stdout } = await registry.call('certs renew', ['--no-restart']);
    expect([code, registry.host.calls]).to.deep.equal([0, []]);
    expect(stdout).to.include('restart quay-app.service');
    const before = await registry.snapshot();
    expect((await registry.call('rollback', ['--no-restart'])).code).to.equal(0);
    expect(await registry.snapshot()).not.to.deep.equal(before);
    expect(registry.host.calls).to.deep.equal([]);
  });

  /** Returns whether a change has begun: before that, there is nothing to resume. */
  const isBegun = (): boolean =>
    existsSync(registry.at('.oc-mirror-registry/journal.json')) || registry.host.calls.length > 0;

  it('resumes after a kill at every step, and the renewal can be rolled back to the byte', async () => {
    const before = await registry.snapshot();
    let kills = 0;
    for (let [step, backStep, code] = [0, 0, -1]; code !== 0; step += 1) {
      ({ code } = await registry.call('certs renew', [], step));
      if (code !== 0 && !isBegun()) continue;
      kills += 1;
      const again = await registry.call('certs renew');
      expect(again.code, again.stderr).to.equal(0);
      expect([await ask(oldRoot()), await ask(registry.at('quay-rootCA/rootCA.pem'))]).to.deep.equal([0, 0]);
      const back = await registry.call('rollback', [], backStep);
      if (back.code !== 0) {
        backStep += 2;
        const { code: end, stderr } = await registry.call('rollback');
        expect(end === 0 || stderr.includes('nothing to roll back'), stderr).to.equal(true);
      }
      expect(await registry.snapshot(), `step ${step}`).to.deep.equal(before);
      expect(await ask(oldRoot())).to.equal(0);
      registry.host.calls.length = 0;
    }
    expect(kills).to.be.greaterThan(5);
  });

  it('takes a switch of the authority back that was killed at any step', async () => {
    await registry.call('certs renew', ['--new-ca=prepare']);
    expect(registry.host.calls).to.deep.equal([]);
    const before = await registry.snapshot();
    let kills = 0;
    for (let [step, code] = [0, -1]; code !== 0; step += 1) {
      ({ code } = await registry.call('certs renew', ['--new-ca=switch'], step));
      if (code !== 0 && !isBegun()) continue;
      kills += 1;
      const isUnfinished = existsSync(registry.at('.oc-mirror-registry/journal.json'));
      const plan = await registry.call('plan', ['--detailed-exitcode']);
      if (isUnfinished) expect([plan.code, plan.stderr.includes('is unfinished')]).to.deep.equal([2, true]);
      expect((await registry.call('rollback')).code).to.equal(0);
      expect(await registry.snapshot(), `step ${step}`).to.deep.equal(before);
      expect(await ask(oldRoot())).to.equal(0);
      registry.host.calls.length = 0;
    }
    expect(kills).to.be.greaterThan(5);
  });

  it('takes its figures from the options, and keeps the given number of backups', async () => {
    const options = ['--cert-days=200', '--ca-days=500', '--keep-backups=1', '--add-san=10.9.8.7', '--rotate-key'];
    for (const _ of ['first', 'second']) {
      const { code, stderr } = await registry.call('certs renew', [...options, '--force']);
      expect(code, stderr).to.equal(0);
    }
    expect(await readdir(registry.at('.oc-mirror-registry/backups'))).to.have.length(1);
    const { stdout } = await registry.call('certs status', ['-o', 'json']);
    const { server, authority } = JSON.parse(stdout) as CertificateStatus;
    expect([server?.daysLeft, authority?.daysLeft]).to.deep.equal([199, 499]);
    expect(server?.hosts).to.include('10.9.8.7');
    expect(await ask(oldRoot())).to.equal(0);
    const moved = await registry.call('certs renew', ['--quay-root=srv']);
    expect([moved.code, moved.stderr.includes('not an absolute path')]).to.deep.equal([2, true]);
  });

  it('leaves the registry of another user to that user', async function () {
    if (process.getuid?.() !== 0) this.skip();
    await using another = await startMirrorRegistry({ scope: 'user' });
    await chown(another.at(''), 1234, 1234);
    const before = await another.snapshot();
    const { code, stderr } = await another.call('certs renew');
    expect([code, stderr.includes('belongs to another user, 1234')], stderr).to.deep.equal([1, true]);
    expect([await another.snapshot(), another.host.calls]).to.deep.equal([before, []]);
  });

  it('does not restore over later changes', async () => {
    await registry.call('certs renew');
    const path = registry.at('quay-config/ssl.cert');
    await writeFile(path, `${await readFile(path, 'utf8')}# mine\n`);
    const refused = await registry.call('rollback');
    expect([refused.code, refused.stderr.includes('changed since')]).to.deep.equal([1, true]);
    expect((await registry.call('rollback', ['--force'])).code).to.equal(0);
    expect(await readFile(path, 'utf8')).not.to.include('mine');
  });

  it('renews an expired certificate that a rollback restores, on the same CA, and says so before', async () => {
    await installCertificates(registry.fixture, { host: 'localhost', days: -1, caDays: 100 });
    const root = await readFile(registry.at('quay-rootCA/rootCA.pem'), 'utf8');
    await writeFile(oldRoot(), root);
    expect((await registry.call('certs renew')).code).to.equal(0);
    const shown = await registry.call('rollback', ['--dry-run']);
    expect(shown.stdout, shown.stderr).to.match(
      /renew the restored certificate on its CA: the certificate expired on /,
    );
    const { code, stdout, stderr } = await registry.call('rollback');
    expect([code, stdout.includes('was renewed on the same CA')], stderr).to.deep.equal([0, true]);
    expect(await ask(oldRoot())).to.equal(0);
    expect((await registry.call('rollback')).stderr).to.include('there is nothing to roll back');
  });

  it('asks before a rollback to an expired certificate that it cannot renew', async () => {
    await installCertificates(registry.fixture, { host: 'localhost', days: -1, caDays: 100 });
    await rm(registry.at('quay-rootCA/rootCA.key'));
    const own = await startMirrorRegistry();
    try {
      const files = ['cert', 'key'].map((name) => `--ssl-${name}=${own.at(`quay-config/ssl.${name}`)}`);
      expect((await registry.call('certs renew', files)).code).to.equal(0);
    } finally {
      await own.stop();
    }
    const before = await registry.snapshot(true);
    const refused = await registry.call('rollback');
    expect([refused.code, refused.stderr.includes('the certificate expired on')], refused.stderr).to.deep.equal([
      1,
      true,
    ]);
    expect(refused.stderr).to.include('--force');
    expect(await registry.snapshot(true)).to.deep.equal(before);
    const { code, stderr } = await registry.call('rollback', ['--force']);
    expect(code, stderr).to.equal(0);
  });

  it('asks before a rollback to a certificate that is valid only from a later day', async () => {
    const [certificate, key] = await Promise.all(
      ['pem', 'key'].map((name) => readFile(registry.at(`quay-rootCA/rootCA.${name}`), 'utf8')),
    );
    const authority = { certificate: certificate ?? '', key: key ?? '' };
    const later = new Date(Date.now() + 30 * 24 * 60 * 60 * 1000);
    const made = await createServerCertificate('quay-enterprise', {
      hosts: ['localhost'],
      authority,
      now: later,
      days: 9,
    });
    await writeFile(registry.at('quay-config/ssl.cert'), made.certificate + authority.certificate);
    await writeFile(registry.at('quay-config/ssl.key'), made.key);
    expect((await registry.call('certs renew')).stderr).to.include('Set the clock of this host');
    expect((await registry.call('certs renew', ['--force'])).code).to.equal(0);
    const before = await registry.snapshot(true);
    const refused = await registry.call('rollback');
    expect([refused.code, refused.stderr.includes('is valid only from')], refused.stderr).to.deep.equal([1, true]);
    expect(await registry.snapshot(true)).to.deep.equal(before);
    expect((await registry.call('rollback', ['--force'])).code).to.equal(0);
  });

  it('replaces the target of a symbolic link, not the link', async () => {
    await runSuccessfully('mv', [registry.at('quay-config/ssl.cert'), registry.at('elsewhere.cert')]);
    await rm(registry.at('quay-config/ssl.cert'), { force: true });
    await runSuccessfully('ln', ['-s', '../elsewhere.cert', registry.at('quay-config/ssl.cert')]);
    const old = await readFile(registry.at('elsewhere.cert'), 'utf8');
    expect((await registry.call('certs renew')).code).to.equal(0);
    expect(await readFile(registry.at('elsewhere.cert'), 'utf8')).not.to.equal(old);
    expect((await registry.call('rollback')).code).to.equal(0);
    expect(await readFile(registry.at('elsewhere.cert'), 'utf8')).to.equal(old);
    expect(await readdir(registry.at('quay-config'))).not.to.include('ssl.cert.partial');
  });
});

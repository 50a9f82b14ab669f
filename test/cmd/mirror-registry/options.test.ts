import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  defaultRenewal,
  executionOptions,
  findInstallation,
  registryHostOptions,
  renewalOf,
  renewalOptions,
  requestOf,
  uninstallRequestOf,
} from '../../../cmd/mirror-registry/options.ts';
import { makeFixture, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('the options of a mirror registry', () => {
  describe('renewalOf', () => {
    const now = new Date('2026-01-01');
    const read = (changes: object = {}) => renewalOf({ ...defaultRenewal, ...changes }, now);

    it('is the same without options as with their defaults', async () => {
      expect(await read()).to.deep.equal({
        ...{ now, renewBefore: 90, certDays: 397, caDays: 1024, addHosts: [], force: false },
        ...{ rotateKey: false, own: undefined },
      });
    });

    const refused: [title: string, changes: object, message: string][] = [
      ['a certificate without its key', { sslCert: '/a' }, '--ssl-cert and --ssl-key go together'],
      ['a key without its certificate', { sslKey: '/a' }, '--ssl-cert and --ssl-key go together'],
      [
        'a new key for your own certificate',
        { sslCert: '/a', sslKey: '/b', rotateKey: true },
        '--rotate-key does not go with --ssl-cert',
      ],
      [
        'certificates that the next run would renew again',
        { renewBefore: 397 },
        '--renew-before must be less than --cert-days, which must not exceed --ca-days',
      ],
      [
        'a CA that expires before its certificates',
        { caDays: 396 },
        '--renew-before must be less than --cert-days, which must not exceed --ca-days',
      ],
    ];
    for (const [title, changes, message] of refused)
      it(`refuses ${title}`, async () => {
        expect((await failureOf(read(changes), 'usage')).message).to.equal(message);
      });

    it('reads your own certificate and its key', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'own-'));
      try {
        const [sslCert, sslKey] = [join(folder, 'cert'), join(folder, 'key')];
        await writeFile(sslCert, 'a certificate');
        await failureOf(read({ sslCert, sslKey }), 'not-readable');
        await writeFile(sslKey, 'a key');
        expect((await read({ sslCert, sslKey, caDays: 397 })).own).to.deep.equal({
          certificate: 'a certificate',
          key: 'a key',
        });
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  });

  it('take host names and IP addresses for a certificate, and absolute paths of the host', () => {
    const { check } = renewalOptions['add-san'];
    for (const word of ['registry.example.com', '10.0.0.5', '2001:db8::1']) check(word);
    for (const word of ['a b', 'https://a', '']) expect(() => check(word)).to.throw('is not a host name or IP address');
    const { check: checkPath } = registryHostOptions['quay-root'];
    checkPath('/opt/quay');
    expect(() => checkPath('opt/quay')).to.throw('“opt/quay” is not an absolute path');
  });

  describe('of a host', () => {
    let fixture: Fixture;
    beforeEach(async () => {
      fixture = await makeFixture({ age: '2.0.7', scope: 'user' });
    });
    afterEach(() => fixture.remove());
    const { signal } = new AbortController();
    const argsOf = (changes: object = {}) => ({
      ...{ root: fixture.root, scope: 'auto' as const, userHome: fixture.home, quayRoot: undefined },
      ...{ podman: 'podman', systemctl: undefined as string | undefined, restart: true, force: false },
      ...{ healthTimeout: executionOptions['health-timeout'].default, keepBackups: 3, ...changes },
    });

    it('find the registry of the user’s home folder, by default that of $HOME', async () => {
      const args = { ...argsOf(), userHome: undefined };
      const { installation, files } = await findInstallation(args, { HOME: fixture.home });
      expect([installation.scope, files.root]).to.deep.equal(['user', fixture.root]);
      await failureOf(findInstallation(args, { HOME: '/home/other' }), 'not-found');
      expect((await findInstallation(argsOf(), { HOME: '/home/other' })).installation.scope).to.equal('user');
      await failureOf(findInstallation(argsOf({ scope: 'system' }), {}), 'not-found');
    });

    it('need the systemctl of another host, unless nothing is restarted', async () => {
      const { message, hint } = await failureOf(requestOf(argsOf(), {}, signal), 'usage');
      expect(message).to.match(/^--systemctl is missing: with --root/);
      expect(hint).to.match(/, or use --no-restart\.$/);
      expect(await requestOf(argsOf({ restart: false }), {}, signal)).to.include({ noRestart: true, force: false });
      const whole = await requestOf(argsOf({ systemctl: '/bin/true', force: true }), {}, signal);
      expect(whole).to.include({ noRestart: false, force: true, healthTimeout: 300, keepBackups: 3 });
      expect(whole.detect).to.deep.include({ scope: 'auto', home: fixture.home });
    });

    it('need it for an uninstallation, which works without the configuration', async () => {
      expect((await failureOf(uninstallRequestOf(argsOf(), {}, signal), 'usage')).hint).not.to.contain('--no-restart');
      await rm(join(fixture.root, fixture.quayRoot, 'quay-config'), { recursive: true });
      const { files, detect } = await uninstallRequestOf(argsOf({ systemctl: '/bin/true' }), {}, signal);
      expect([files.root, detect.home]).to.deep.equal([fixture.root, fixture.home]);
      await failureOf(requestOf(argsOf({ systemctl: '/bin/true' }), {}, signal));
    });
  });
});

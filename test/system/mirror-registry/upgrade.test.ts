import { mkdtemp, mkdir, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { makeRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy, type MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';

const executable = executableOf('oc-adm_mirror_registry');
const gzipMagic = Buffer.from([0x1f, 0x8b]);

describe('upgradeRegistry', function () {
  let folder: string;
  let bundle: string;
  let quay: string;
  let respun: string;
  let registry: RunningRegistry;
  let fixture: Fixture;
  let host: MirrorRegistryHost;

  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'upgrade-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl', 'skopeo');
    ({ path: bundle, quay, respun } = await makeRegistryBundle(folder));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  const start = async (): Promise<void> => {
    registry = await startMirrorRegistry();
    ({ host, fixture } = registry);
  };
  const at = (path: string): string => registry.at(path);
  const call: RunningRegistry['call'] = (...args) => registry.call(...args);
  const snapshot: RunningRegistry['snapshot'] = (...args) => registry.snapshot(...args);
  /** The certificate of the CA before anything was done. */
  const oldRoot = (): string => join(fixture.root, 'old-root.pem');
  const upgrade = (): Promise<RunResult> => call('upgrade', [`--bundle=${bundle}`]);

  /** Makes an archive with an image without layers. */
  async function makeImage(): Promise<string> {
    const path = join(folder, 'image.tar');
    const { content } = new TestContent();
    putImage(content, 'a/b', '1');
    const source = new TestRegistry({ content });
    await source.start();
    await rm(path, { force: true });
    await runSuccessfully('skopeo', [
      'copy',
      '--insecure-policy',
      '--src-tls-verify=false',
      `docker://${source.host}/a/b:1`,
      `oci-archive:${path}`,
    ]);
    await source.stop();
    return path;
  }

  describe('without a network', () => {
    let result: RunResult;
    const image = (): string => `docker://localhost:${host.port}/test/image:1`;

    before(async () => {
      await start();
      await fixture.write(`${fixture.quayRoot}/trusted/ca.crt`, await readFile(oldRoot(), 'utf8'));
      const from = `oci-archive:${await makeImage()}`;
      await runSuccessfully('skopeo', ['copy', '--insecure-policy', from, image(), '--dest-cert-dir', at('trusted')]);
      result = await upgrade();
    });
    after(() => registry.stop());

    it('reports its changes', () => {
      const { code, stdout, stderr } = result;
      expect([code, stderr.includes('error')], stderr).to.deep.equal([0, false]);
      expect(stdout).to.include('Done: the registry is healthy.').and.to.include('2.0.7 to 2.0.11');
    });

    it('runs the new Quay', () => {
      expect(host.running).to.equal(quay);
    });

    it('has all images before it stops the registry', () => {
      const first = host.calls.findIndex((line) => line.startsWith('systemctl stop'));
      expect(first).to.be.greaterThan(-1);
      expect(host.calls.findLastIndex((line) => /^podman (?:pull|tag)/.test(line))).to.be.lessThan(first);
    });

    it('keeps the options of the unit, with those of SQLite', async () => {
      const unit = await readFile(`${fixture.root}${fixture.unitFolder}/quay-app.service`, 'utf8');
      expect(unit).to.include('--memory=4g').and.to.include('/sqlite:Z,U');
    });

    it('keeps the trust of clients', async () => {
      const url = `https://localhost:${host.port}/v2/`;
      expect(await runSuccessfully('curl', ['-sS', '--cacert', oldRoot(), url])).to.equal('{}');
    });

    it('keeps the images', async () => {
      await runSuccessfully('skopeo', ['inspect', '--cert-dir', at('trusted'), image()]);
    });

    it('has a certificate that strict clients accept', async () => {
      const strict = ['-x509_strict', '-verify_hostname', 'localhost', '-CAfile', at('quay-rootCA/rootCA.pem')];
      await runSuccessfully('openssl', ['verify', ...strict, at('quay-config/ssl.cert')]);
    });

    it('does nothing the second time', async () => {
      const [before, calls] = [await snapshot(true), host.calls.length];
      const again = await upgrade();
      const nothing = 'The mirror registry is up to date: there is nothing to do.\n';
      expect([again.code, again.stdout]).to.deep.equal([0, nothing]);
      expect(await snapshot(true)).to.deep.equal(before);
      expect(
        host.calls.slice(calls).filter((line) => !/^podman (?:info|\w+ (?:exists|inspect))/.test(line)),
      ).to.deep.equal([]);
    });
  });

  describe('on a fresh host', () => {
    beforeEach(start);
    afterEach(() => registry.stop());

    it('takes its next release out of itself, before it stops', async () => {
      const repository = `localhost:${host.port}/openshift/mirror-registry-bundle`;
      const trusted = `--certificate-authority=${oldRoot()}`;
      const program = [executable, 'bundle', 'push', bundle, `--to=${repository}`, trusted];
      const digest = /sha256:[0-9a-f]{64}/.exec(await runSuccessfully(process.execPath, program))?.[0] ?? '';
      const args = [`--bundle=${repository}`, `--digest=${digest}`];
      const plan = await call('plan', [`--bundle=${repository}`, '--detailed-exitcode']);
      expect([plan.code, plan.stdout.includes(quay)], plan.stderr).to.deep.equal([2, true]);
      const { code, stderr } = await call('upgrade', args);
      expect(code, stderr).to.equal(0);
      expect(host.running).to.equal(quay);
      const first = host.calls.findIndex((line) => line.startsWith('systemctl'));
      expect(host.calls.findLastIndex((line) => /^podman (?:pull|tag)/.test(line))).to.be.lessThan(first);
      const before = await snapshot(true);
      expect((await call('upgrade', args)).stdout).to.include('there is nothing to do');
      expect(await snapshot(true)).to.deep.equal(before);
    });

    it('brings another image of the same name, and the old one back', async () => {
      expect((await upgrade()).code).to.equal(0);
      const [old, before] = [host.images.get(quay), await snapshot()];
      expect((await call('status')).stdout).to.include('last upgraded by this program on');
      const plan = await call('plan', [`--bundle=${respun}`]);
      expect(plan.stdout, plan.stderr).to.include('another image of that name').and.to.include('restart');
      const { code, stderr } = await call('upgrade', [`--bundle=${respun}`]);
      expect(code, stderr).to.equal(0);
      const fresh = host.images.get(quay);
      expect(fresh).not.to.equal(old);
      const stop = host.calls.findLastIndex((line) => line.startsWith('systemctl stop'));
      expect(host.calls.findLastIndex((line) => line === `podman tag ${fresh ?? ''} ${quay}`)).to.be.greaterThan(stop);
      expect((await call('plan', [`--bundle=${respun}`])).stdout).to.include('there is nothing to do');
      const back = await call('rollback');
      expect(back.code, back.stderr).to.equal(0);
      expect(host.images.get(quay)).to.equal(old);
      expect(await snapshot()).to.deep.equal(before);
      expect((await call('plan', [`--bundle=${bundle}`])).stdout).to.include('there is nothing to do');
    });

    it('renews certificates alone, and restarts nothing but Quay', async () => {
      const { code, stderr } = await call('upgrade');
      expect(code, stderr).to.equal(0);
      const changing = host.calls.filter((line) => !/^podman (?:info|\w+ (?:exists|inspect))/.test(line));
      expect(changing).to.deep.equal(['systemctl daemon-reload', 'systemctl restart quay-app.service']);
      expect(host.running).to.equal(imagesOf('2.0.7').quay);
    });

    for (const [what, health] of [
      ['answers 503', { ...healthy, status: 503 }],
      ['has one service that is not well', { status: 200, services: { ...healthy.services, database: false } }],
    ] as const) {
      it(`puts everything back when the new registry ${what}`, async () => {
        const before = await snapshot();
        host.healthOf = (image) => (image === quay ? health : healthy);
        const { code, stderr } = await upgrade();
        expect(code, stderr).to.equal(3);
        expect(stderr).to.include('the upgrade was rolled back');
        expect(await snapshot()).to.deep.equal(before);
        expect(host.running).to.equal(imagesOf('2.0.7').quay);
        expect(await readdir(at('.oc-mirror-registry'))).to.deep.equal(['backups', 'written.json']);
      });
    }

    it('resumes after a kill at each kind of step, and so does its rollback, with any next command', async () => {
      const before = await snapshot();
      for (const [step, back, next] of [
        ['rename journal.json', 'rm newer-database', 'rollback'],
        ['rename quay-redis.service', 'rename quay-app.service', 'certs renew'],
        ['rename upgrade.json', 'rename quay_sqlite.db', 'rollback'],
      ] as const) {
        const killed = await registry.kill('upgrade', [`--bundle=${bundle}`], step);
        expect(killed.code, killed.stderr).to.equal(-1);
        const again = await upgrade();
        expect(again.code, again.stderr).to.equal(0);
        expect(host.running).to.equal(quay);
        const halfway = await registry.kill('rollback', [], back);
        expect(halfway.code, halfway.stderr).to.equal(-1);
        // The next run ends the rollback, and does nothing else.
        const { code, stderr } = await call(next);
        expect([code, stderr.includes('was rolled back')], stderr).to.deep.equal(
          next === 'rollback' ? [0, false] : [3, true],
        );
        expect(await snapshot()).to.deep.equal(before);
        expect(host.running).to.equal(imagesOf('2.0.7').quay);
      }
    });

    it('shows with --dry-run the same as plan, also as data, and has an exit code for scripts', async () => {
      const before = await snapshot(true);
      const shown = await call('upgrade', [`--bundle=${bundle}`, '--dry-run', '--diff', '--detailed-exitcode']);
      expect([shown.code, /^\+.* registry$/m.test(shown.stdout)], shown.stderr).to.deep.equal([2, true]);
      const planned = await call('upgrade', [`--bundle=${bundle}`, '--dry-run', '-o', 'json']);
      expect(JSON.parse(planned.stdout)).to.include({
        outcome: 'planned',
        from: '2.0.7',
        to: '2.0.11',
        level: 'patch',
      });
      expect(await snapshot(true)).to.deep.equal(before);
      expect(host.calls.filter((line) => !/^podman (?:info|\w+ (?:exists|inspect))/.test(line))).to.deep.equal([]);

      const done = await call('upgrade', [`--bundle=${bundle}`, '-o', 'json', '--detailed-exitcode']);
      expect(done.code, done.stderr).to.equal(2);
      expect(JSON.parse(done.stdout)).to.include({ outcome: 'upgraded', to: '2.0.11' });
      const again = await call('upgrade', [`--bundle=${bundle}`, '-o', 'yaml', '--detailed-exitcode']);
      expect([again.code, again.stdout.startsWith('outputVersion: 1\noutcome: unchanged\n')]).to.deep.equal([0, true]);
    });

    it('creates the secret that Redis needs if podman has none, until its rollback, and keeps an existing one', async () => {
      host.secrets.set('redis_pass', 'strongpassword');
      expect((await upgrade()).code).to.equal(0);
      expect((await call('rollback')).code).to.equal(0);
      expect(host.secrets.has('redis_pass')).to.equal(true);
      host.secrets.clear();
      expect((await upgrade()).code).to.equal(0);
      expect(host.secrets.get('redis_pass')).to.equal('strongpassword');
      expect((await call('rollback')).code).to.equal(0);
      expect([...host.secrets.keys()]).to.deep.equal([]);
    });

    it('replaces the installer’s certificate with the administrator’s, and then keeps it', async () => {
      const own = [`--ssl-cert=${join(folder, 'own.cert')}`, `--ssl-key=${join(folder, 'own.key')}`];
      const make = (name: string): Promise<string> =>
        runSuccessfully('openssl', [
          'req',
          '-x509',
          '-newkey',
          'rsa:2048',
          '-nodes',
          '-days',
          '100',
          '-subj',
          `/CN=${name}`,
          '-addext',
          `subjectAltName=DNS:${name}`,
          '-keyout',
          join(folder, 'own.key'),
          '-out',
          join(folder, 'own.cert'),
        ]);
      const before = await snapshot();
      await make('elsewhere.example.com');
      const refused = await call('certs renew', own);
      expect([refused.code, refused.stderr.includes('does not name the host localhost')]).to.deep.equal([1, true]);
      expect(await snapshot()).to.deep.equal(before);

      await make('localhost');
      const taken = await call('certs renew', own);
      expect(taken.code, taken.stderr).to.equal(0);
      const url = `https://localhost:${host.port}/v2/`;
      expect(await runSuccessfully('curl', ['-sS', '--cacert', join(folder, 'own.cert'), url])).to.equal('{}');
      const changed = await snapshot(true);
      expect((await call('upgrade', own)).stdout).to.include('there is nothing to do');
      expect(await snapshot(true)).to.deep.equal(changed);
      expect((await call('rollback')).code).to.equal(0);
      expect(await snapshot()).to.deep.equal(before);
    });

    it('changes nothing with a bundle that is corrupt, truncated, of another kind, or for other machines', async () => {
      const before = await snapshot();
      const refuse = async (path: string, words: string, ...args: string[]): Promise<void> => {
        const { code, stderr } = await call('upgrade', [`--bundle=${path}`, ...args]);
        expect(code, stderr).to.equal(1);
        expect(stderr).to.include(words);
        expect(await snapshot()).to.deep.equal(before);
        expect(host.calls.filter((line) => /^systemctl|pull|tag/.test(line))).to.deep.equal([]);
      };
      const bytes = await readFile(bundle);
      const corrupt = join(folder, 'corrupt.tar');
      const place = bytes.indexOf(gzipMagic, bytes.length / 2) + 20;
      await writeFile(corrupt, Buffer.concat([bytes.subarray(0, place), Buffer.from('x'), bytes.subarray(place + 1)]));
      await refuse(corrupt, 'corrupt');
      await writeFile(corrupt, bytes.subarray(0, bytes.length - 10_000));
      await refuse(corrupt, '');
      await writeFile(corrupt, bytes);
      await writeFile(`${corrupt}.sha256`, `${'0'.repeat(64)}  corrupt.tar\n`);
      await refuse(corrupt, 'corrupt.tar.sha256');
      await refuse(bundle, 'as given', `--digest=sha256:${'0'.repeat(64)}`);
      await runSuccessfully('tar', ['-cf', corrupt, '-C', fixture.root, 'etc']);
      await refuse(corrupt, 'corrupt.tar');
      host.architecture = 'arm64';
      await refuse(bundle, 'is for x86_64');
    });

    it('leaves a damaged database alone', async () => {
      const path = join(fixture.root, 'srv/db/quay_sqlite.db');
      const bytes = await readFile(path);
      await writeFile(path, bytes.fill(0xff, 4096, 4200));
      const before = await snapshot();
      const { code, stderr } = await upgrade();
      expect([code, stderr.includes('the database of the registry is damaged')], stderr).to.deep.equal([3, true]);
      expect(await snapshot()).to.deep.equal(before);
      expect(host.running).to.equal(imagesOf('2.0.7').quay);
    });

    it('says with 4 that it could not put everything back, and does so later', async () => {
      const before = await snapshot();
      host.isBroken = true;
      expect((await upgrade()).code).to.equal(4);
      host.isBroken = false;
      const { code, stderr } = await call('rollback');
      expect(code, stderr).to.equal(0);
      expect(await snapshot()).to.deep.equal(before);
      expect(host.running).to.equal(imagesOf('2.0.7').quay);
    });

    it('touches nothing when a key cannot be read, and when the disk is full', async function () {
      const key = at('quay-config/ssl.key');
      await rename(key, `${key}.aside`);
      await mkdir(key);
      const broken = await upgrade();
      expect(broken.code).to.equal(1);
      expect(broken.stderr).to.include('ssl.key is not a regular file');
      await rmdir(key);
      await rename(`${key}.aside`, key);

      const before = await snapshot();
      const state = at('.oc-mirror-registry');
      await mkdir(state, { recursive: true });
      const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=8k,mode=700', 'tmpfs', state]);
      if (mounted.code !== 0) return;
      try {
        const { code, stderr } = await upgrade();
        expect(code, stderr).to.equal(1);
        expect(stderr).to.match(/needs .* more, and .* free/);
        const renewal = await call('certs renew');
        expect([renewal.code, renewal.stderr.includes('the disk is full')]).to.deep.equal([1, true]);
        expect(await snapshot()).to.deep.equal(before);
        expect(host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
      } finally {
        await run('umount', [state]);
      }
    });
  });
});

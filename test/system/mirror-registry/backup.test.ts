import { createHash } from 'node:crypto';
import { chmod, copyFile, cp, mkdir, mkdtemp, readdir, readFile } from 'node:fs/promises';
import { rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import type { BackupManifest } from '../../../lib/registry-host/backup/backupFormat.ts';
import { writeBackupFile } from '../../fakes/mirror-registry/backupFile.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';

describe('backup and restore', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl', 'tar');
  let folder: string;
  let file: string;
  let registry: RunningRegistry;
  const database = (of = registry): string => join(of.fixture.root, 'srv/db/quay_sqlite.db');

  async function open(): Promise<void> {
    folder = await mkdtemp(join(tmpdir(), 'backup-'));
    file = join(folder, 'registry.tar');
    registry = await startMirrorRegistry();
    push('before');
  }
  async function close(): Promise<void> {
    await registry.stop();
    await rm(folder, { recursive: true, force: true });
  }

  /** Changes the database, as clients do. */
  function push(name: string, of = registry): void {
    using open = new DatabaseSync(database(of));
    open.prepare('INSERT INTO migration VALUES (?)').run(name);
  }

  function pushed(path = database()): unknown[] {
    using open = new DatabaseSync(path, { readOnly: true });
    return open
      .prepare('SELECT image FROM migration')
      .all()
      .map(({ image }) => image);
  }

  async function backUp(...args: string[]): Promise<void> {
    const { code, stderr } = await registry.call('backup', [`--output=${file}`, ...args]);
    expect(code, stderr).to.equal(0);
  }

  /** Runs a command that prints JSON. */
  async function json(command: string, ...args: string[]): Promise<Record<string, unknown>> {
    const { code, stdout, stderr } = await registry.call(command, args);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout) as Record<string, unknown>;
  }

  const systemctl = (of = registry): string[] => of.host.calls.filter((line) => /^systemctl (?!show)/.test(line));

  describe('of a registry whose Quay was killed', () => {
    const unpacked = (): string => join(folder, 'unpacked');
    let original: Record<string, string>;
    /** The results of dry runs in words and as JSON, and what they left: calls of systemctl, and files. */
    let planned: RunResult;
    let plan: Record<string, unknown>;
    let leftByPlan: unknown;
    let stops: string[];
    let manifest: BackupManifest;

    before(async () => {
      await open();
      await leaveTransaction();
      original = await registry.snapshot();
      planned = await registry.call('backup', [`--output=${file}`, '--dry-run']);
      plan = await json('backup', `--output=${file}`, '--dry-run', '--format=json');
      leftByPlan = [systemctl(), await readdir(folder)];
      await backUp();
      stops = systemctl();
      await mkdir(unpacked());
      await runSuccessfully('tar', ['-xf', file, '-C', unpacked()]);
      manifest = JSON.parse(await readFile(join(unpacked(), 'manifest.json'), 'utf8')) as BackupManifest;
    });
    after(close);

    /** Leaves the files of a database in the middle of a transaction. Their log must undo its changes. */
    async function leaveTransaction(): Promise<void> {
      const files = ['', '-journal'].map((suffix) => [database() + suffix, join(folder, `db${suffix}`)] as const);
      using open = new DatabaseSync(database());
      open.exec("PRAGMA cache_size = 1; BEGIN; UPDATE migration SET image = 'lost'; CREATE TABLE filler (x)");
      open.exec(
        'WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 9999) INSERT INTO filler SELECT i FROM n',
      );
      for (const [path, copy] of files) await copyFile(path, copy);
      open.exec('ROLLBACK');
      for (const [path, copy] of files) await rename(copy, path);
    }

    it('lists the files in a dry run', () => {
      const { code, stdout, stderr } = planned;
      expect([code, stdout.includes('quay-config/config.yaml')], stderr).to.deep.equal([0, true]);
    });

    it('prints the plan of a dry run as JSON', () => {
      expect(plan).to.deep.include({ outcome: 'planned', output: file });
    });

    it('stops and writes nothing in a dry run', () => {
      expect(leftByPlan).to.deep.equal([[], []]);
    });

    it('stops Quay only for the copy', () => {
      expect(stops).to.deep.equal(['systemctl stop quay-app.service', 'systemctl restart quay-app.service']);
    });

    it('changes no file of the registry', async () => {
      expect(await registry.snapshot()).to.deep.equal(original);
      expect(await readdir(registry.at('.oc-mirror-registry'))).to.deep.equal([]);
    });

    it('writes a file that only its owner can read', async () => {
      expect((await stat(file)).mode & 0o777).to.equal(0o600);
    });

    it('has the committed rows', () => {
      expect(pushed(join(unpacked(), 'database/quay_sqlite.db'))).to.deep.equal(['before']);
    });

    it('has the digest of each file', async () => {
      for (const { path, sha256 } of manifest.files) {
        const bytes = await readFile(join(unpacked(), path));
        expect(createHash('sha256').update(bytes).digest('hex'), path).to.equal(sha256);
      }
    });

    it('has the units and the key of the CA', () => {
      const paths = manifest.files.map(({ path }) => path);
      expect(paths).to.include.members(['units/quay-app.service', 'quay-rootCA/rootCA.key']);
    });

    it('overwrites no file', async () => {
      const { code, stderr } = await registry.call('backup', [`--output=${file}`]);
      expect([code, stderr.includes('exists already')], stderr).to.deep.equal([1, true]);
    });
  });

  describe('to another host', () => {
    const name = 'new.example.com';
    let other: RunningRegistry;
    /** The other host before, after the refusal without the option, and after the rollback. */
    let original: Record<string, string>;
    let refused: { readonly result: RunResult; readonly left: unknown };
    let restored: Awaited<ReturnType<typeof restore>>;
    let rolledBack: { readonly code: number; readonly left: unknown };

    before(async function () {
      await requireRoot(this);
      await open();
      await fillImages(registry, { 'sha256/aa/one': 'one', 'sha256/bb/two': 'two', 'uploads/unfinished': 'x' });
      await backUp('--images');
      other = await startMirrorRegistry({ configuration: 'ADDED: true\n' });
      await changeSecrets();
      // Certificates that the backup does not have are removed.
      expect((await other.call('certs renew', ['--new-ca=prepare'])).code).to.equal(0);
      await fillImages(other, { 'sha256/aa/one': 'one', 'sha256/cc/three': 'three' });
      original = await other.snapshot();
      refused = {
        result: await other.call('restore', [file]),
        left: [await other.snapshot(), systemctl(other)],
      };
      restored = await restore();
      await rm(join(imagesOn(other), 'sha256/bb'), { recursive: true });
      rolledBack = { code: (await other.call('rollback')).code, left: await other.snapshot() };
    });
    after(async () => {
      // There is none if the suite is skipped.
      if (!(other as RunningRegistry | undefined)) return;
      await other.stop();
      await close();
    });

    const imagesOn = ({ fixture }: RunningRegistry): string => join(fixture.root, 'srv/images');
    const configOf = ({ fixture }: RunningRegistry): string =>
      join(fixture.root, fixture.quayRoot, 'quay-config/config.yaml');

    /**
     * Writes files of images into a folder of the installer, which is not a volume: Quay may write it, but not list it.
     */
    async function fillImages(of: RunningRegistry, content: Record<string, string>): Promise<void> {
      for (const [path, text] of Object.entries(content)) await of.fixture.write(`/srv/images/${path}`, text);
      await runSuccessfully('chown', ['-R', '1001:0', imagesOn(of)]);
      await chmod(of.fixture.root, 0o711);
      await runSuccessfully('chown', ['0:1', imagesOn(of)]);
      await chmod(imagesOn(of), 0o773);
    }

    /** Gives the other host a password of Redis and a secret key of its own. */
    async function changeSecrets(): Promise<void> {
      const text = await readFile(configOf(other), 'utf8');
      await writeFile(configOf(other), text.replace('strongpassword', 'another').replace('8154', '9999'));
    }

    async function restore() {
      const result = await other.call('restore', [file, `--hostname=${name}`]);
      const { uid, gid, mode } = await stat(join(imagesOn(other), 'sha256/bb/two'));
      const root = join(registry.fixture.root, 'old-root.pem');
      const verify = ['verify', '-x509_strict', '-verify_hostname', name, '-CAfile', root];
      return {
        result,
        config: await readFile(configOf(other), 'utf8'),
        verified: await run('openssl', [...verify, other.at('quay-config/ssl.cert')]),
        nextCA: await readdir(other.at('quay-rootCA/next')),
        images: [await readdir(imagesOn(other)), (await readdir(join(imagesOn(other), 'sha256'))).sort()],
        owner: [uid, gid, mode & 0o777],
      };
    }

    it('needs the name of the host if its port is another', () => {
      const { code, stderr } = refused.result;
      expect([code, /publishes port \d+.*--hostname/s.test(stderr)], stderr).to.deep.equal([1, true]);
    });

    it('changes nothing without the name of the host', () => {
      expect(refused.left).to.deep.equal([original, []]);
    });

    it('writes the missing files of images', () => {
      const { code, stdout, stderr } = restored.result;
      expect([code, stdout.includes('1 missing files')], stderr).to.deep.equal([0, true]);
      expect(restored.images).to.deep.equal([['sha256'], ['aa', 'bb', 'cc']]);
    });

    it('gives the files of images to Quay', () => {
      expect(restored.owner).to.deep.equal([1001, 0, 0o644]);
    });

    it('has the name and the port of the host', () => {
      expect(restored.config).to.include(`SERVER_HOSTNAME: "${name}:${other.host.port}"`);
    });

    it('has the secret key of the backup', () => {
      expect(restored.config).to.include('81540163748093725116230911');
    });

    it('keeps the password of Redis, and no other setting of the host', () => {
      expect(restored.config).to.include('"another"').and.not.to.include('ADDED');
    });

    it('has a certificate for the name by the CA of the backup', () => {
      expect(restored.verified.code, restored.verified.stderr).to.equal(0);
    });

    it('removes certificates that the backup does not have', () => {
      expect(restored.nextCA).to.deep.equal([]);
    });

    it('is rolled back, also if files of images are gone', () => {
      expect(rolledBack).to.deep.equal({ code: 0, left: original });
    });
  });

  describe('on a fresh host', () => {
    beforeEach(open);
    afterEach(close);

    it('does not start a registry that was stopped, and fails on a damaged database', async () => {
      await runSuccessfully(join(registry.fixture.root, 'programs/systemctl'), ['stop', 'quay-app.service']);
      await backUp();
      expect(systemctl()).to.deep.equal(['systemctl stop quay-app.service']);
      await runSuccessfully(join(registry.fixture.root, 'programs/systemctl'), ['restart', 'quay-app.service']);
      await rm(file);
      await writeFile(database(), 'x');
      const { code, stderr } = await registry.call('backup', [`--output=${file}`]);
      expect([code, stderr.includes('is damaged')], stderr).to.deep.equal([1, true]);
      expect(await readdir(folder)).to.deep.equal([]);
      expect(systemctl().at(-1)).to.equal('systemctl restart quay-app.service');
    });

    it('backup leaves no file when it is killed, and the next run starts Quay', async () => {
      // While Quay is stopped, and while the file is written.
      for (const step of ['rename stopped', 'before rename registry.tar']) {
        const killed = await registry.call('backup', [`--output=${file}`], step);
        expect(killed.code, killed.stderr).to.equal(-1);
        await rm(file, { force: true });
        await backUp();
        expect(await readdir(folder)).to.deep.equal(['registry.tar']);
        expect(systemctl().at(-1)).to.equal('systemctl restart quay-app.service');
        expect(await readdir(registry.at('.oc-mirror-registry'))).to.deep.equal([]);
        await rm(file);
      }
    });

    it('restores lost files, and rollback reverts that', async () => {
      const written = await json('backup', `--output=${file}`, '--format=json');
      expect(written).to.deep.include({ outcome: 'written', output: file, hasImages: false });
      const before = await registry.snapshot();
      push('after');
      expect((await registry.call('certs renew', ['--force'])).code).to.equal(0);
      const changed = await registry.snapshot();
      const planned = await registry.call('restore', [file, '--dry-run']);
      expect(
        [planned.code, planned.stdout.includes('write '), planned.stderr.includes('error')],
        planned.stderr,
      ).to.deep.equal([0, true, false]);
      expect(await registry.snapshot()).to.deep.equal(changed);
      expect(await json('restore', file, '--dry-run', '-o', 'json')).to.deep.include({ outcome: 'planned' });
      expect(await registry.snapshot()).to.deep.equal(changed);
      const { code, stderr, stdout } = await registry.call('restore', [file]);
      expect([code, stdout.includes('is healthy as localhost')], stderr).to.deep.equal([0, true]);
      expect([await registry.snapshot(), pushed()]).to.deep.equal([before, ['before']]);
      expect(await json('rollback', '--dry-run', '-o', 'json')).to.deep.include({
        outcome: 'planned',
        unfinished: false,
      });
      const back = await registry.call('rollback');
      expect(back.code, back.stderr).to.equal(0);
      expect(back.stdout).to.match(/before the restore of the backup of \S+Z, started at \S+Z\.\n$/);
      expect([await registry.snapshot(), pushed()]).to.deep.equal([changed, ['before', 'after']]);
      const dropped = await json('rollback', '--drop-backups', '--yes', '-o', 'json');
      expect(dropped).to.deep.include({ outcome: 'dropped' });
      expect(dropped['backups']).to.be.an('array').that.is.not.empty;
    });

    it('leaves no copy of a database after a kill before any change, once any next command has run', async () => {
      await backUp();
      const state = (): Promise<string[]> => readdir(registry.at('.oc-mirror-registry'));
      for (const [command, output, step, left] of [
        ['backup', `--output=${file}.again`, 'rename stopped', 'backup'],
        ['restore', file, 'mkdir replacement', 'replacement'],
      ] as const) {
        // The second renewal has nothing to do.
        for (const next of ['certs renew', 'certs renew', 'rollback']) {
          const killed = await registry.call(command, [output], step);
          expect([killed.code, (await state()).includes(left)], killed.stderr).to.deep.equal([-1, true]);
          await registry.call(next);
          expect(await state()).not.to.include(left);
        }
      }
    });

    it('restore resumes after a kill at each kind of step, and can still be rolled back', async () => {
      await backUp();
      const before = await registry.snapshot();
      push('after');
      expect((await registry.call('certs renew', ['--force'])).code).to.equal(0);
      const changed = await registry.snapshot();
      // Before the database is copied, while it is replaced, and among the files.
      for (const step of ['rename journal.json', 'rename quay_sqlite.db', 'rename ssl.cert']) {
        const killed = await registry.call('restore', [file], step);
        expect(killed.code, killed.stderr).to.equal(-1);
        const { code, stderr } = await registry.call('restore', [file]);
        expect([code, await registry.snapshot()], stderr).to.deep.equal([0, before]);
        expect((await registry.call('rollback')).code).to.equal(0);
        expect(await registry.snapshot()).to.deep.equal(changed);
        expect(await readdir(registry.at('.oc-mirror-registry'))).not.to.include('replacement');
      }
    });

    it('puts everything back when the restored registry is not healthy', async () => {
      await backUp();
      push('after');
      const changed = await registry.snapshot();
      registry.host.healthOf = () => (pushed().includes('after') ? healthy : { ...healthy, status: 503 });
      const { code, stderr } = await registry.call('restore', [file]);
      expect([code, stderr.includes('was rolled back')], stderr).to.deep.equal([3, true]);
      expect([await registry.snapshot(), pushed()]).to.deep.equal([changed, ['before', 'after']]);
      expect(await readdir(registry.at('.oc-mirror-registry'))).not.to.include('replacement');
    });

    for (const what of ['damaged', 'missing']) {
      it(`replaces a database that is ${what}, and certificates that are lost`, async () => {
        await backUp();
        const before = await registry.snapshot();
        await rm(database());
        if (what === 'damaged') await writeFile(database(), 'not a database, but longer than that'.repeat(99));
        await rm(registry.at('quay-rootCA/rootCA.key'));
        await rm(registry.at('quay-config/ssl.cert'));
        const { code, stderr } = await registry.call('restore', [file]);
        expect(code, stderr).to.equal(0);
        const digests = (files: Record<string, string>): string[] =>
          Object.values(files).map((line) => line.split(' ')[3] ?? '');
        expect(digests(await registry.snapshot())).to.deep.equal(digests(before));
      });
    }

    it('refuses a restore where podman has no space for containers, before anything stops', async function () {
      await backUp();
      const place = dirname(database());
      await cp(place, join(folder, 'db'), { recursive: true });
      const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=755', 'tmpfs', place]);
      if (mounted.code !== 0) {
        console.error(`SKIPPED, nothing can be mounted here: ${mounted.stderr}`);
        this.skip();
      }
      try {
        await cp(join(folder, 'db'), place, { recursive: true });
        const before = systemctl().length;
        const { code, stderr } = await registry.call('restore', [file]);
        expect([code, stderr.includes('disk-full')], stderr).to.deep.equal([1, true]);
        expect(systemctl().length).to.equal(before);
      } finally {
        await runSuccessfully('umount', [place]);
      }
    });

    describe('refuses, before anything stops, a file', () => {
      let before: Record<string, string>;
      let bytes: Buffer;
      let unpacked: string;
      let manifest: BackupManifest;
      let own: Record<string, Buffer | string>;

      beforeEach(async () => {
        await backUp();
        before = await registry.snapshot();
        bytes = await readFile(file);
        unpacked = join(folder, 'unpacked');
        await mkdir(unpacked);
        await runSuccessfully('tar', ['-xf', file, '-C', unpacked]);
        manifest = JSON.parse(await readFile(join(unpacked, 'manifest.json'), 'utf8')) as BackupManifest;
        own = {};
        for (const { path } of manifest.files) own[path] = await readFile(join(unpacked, path));
      });

      /** Makes each file, and expects a restore to fail with the words. */
      async function expectRefused(
        cases: readonly (readonly [what: string, make: () => Promise<unknown>, words: string])[],
      ): Promise<void> {
        for (const [what, make, words] of cases) {
          await make();
          const { code, stderr } = await registry.call('restore', [file]);
          expect([what, code, stderr.includes(words)], stderr).to.deep.equal([what, 1, true]);
        }
        expect([await registry.snapshot(), systemctl().slice(2)]).to.deep.equal([before, []]);
      }

      it('of another form, with a damaged database, or corrupt', async () => {
        const broken = { ...own, 'database/quay_sqlite.db': 'x'.repeat(5000) };
        const changed = Buffer.from(bytes);
        changed.write('X', 600);
        await expectRefused([
          ['another form', () => writeBackupFile(file, manifest, own, { files: [] }), 'names other files'],
          ['a damaged database', () => writeBackupFile(file, manifest, broken), 'in the backup is damaged'],
          ['a changed byte', () => writeFile(file, changed), 'is corrupt'],
        ]);
      });

      it('that is a folder', async () => {
        await rm(file);
        await mkdir(file);
        const { code, stderr } = await registry.call('restore', [file]);
        expect([code, stderr.includes('is a folder')]).to.deep.equal([2, true]);
      });
    });
  });
});

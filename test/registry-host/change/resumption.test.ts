import { appendFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';

describe('resumeUnfinished', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let folder: string;
  let bundle: TestRegistryBundle;
  let registry: RunningRegistry;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'resumption-'));
    bundle = await makeRegistryBundle(folder);
  });
  after(() => rm(folder, { recursive: true, force: true }));
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(() => registry.stop());

  const systemctl = (...words: string[]): Promise<string> =>
    runSuccessfully(join(registry.fixture.root, 'programs/systemctl'), words);

  /** Changes the database, as clients do. */
  function push(name: string): void {
    using database = new DatabaseSync(join(registry.fixture.root, 'srv/db/quay_sqlite.db'));
    database.prepare('INSERT INTO migration VALUES (?)').run(name);
  }

  /** Runs a command that is killed right after a step. */
  async function kill(step: string, command: string, ...args: string[]): Promise<void> {
    const { code, stderr } = await registry.call(command, args, step);
    expect(code, stderr).to.equal(-1);
  }

  async function succeed(command: string, ...args: string[]): Promise<void> {
    const { code, stderr } = await registry.call(command, args);
    expect(code, stderr).to.equal(0);
  }

  it('stops a registry that the host has started since, before it replaces the database', async () => {
    const backup = join(folder, 'started.tar');
    await succeed('backup', `--output=${backup}`);
    const before = await registry.snapshot();
    await kill('rename quay_sqlite.db', 'restore', backup);
    expect(await readFile(registry.at('.oc-mirror-registry/journal.json'), 'utf8')).to.include('"phase":"replacing"');
    await systemctl('start', 'quay-app.service');
    registry.host.lastRow = 'written at its end';
    await succeed('restore', backup);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('finds all restored files in place once the database is replaced for good', async () => {
    const backup = join(folder, 'replaced.tar');
    await succeed('backup', `--output=${backup}`);
    const before = await registry.snapshot();
    await succeed('certs renew', '--force');
    await kill('rename quay_sqlite.db', 'restore', backup);
    await kill('rename journal.json', 'restore', backup);
    // A restart of the host would start the registry with these.
    expect(await registry.snapshot()).to.include(before);
  });

  it('does not write over a file that was changed since, unless forced', async () => {
    const certificate = registry.at('quay-config/ssl.cert');
    await kill('rename ssl.cert', 'certs renew');
    await appendFile(certificate, '# mine\n');
    const before = await registry.snapshot();
    const { code, stderr } = await registry.call('certs renew');
    expect([code, stderr.includes('ssl.cert changed since the renewal')], stderr).to.deep.equal([1, true]);
    expect(await registry.snapshot()).to.deep.equal(before);
    await succeed('certs renew', '--force');
    expect(await readFile(certificate, 'utf8')).not.to.include('mine');
  });

  for (const next of ['certs renew', 'rollback']) {
    it(`starts Quay if a backup was killed while it was stopped, with ${next} too`, async () => {
      await succeed('certs renew', '--force');
      await kill('systemctl stop quay-app.service', 'backup', `--output=${join(folder, next)}`);
      const { stderr } = await registry.call(next);
      expect(stderr).to.include('an earlier run was interrupted while the registry was stopped: starting it');
      expect((await systemctl('show', 'quay-app.service')).trim()).to.equal('active');
    });
  }

  it('states no time out of service, which it does not know', async () => {
    await kill('systemctl restart quay-app.service', 'upgrade', `--bundle=${bundle.path}`);
    await succeed('upgrade', `--bundle=${bundle.path}`);
    const { stdout } = await registry.call('plan', [`--bundle=${bundle.respun}`, '-o', 'json']);
    expect(JSON.parse(stdout)).to.have.property('forecast').that.does.not.have.property('lastOutage');
  });

  it('keeps the database of the newer Quay if the registry is not healthy', async () => {
    await kill('systemctl restart quay-app.service', 'upgrade', `--bundle=${bundle.path}`);
    push('pushed');
    registry.host.healthOf = (image) => (image === bundle.quay ? { ...healthy, status: 503 } : healthy);
    const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
    expect(code, stderr).to.equal(3);
    using database = new DatabaseSync(registry.at('.oc-mirror-registry/newer-database/quay_sqlite.db'));
    expect(database.prepare("SELECT 1 FROM migration WHERE image = 'pushed'").all()).to.have.length(1);
  });
});

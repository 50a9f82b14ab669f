import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, appendFile, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import {
  mirrorRegistryExecutable,
  startMirrorRegistry,
  type RunningRegistry,
} from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, type RunResult, runSuccessfully } from '../../support/peers.ts';

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

  it('finishes a rollback that had begun, although a file was changed since', async () => {
    const certificate = registry.at('quay-config/ssl.cert');
    const before = await registry.snapshot();
    await succeed('certs renew');
    await kill('before rename ssl.cert', 'rollback');
    await appendFile(certificate, '# mine\n');
    await succeed('rollback');
    expect(await registry.snapshot()).to.deep.equal(before);
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

// Like a terminal at Ctrl-C, or `kill` of a job, these signal a whole process group.
describe('an interruption of all processes of a change', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  let child: ChildProcess | undefined;
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(() => registry.stop());

  /** Runs a command in a process group of its own. */
  async function run(...command: readonly string[]): Promise<RunResult> {
    const { fixture, host } = registry;
    const tools = ['podman', 'systemctl'].map((name) => `--${name}=${join(fixture.root, 'programs', name)}`);
    const args = [...command, `--root=${fixture.root}`, '--health-timeout=5', ...tools];
    child = spawn(process.execPath, [mirrorRegistryExecutable, ...args], {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const [code] = (await once(child, 'close')) as [number | null];
    host.fails = () => false;
    return { code: code ?? -1, stdout, stderr };
  }

  function endGroup(...signals: readonly NodeJS.Signals[]): void {
    for (const signal of signals) process.kill(-(child?.pid ?? 0), signal);
  }

  it('does not reach the programs of a restoration, which completes', async () => {
    const before = await registry.snapshot();
    let restarts = 0;
    registry.host.fails = (call) => {
      if (!call.startsWith('systemctl restart')) return false;
      restarts += 1;
      if (restarts === 2) endGroup('SIGTERM');
      return restarts === 1;
    };
    const { code, stderr } = await run('certs', 'renew');
    expect(code, stderr).to.equal(3);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('is named as the reason of the rollback', async () => {
    let reloads = 0;
    registry.host.fails = (call) => {
      if (call === 'systemctl daemon-reload' && (reloads += 1) === 1) endGroup('SIGTERM');
      return false;
    };
    const { code, stderr } = await run('certs', 'renew');
    expect(code, stderr).to.equal(3);
    expect(stderr).to.include('rolling back the renewal of certificates: it was interrupted');
  });

  for (const [when, signals] of [
    ['during the change', ['SIGTERM', 'SIGINT']],
    ['during its rollback', ['SIGTERM']],
  ] as const) {
    it(`names the unfinished work at the second signal ${when}, and the named command finishes it`, async () => {
      const before = await registry.snapshot();
      registry.host.fails = (call) => {
        if (call.startsWith('systemctl restart')) endGroup(...signals);
        return false;
      };
      const { code, stderr } = await run('certs', 'renew');
      expect(code, stderr).to.equal(130);
      expect(stderr).to.match(/error: the renewal of certificates is unfinished.*\nhint: Run 'rollback'/);
      const finished = await registry.call('rollback');
      expect(finished.code, finished.stderr).to.equal(0);
      expect(await registry.snapshot()).to.deep.equal(before);
    });
  }

  it('does not call a change unfinished whose rollback has ended', async () => {
    const { host } = registry;
    let restarts = 0;
    host.fails = (call) => call.startsWith('systemctl restart') && (restarts += 1) === 1;
    host.healthOf = () => {
      if (restarts === 2) endGroup('SIGTERM', 'SIGINT');
      return healthy;
    };
    const { code, stderr } = await run('certs', 'renew');
    expect([code, stderr.includes('is unfinished')], stderr).to.deep.equal([130, false]);
  });

  it('does not call a change unfinished that has ended', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'interruption-'));
    try {
      const { path, respun } = await makeRegistryBundle(folder);
      expect((await registry.call('upgrade', [`--bundle=${path}`])).code).to.equal(0);
      // The backup of the first upgrade is removed.
      registry.host.fails = (call) => {
        if (call.startsWith('podman rm ')) endGroup('SIGTERM', 'SIGINT');
        return false;
      };
      const { code, stderr } = await run('upgrade', `--bundle=${respun}`, '--keep-backups=1');
      expect([code, stderr.includes('is unfinished')], stderr).to.deep.equal([130, false]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

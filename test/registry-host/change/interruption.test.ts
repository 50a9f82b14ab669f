import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { mirrorRegistryExecutable, startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import type { RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, type RunResult } from '../../support/peers.ts';

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

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect } from 'chai';
import { mirrorRegistryExecutable, startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import type { RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, type RunResult } from '../../support/peers.ts';

// Like a terminal at Ctrl-C, or `kill` of a job, these signal a whole process group.
describe('an interruption of all processes of a change', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(() => registry.stop());

  /** Starts the renewal of certificates in a process group, and calls `at` at each call of podman and systemctl. */
  async function renew(at: (call: string, endGroup: () => void) => boolean): Promise<RunResult> {
    const { fixture, host } = registry;
    const tools = ['podman', 'systemctl'].map((name) => `--${name}=${join(fixture.root, 'programs', name)}`);
    const args = ['certs', 'renew', `--root=${fixture.root}`, '--health-timeout=5', ...tools];
    const child: ChildProcess = spawn(process.execPath, [mirrorRegistryExecutable, ...args], {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    host.fails = (call) => at(call, () => process.kill(-(child.pid ?? 0), 'SIGTERM'));
    const [code] = (await once(child, 'close')) as [number | null];
    host.fails = () => false;
    return { code: code ?? -1, stdout, stderr };
  }

  it('does not reach the programs of a restoration, which completes', async () => {
    const before = await registry.snapshot();
    let restarts = 0;
    const { code, stderr } = await renew((call, endGroup) => {
      if (!call.startsWith('systemctl restart')) return false;
      restarts += 1;
      if (restarts === 2) endGroup();
      return restarts === 1;
    });
    expect(code, stderr).to.equal(3);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('is named as the reason of the rollback', async () => {
    let reloads = 0;
    const { code, stderr } = await renew((call, endGroup) => {
      if (call === 'systemctl daemon-reload' && (reloads += 1) === 1) endGroup();
      return false;
    });
    expect(code, stderr).to.equal(3);
    expect(stderr).to.include('rolling back the renewal of certificates: it was interrupted');
  });

  it('says what is unfinished at the second signal, and the named command finishes it', async () => {
    const before = await registry.snapshot();
    const { code, stderr } = await renew((call, endGroup) => {
      if (call.startsWith('systemctl restart')) endGroup();
      return false;
    });
    expect(code, stderr).to.equal(130);
    expect(stderr).to.match(/error: the renewal of certificates is unfinished.*\nhint: Run 'rollback'/);
    const finished = await registry.call('rollback');
    expect(finished.code, finished.stderr).to.equal(0);
    expect(await registry.snapshot()).to.deep.equal(before);
  });
});

import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('HostCommands.exists', () => {
  let folder: string;
  const { signal } = new AbortController();
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'host-commands-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  const podmanThat = async (script: string): Promise<HostCommands> => {
    const podman = join(folder, 'podman');
    await writeFile(podman, `#!/bin/sh\n${script}\n`);
    await chmod(podman, 0o755);
    return new HostCommands({ podman, systemctl: 'systemctl', environment: process.env, signal }, 'system');
  };

  it('is false for what podman does not have', async () => {
    expect(await (await podmanThat('exit 1')).exists('image', 'a')).to.equal(false);
    const inspecting = await podmanThat(
      'echo "Error: no secret with name or id \\"a\\": no such secret" >&2; exit 125',
    );
    expect(await inspecting.exists('secret', 'a')).to.equal(false);
  });

  it('fails if podman cannot tell', async () => {
    const full = await podmanThat('echo "Error: no space left on device" >&2; exit 125');
    for (const kind of ['image', 'secret'] as const) {
      const { message } = await failureOf(full.exists(kind, 'a'), 'command-failed');
      expect(message).to.include('no space left on device');
    }
  });
});

import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, open, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import type { Host } from '../../../lib/node/machine/host.ts';
import { findOnPath, findProgram, runCommand, runProgram } from '../../../lib/node/machine/programs.ts';
import { makeContext } from '../../support/context.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const host: Host = { root: '/', environment: { PATH: process.env['PATH'] } };

/** Creates a named pipe. Its readers wait until the returned writer writes or closes, or this process ends. */
async function openPipe(path: string): Promise<FileHandle> {
  await runSuccessfully('mkfifo', [path]);
  // A writer alone would wait for a reader.
  return open(path, 'r+');
}

describe('runProgram', () => {
  it('returns the output and the exit code of a program', async () => {
    const result = await runProgram(host, 'sh', ['-c', 'echo out; echo err >&2; exit 3'], makeContext());
    expect(result).to.deep.equal({ code: 3, stdout: 'out\n', stderr: 'err\n' });
  });

  it('gives it the environment of the host and the added variables', async () => {
    const options = { environment: { MORE: 'more' } };
    const { stdout } = await runProgram(
      { root: '/', environment: { ...host.environment, OWN: 'own' } },
      'sh',
      ['-c', 'echo $OWN $MORE $HOME'],
      makeContext(),
      options,
    );
    expect(stdout).to.equal('own more\n');
  });

  it('runs it with the lowest priority if it must be gentle', async () => {
    const { stdout } = await runProgram(host, 'nice', [], makeContext(), { gentle: true });
    expect(stdout).to.equal('19\n');
  });

  it('ends it if the context is interrupted, and waits for it, but not for its children', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'program-'));
    const [go, held] = [await openPipe(join(folder, 'go')), await openPipe(join(folder, 'held'))];
    try {
      const context = makeContext();
      // Both processes read from pipes, so they end with this one too.
      const script = `exec 3<go; trap ': >ending; read -r word <&3; exit' TERM; : >ready; cat held & wait`;
      let settled = false;
      const running = runProgram(host, 'sh', ['-c', `cd '${folder}'; ${script}`], context).finally(
        () => (settled = true),
      );
      const failed = failureOf(running, 'interrupted');
      await until(() => existsSync(join(folder, 'ready')));
      context.interrupt();
      await until(() => existsSync(join(folder, 'ending')));
      expect(settled).to.equal(false);
      await go.write('go\n');
      await failed;
    } finally {
      await Promise.all([go.close(), held.close()]);
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('runs it inside of another root', async function () {
    const outside = await run('chroot', ['/', 'true']);
    if (outside.code !== 0) this.skip();
    // The same file system under another path.
    const { stdout } = await runProgram(
      { ...host, root: '/proc/self/root' },
      'readlink',
      ['/proc/self/root'],
      makeContext(),
    );
    expect(stdout).to.equal('/\n');
  });

  it('names a missing program and the host', async () => {
    const error = await failureOf(runProgram(host, 'no-such-program', [], makeContext()), 'not-found');
    expect(error.message).to.equal('this machine has no no-such-program');
    expect(await findProgram({ root: '/nowhere', environment: {} }, 'sh')).to.equal(undefined);
  });
});

describe('runCommand', () => {
  const options = { environment: host.environment, signal: new AbortController().signal };
  async function* chunks(error?: Error): AsyncGenerator<Buffer> {
    yield Buffer.from('first\n');
    await Promise.resolve();
    if (error) throw error;
  }

  it('gives a program its input, and no input otherwise', async () => {
    expect((await runCommand(['cat'], { ...options, input: chunks() })).stdout).to.equal('first\n');
    expect((await runCommand(['cat'], options)).stdout).to.equal('');
  });

  it('throws the error of its input, for any exit code of the program', async () => {
    const error = new PluginError('digest-mismatch', 'wrong');
    for (const script of ['cat', 'cat; exit 1']) {
      await failureOf(runCommand(['sh', '-c', script], { ...options, input: chunks(error) }), 'digest-mismatch');
    }
  });

  it('gives the exit code of a program that does not read its input', async () => {
    const { code } = await runCommand(['sh', '-c', 'exit 7'], { ...options, input: chunks() });
    expect(code).to.equal(7);
  });
});

describe('findOnPath', () => {
  it('finds files that can be run, as a shell does', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'path-'));
    try {
      await mkdir(join(folder, 'first', 'tool'), { recursive: true });
      await mkdir(join(folder, 'second'));
      await writeFile(join(folder, 'second', 'tool'), '#!/bin/sh\n', { mode: 0o755 });
      const environment = { PATH: `${folder}/first:${folder}/second` };
      expect(await findOnPath('tool', environment)).to.equal(`${folder}/second/tool`);
      expect(await findOnPath('other', environment)).to.equal(undefined);
      expect(await findOnPath('sh', {})).to.equal(undefined);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const executable = fileURLToPath(new URL('../support/program/program.ts', import.meta.url));

interface Outcome {
  code: number | null;
  stdout: string;
  stderr: string;
}

function start(args: readonly string[]): {
  child: ChildProcess;
  outcome: Promise<Outcome>;
  printed: () => Promise<void>;
} {
  const child = spawn(process.execPath, [executable, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const result: Outcome = { code: null, stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (result.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (result.stderr += chunk.toString()));
  const outcome = once(child, 'close').then(([code]) => ({ ...result, code: code as number | null }));
  const printed = async (): Promise<void> => void (await once(child.stdout, 'data'));
  return { child, outcome, printed };
}

describe('runMain', () => {
  it('prints nothing that packages and Node.js warn of, but with -v', async () => {
    expect(await start(['mutter']).outcome).to.deep.equal({ code: 0, stdout: 'done\n', stderr: 'warning: ours\n' });
    const { stdout, stderr } = await start(['mutter', '-v']).outcome;
    expect(stdout).to.equal('done\n');
    expect(stderr.split('\n')).to.have.members([
      'log of a package',
      'warn of a package',
      'error of a package',
      'MaxListenersExceededWarning: too many listeners',
      'warning: ours',
      '',
    ]);
  });

  it('reports the error of a promise that was not awaited as that of a command', async () => {
    const { code, stderr } = await start(['fail', 'alone']).outcome;
    expect(code).to.equal(1);
    expect(stderr).to.match(/^error \([a-z-]+\): nobody waits for this \(a defect/);
  });

  describe('is interrupted', () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      it(`by ${signal}: the command ends, with exit code 130`, async () => {
        const { child, outcome, printed } = start(['fail', 'when-stopped']);
        await printed();
        child.kill(signal);
        expect(await outcome).to.deep.equal({
          code: 130,
          stdout: 'waiting\n',
          stderr: 'error (interrupted): Interrupted.\n',
        });
      });
    }

    it('immediately at a second signal if a command does not end', async () => {
      const { child, outcome, printed } = start(['hang']);
      await printed();
      // Two signals that are sent together may arrive as one.
      const again = setInterval(() => child.kill('SIGINT'), 50);
      const { code } = await outcome;
      clearInterval(again);
      expect(code).to.equal(130);
    });
  });

  describe('writes to a pipe', () => {
    it('every line, however slow the reader', async () => {
      const { code, stdout } = await start(['flood']).outcome;
      expect(code).to.equal(0);
      expect(stdout).to.match(/\nline 99999\n$/);
    });

    it('and is silent when the reader goes away', async () => {
      const { child, outcome, printed } = start(['flood']);
      await printed();
      child.stdout?.destroy();
      expect(await outcome).to.include({ code: 0, stderr: '' });
    });

    it('and no result for a program if the pipe was closed at the start', async function () {
      if (!existsSync('/proc/self/fdinfo/1')) this.skip();
      const line = ['show', 'box', '--version=1'];
      for (const [end, answer] of [
        [['-o', 'json', '>&-'], /^1 error \(not-writable\): the result cannot be written: .* closed\nhint: /],
        [['-o', 'json', '>/dev/null'], /^0 $/],
        [['>&-'], /^0 $/],
      ] as const) {
        const words = [process.execPath, executable, ...line, ...end].join(' ');
        const child = spawn('sh', ['-c', words], { stdio: ['ignore', 'pipe', 'pipe'] });
        let stderr = '';
        child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
        const [code] = (await once(child, 'close')) as [number];
        expect(`${code} ${stderr}`, words).to.match(answer);
      }
    });

    it('and reports once that it cannot write if a disk is full', async function () {
      if (!existsSync('/dev/full')) this.skip();
      const full = openSync('/dev/full', 'w');
      const child = spawn(process.execPath, [executable, 'flood'], { stdio: ['ignore', full, 'pipe'] });
      closeSync(full);
      let stderr = '';
      child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
      expect(await once(child, 'close')).to.deep.equal([1, null]);
      expect(stderr).to.match(/^error \([a-z-]+\): the output cannot be written: ENOSPC.*\nmore: .*\n$/);
    });
  });
});

import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { expect } from 'chai';
import type { Program } from '../../cmd/cli/command.ts';
import { execute } from '../../cmd/execute.ts';
import { PluginError } from '../../lib/errors.ts';
import { executeProgram } from '../support/program/execution.ts';
import { executeSample } from '../support/program/program.ts';

describe('execute', () => {
  it('gives the exit code, and leaves the process alone', async () => {
    const count = () => process.eventNames().map((name) => [name, process.listenerCount(name)]);
    const before = count();
    expect((await executeSample(['show', 'box', '--version=4.20.3'])).code).to.equal(0);
    expect((await executeSample(['fail', 'plainly'])).code).to.equal(1);
    expect((await executeSample(['dance'])).code).to.equal(2);
    expect(count()).to.deep.equal(before);
    expect(process.exitCode).to.equal(undefined);
  });

  it('keeps programs that run at the same time apart', async () => {
    const versions = ['4.19.1', '4.19.2', '4.19.3'];
    const all = await Promise.all(versions.map((version) => executeSample(['show', 'box', `--version=${version}`])));
    expect(all.map(({ stdout }) => (JSON.parse(stdout) as { version: string }).version)).to.deep.equal(versions);
  });

  it('ends with 130 when its signal is aborted', async () => {
    const controller = new AbortController();
    const running = executeSample(['fail', 'when-stopped'], { signal: controller.signal });
    controller.abort(new PluginError('interrupted', 'Interrupted.'));
    const { code, stderr } = await running;
    expect(code).to.equal(130);
    expect(stderr).to.equal('error (interrupted): Interrupted.\n');
  });

  it('reports the first failure if closing fails too', async () => {
    const { code, stderr } = await executeSample(['fail', 'twice']);
    expect(stderr).to.equal(
      'error (unreachable): The registry r.test does not answer.\nmore: oc sample explain unreachable\n',
    );
    expect(code).to.equal(1);
  });

  it('ends immediately after an unexpected error beside the command', async () => {
    const running = executeSample(['hang'], { broken: AbortSignal.abort(new TypeError('nobody waits for this')) });
    expect((await running).stderr).to.match(/^error \([a-z-]+\): nobody waits for this \(a defect/);
  });

  it('ends other operations of a command that failed', async () => {
    let signal: AbortSignal | undefined;
    const load = () =>
      Promise.resolve({
        command: {
          ...{ options: {}, examples: [] },
          run: (_: unknown, { context }: { context: { signal: AbortSignal } }) => {
            signal = context.signal;
            return Promise.reject(new PluginError('unreachable', 'No answer.'));
          },
        },
      });
    const program: Program = { name: 'oc other', describe: '', commands: [{ usage: 'go', describe: '', load }] };
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const io = { stdout, stderr, environment: {}, executable: 'other', signal: new AbortController().signal };
    expect(await execute(program, ['go'], io)).to.equal(1);
    expect(signal?.aborted).to.equal(true);
  });

  it('says that the current folder is gone', async () => {
    const here = process.cwd();
    const folder = await mkdtemp(join(tmpdir(), 'gone-'));
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const io = { stdout, stderr, environment: {}, executable: 'other', signal: new AbortController().signal };
    process.chdir(folder);
    try {
      await rm(folder, { recursive: true });
      expect(await execute({ name: 'oc other', describe: '', commands: [] }, ['--help'], io)).to.equal(1);
    } finally {
      process.chdir(here);
    }
    expect(String(stderr.read())).to.match(/^error \([a-z-]+\): The current folder does not exist any more\.\nhint: /);
  });
});

describe('executeProgram', () => {
  it('runs in the folder that it is given, and returns from it, however many run at a time', async () => {
    const here = process.cwd();
    const folders = await Promise.all(['a', 'b'].map((name) => mkdtemp(join(tmpdir(), `${name}-`))));
    try {
      const runs = [...folders, ...folders].map((cwd) =>
        executeProgram('oc-adm_upgrade_bundle', ['inspect', 'none.tar'], { cwd }),
      );
      for (const { code, stderr } of await Promise.all(runs)) {
        expect(code).to.equal(1);
        expect(stderr).to.include('none.tar');
      }
      expect(await realpath(process.cwd())).to.equal(await realpath(here));
    } finally {
      for (const folder of folders) await rm(folder, { recursive: true });
    }
  });
});

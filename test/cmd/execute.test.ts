import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Command, Program } from '../../cmd/cli/command.ts';
import { execute, type ProgramIo } from '../../cmd/execute.ts';
import { PluginError } from '../../lib/errors.ts';
import { executeProgram, type Execution } from '../support/program/execution.ts';
import { executeSample } from '../support/program/program.ts';

/** Runs the command `go` of a program. */
async function executeCommand(
  command: Partial<Command>,
  io: Partial<ProgramIo> = {},
  ...args: string[]
): Promise<Execution> {
  const load = () =>
    Promise.resolve({ command: { options: {}, examples: [], run: () => Promise.resolve(), ...command } });
  const program: Program = { name: 'oc other', describe: '', commands: [{ usage: 'go', describe: '', load }] };
  const [stdout, stderr] = [new Screen(), new Screen()];
  const { signal } = new AbortController();
  const all = { stdout, stderr, environment: { TERM: 'xterm' }, executable: 'other', signal, ...io };
  const code = await execute(program, ['go', ...args], all);
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** A stream that records its output, slowly, and has the properties of a terminal. */
class Screen extends Writable {
  text = '';
  readonly isTTY: boolean;

  constructor(isTTY = false) {
    super();
    this.isTTY = isTTY;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    setTimeout(() => {
      this.text += chunk.toString();
      done();
    }, 1);
  }

  cursorTo(): boolean {
    return true;
  }

  clearLine(): boolean {
    return true;
  }
}

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
    const breakage = new AbortController();
    let isFinished = false;
    const { code, stderr } = await executeCommand(
      {
        run: async (_, { context }) => {
          breakage.abort(new TypeError('nobody waits for this'));
          await sleep(5000, undefined, { signal: context.signal });
          isFinished = true;
        },
      },
      { broken: breakage.signal },
    );
    expect([code, isFinished]).to.deep.equal([1, false]);
    expect((await executeCommand({}, { broken: AbortSignal.abort(new TypeError('before')) })).code).to.equal(1);
    expect(stderr).to.match(/^error \([a-z-]+\): nobody waits for this \(a defect/);
  });

  it('ends other operations of a command that failed', async () => {
    let signal: AbortSignal | undefined;
    const { code } = await executeCommand({
      run: (_, { context }) => {
        signal = context.signal;
        return Promise.reject(new PluginError('unreachable', 'No answer.'));
      },
    });
    expect(code).to.equal(1);
    expect(signal?.aborted).to.equal(true);
  });

  it('reads other spellings of help, and completes a line', async () => {
    expect((await executeCommand({}, {}, 'help')).stdout).to.include('Usage:\n  oc other go [options]\n');
    const [stdout, stderr] = [new Screen(), new Screen()];
    const io = { stdout, stderr, environment: {}, executable: 'other', signal: new AbortController().signal };
    const commands = [{ usage: 'go', describe: 'Move', load: () => Promise.reject(new Error('not needed')) }];
    expect(await execute({ name: 'oc other', describe: '', commands }, ['__complete', 'g'], io)).to.equal(0);
    expect([stdout.text, stderr.text]).to.deep.equal(['go\tMove\n:4\n', '']);
  });

  it('names the help and the options of the command that failed', async () => {
    const command: Partial<Command> = {
      options: { oil: { type: 'boolean', describe: 'Use oil' } },
      run: () => Promise.reject(new PluginError('tls', 'rust', { settings: ['oil', 'paint'] })),
    };
    expect((await executeCommand(command)).stderr).to.equal(
      'error (tls): rust\ntry: --oil\nmore: oc other explain tls\n',
    );
    const { code, stderr } = await executeCommand(command, {}, '--water');
    expect(code).to.equal(2);
    expect(stderr).to.include("'oc other go --help' lists its options.");
  });

  it('tells its caller the running command and the unfinished work, and takes its exit code', async () => {
    const events: unknown[] = [];
    const command: Partial<Command> = {
      resumes: 'bytes',
      run: async (_, { context, stdin, setExitCode }) => {
        for await (const chunk of stdin) events.push(chunk);
        context.onUnfinished?.(new PluginError('interrupted', 'It is unfinished.', { hint: 'Run it again.' }));
        context.onUnfinished?.(undefined);
        setExitCode(7);
      },
    };
    const onCommand = ({ resumes }: Command): void => void events.push(resumes);
    const onUnfinished = (message: string | undefined): void => void events.push(message);
    expect(await executeCommand(command, { onCommand, onUnfinished })).to.deep.equal({
      code: 7,
      stdout: '',
      stderr: '',
    });
    expect(events).to.deep.equal(['bytes', 'error: It is unfinished.\nhint: Run it again.', undefined]);
  });

  it('shows messages as the options and the kind of the command demand, those of packages for --verbose', async () => {
    let hear: (text: string) => void = () => undefined;
    const listenToPackages = (listener: (text: string) => void): void => void (hear = listener);
    const run: Command['run'] = (_, { context }) => {
      context.log('info', 'ours');
      hear('of a package');
      return Promise.resolve();
    };
    const messagesOf = async (command: Partial<Command>, ...args: string[]): Promise<string> =>
      (await executeCommand({ run, ...command }, { listenToPackages }, ...args)).stderr;
    expect(await messagesOf({})).to.equal('ours\n');
    expect(await messagesOf({}, '--verbose')).to.equal('ours\nof a package\n');
    expect(await messagesOf({}, '--quiet')).to.equal('');
    expect(await messagesOf({ isService: true })).to.match(/^\S+Z INFO  ours\n$/);
  });

  it('ends the live line of a transfer, and says how much of an interrupted one is kept', async () => {
    const controller = new AbortController();
    const command: Partial<Command> = {
      resumes: 'bytes',
      run: (_, { context }) => {
        context.onEvent({ kind: 'plan', images: 1, blobs: 1, bytes: 1000, present: 500 });
        context.signal.throwIfAborted();
        return Promise.resolve();
      },
    };
    const showCursor = '\x1b[?25h';
    const stderr = new Screen(true);
    expect((await executeCommand(command, { stderr })).code).to.equal(0);
    expect(stderr.text.endsWith(showCursor)).to.equal(true);
    controller.abort(new PluginError('interrupted', 'Interrupted.'));
    const again = new Screen(true);
    expect((await executeCommand(command, { stderr: again, signal: controller.signal })).code).to.equal(130);
    expect(again.text)
      .to.include(showCursor)
      .and.to.match(/500.* is kept\. To resume: oc other go\n$/);
  });

  it('ends when slow readers have everything, and fails if the output cannot be written', async () => {
    const run: Command['run'] = (_, { terminal }) => {
      for (const line of ['a', 'b', 'c']) terminal.print(line);
      return Promise.resolve();
    };
    expect(await executeCommand({ run })).to.deep.equal({ code: 0, stdout: 'a\nb\nc\n', stderr: '' });
    const breakage = new AbortController();
    const full = new Writable({
      write: (_chunk, _encoding, done) => done(new Error('no space')),
      // As a pipe does, which closes first.
      destroy: (cause, done) => void setImmediate(done, cause),
    });
    full.on('error', (cause) => breakage.abort(new PluginError('not-writable', cause.message)));
    const { code, stderr } = await executeCommand({ run }, { stdout: full, broken: breakage.signal });
    expect([code, stderr.split('\n')[0]]).to.deep.equal([1, 'error (not-writable): no space']);
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
    expect(String(stderr.read())).to.match(/^error \([a-z-]+\): the current folder does not exist any more\nhint: /);
  });
});

describe('the password of a URL', () => {
  const url = 'http://bob:SECRET@127.0.0.1:1';
  const lines: readonly (readonly [program: string, ...args: string[]])[] = [
    ['oc-adm_upgrade_bundle', 'status', `--server=${url}`],
    ['oc-adm_upgrade_bundle', 'status', '--server=bob:SECRET@127.0.0.1:1'],
    ['oc-adm_upgrade_bundle', 'doctor', `--server=${url}`, '-o', 'json'],
    ['oc-adm_upgrade_bundle', 'verify', url],
    ['oc-adm_upgrade_bundle', 'create', '--version=4.20.3', `--graph-url=${url}/g`, '--print-config'],
    ['oc-adm_upgrade_bundle', 'create', '--version=4.20.3', `--signature-store=${url}/SEC/RET@x`, '--print-config'],
    ['oc-adm_upgrade_bundle', 'dance', url],
    [
      'oc-adm_release_mirror_config',
      'list',
      'versions',
      '--channel=stable-4.20',
      `--graph-url=${url}`,
      '--retry-timeout=1s',
    ],
    ['oc-adm_release_mirror_config', '4.20.3', `--to=${url}/a`, '--retry-timeout=1s'],
  ];
  for (const [program, ...args] of lines)
    it(`is not printed by ${args.join(' ').replaceAll('SECRET', '…')}`, async () => {
      const env = { HOME: '/nonexistent', HTTP_PROXY: 'http://p:SECRET@127.0.0.1:2' };
      const { stdout, stderr } = await executeProgram(program, [...args, '-v'], { env });
      expect(`${stdout}${stderr}`).to.not.equal('').and.to.not.include('SECRET');
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

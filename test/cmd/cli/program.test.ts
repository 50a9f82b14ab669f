import { expect } from 'chai';
import { defineCommand } from '../../../cmd/cli/command.ts';
import { optionsCommand } from '../../../cmd/cli/commands/commonCommands.ts';
import { formatHelp } from '../../../cmd/cli/help.ts';
import { clusterOptions, outputOption } from '../../../cmd/cli/options.ts';
import { executeSample, sample } from '../../support/program/program.ts';

/** Runs the program in this process. */
const run = (...args: string[]): ReturnType<typeof executeSample> => executeSample(args);

describe('runProgram', () => {
  describe('understands the command line', () => {
    it('gives a command its arguments by the names and types of its records', async () => {
      const args = [
        'box',
        '--version=4.10',
        '--extra-image=a',
        '--extra-image',
        'b',
        '-o',
        'json',
        '-a',
        'package.json',
      ];
      const { code, stdout } = await run('show', ...args);
      expect(code).to.equal(0);
      expect(JSON.parse(stdout)).to.deep.equal({
        thing: 'box',
        version: '4.10',
        extraImage: ['a', 'b'],
        maxPerRegistry: 6,
        insecure: false,
        output: 'json',
        pullSecret: 'package.json',
      });
    });

    const wrong: readonly (readonly [what: string, args: readonly string[], message: RegExp])[] = [
      ['an unknown command, with one that is like it', ['shoe'], /unknown command “shoe”\nhint: Did you mean show\?/],
      ['an unknown command that is like none', ['dance'], /unknown command “dance”\nhint: 'oc sample --help'/],
      [
        'an unknown option',
        ['show', 'box', '--version=4', '--bogus'],
        /unknown option --bogus\nhint: 'oc sample show --help'/,
      ],
      ['an unknown option, with one that is like it', ['show', 'box', '--insecur'], /Did you mean --insecure\?/],
      ['an unknown option of one letter', ['show', 'box', '-z'], /unknown option -z/],
      ['an unknown option without a command', ['--bogus'], /unknown option --bogus/],
      ['a missing option', ['show', 'box'], /--version is missing/],
      ['a missing positional argument', ['show', '--version=4'], /<thing> is missing\nhint: 'oc sample show --help'/],
      ['one positional argument too many', ['show', 'box', 'more', '--version=4'], /“more” is one argument too many/],
      ['an option without its value', ['show', 'box', '--version='], /--version needs a value/],
      ['a text switched off', ['show', 'box', '--no-version'], /--version needs a value/],
      ['an option given twice', ['show', 'box', '--version=4', '--version=5'], /--version is given more than once/],
      [
        'a number out of range',
        ['show', 'box', '--version=4', '--max-per-registry=0'],
        /must be a whole number from 1 to 64/,
      ],
      [
        'a number that is none',
        ['show', 'box', '--version=4', '--max-per-registry=x'],
        /must be a whole number from 1 to 64/,
      ],
      [
        'a part of a number',
        ['show', 'box', '--version=4', '--max-per-registry=1.5'],
        /must be a whole number from 1 to 64/,
      ],
      ['a number without its value', ['show', 'box', '--version=4', '--max-per-registry'], /--max-per-registry needs/],
      ['a repeatable option without its value', ['show', 'box', '--extra-image', '--version=4'], /--extra-image needs/],
      [
        'a repeatable option at the end',
        ['show', 'box', '--version=4', '--extra-image'],
        /--extra-image needs a value/,
      ],
      [
        'a repeatable option with an empty value',
        ['show', 'box', '--version=4', '--extra-image', ''],
        /--extra-image needs/,
      ],
      ['a switch with a value', ['show', 'box', '--version=4', '--insecure=maybe'], /--insecure cannot be “maybe”/],
      ['a value that is no choice', ['show', 'box', '--version=4', '-o', 'xml'], /--output .*“xml”.* json, yaml/],
      ['a value that cannot be right', ['show', 'box', '--version=4', '--extra-image=a//b'], /--extra-image: “a\/\/b”/],
    ];
    for (const [what, args, message] of wrong) {
      it(`refuses ${what} with exit code 2 and names the help`, async () => {
        const { code, stdout, stderr } = await run(...args);
        expect(code).to.equal(2);
        expect(stdout).to.equal('');
        expect(stderr)
          .to.match(/^error \([a-z-]+\): .*\nhint: .*\n$/)
          .and.to.match(message);
      });
    }

    it('takes the name that an option had before, and does not show it', async () => {
      const { stdout } = await run('show', 'box', '--version=4', '--format=yaml');
      expect(JSON.parse(stdout)).to.include({ output: 'yaml' });
      expect((await run('show', 'box', '--version=4', '--format=yaml', '-o', 'json')).stderr).to.match(
        /--output is given more than once/,
      );
      expect((await run('show', '--help')).stdout).not.to.include('--format');
    });

    it('takes a value that is said to a switch', async () => {
      for (const [word, insecure] of [
        ['--insecure=true', true],
        ['--insecure=false', false],
        ['--no-insecure', false],
      ] as const) {
        const { stdout } = await run('show', 'box', '--version=4', word);
        expect(JSON.parse(stdout)).to.include({ insecure });
      }
    });

    it('has a version for itself, and leaves that of a command to the command', async () => {
      for (const args of [
        ['show', 'box', '--version=4.20.3'],
        ['--version=4.20.3', 'show', 'box'],
        ['--version', '4.20.3', 'show', 'box'],
      ]) {
        const { code, stdout } = await run(...args);
        expect(code).to.equal(0);
        expect(JSON.parse(stdout)).to.include({ version: '4.20.3' });
      }
    });
  });

  it('prints the help that formatHelp gives, and its version, on stdout', async () => {
    const [program, command, short, version] = await Promise.all([
      run('--help'),
      run('show', '--help'),
      run('-h'),
      run('--version'),
    ]);
    expect(program).to.deep.equal({ code: 0, stdout: `${await formatHelp(sample)}\n`, stderr: '' });
    expect(command).to.deep.equal({ code: 0, stdout: `${await formatHelp(sample, sample.commands[0])}\n`, stderr: '' });
    expect(short.stdout).to.equal(program.stdout);
    expect(await run('help')).to.deep.equal(program);
    expect(await run()).to.deep.equal(program);
    expect(await run('-v')).to.deep.equal(program);
    expect(await run('help', 'show')).to.deep.equal(command);
    expect(await run('show', 'help')).to.deep.equal(command);
    expect(version).to.include({ code: 0, stderr: '' });
    expect(version.stdout).to.match(/^\d+\.\d+\.\d+\n$/);
  });

  it('wraps the last line of the help of a program', async () => {
    const lines = (await formatHelp(sample, undefined, { width: 40 })).trimEnd().split('\n');
    expect(lines.slice(-3).join(' ')).to.contain('for more information about a command.');
    for (const line of lines.slice(-2)) expect(line.length).to.be.at.most(40);
  });

  const movingCommand = defineCommand({
    details: 'More.',
    options: {
      ...outputOption(),
      'extra-image': { type: 'string', repeatable: true, required: true, describe: `An image, ${'long '.repeat(20)}` },
      timeout: { type: 'number', default: 30, describe: 'Seconds to wait' },
      ...clusterOptions,
    } as const,
    examples: [['x', 'Do it']],
    run: () => Promise.resolve(),
  });
  const load = () => Promise.resolve({ command: movingCommand });
  const moving = {
    name: 'oc other',
    describe: 'Do things.',
    commands: [{ usage: 'go <where>', describe: 'Go there', group: 'Moves:', load }, optionsCommand],
  };

  it('shows the help of a program with its commands in groups', async () => {
    expect(await formatHelp(moving)).to.equal(
      [
        'Do things.',
        '',
        'Usage:',
        '  oc other <command> [options]',
        '',
        'Moves:',
        '  go       Go there',
        '',
        'For the shell:',
        '  options  List the options that choose the cluster',
        '',
        'General:',
        '      --version            Print the version of this program',
        '  -v, --verbose            Print every request, and the full cause of an error',
        '  -q, --quiet              Print only results, warnings and errors',
        '      --color string       When to use colors; also --color and --no-color (auto, always, never)',
        '                           (default: auto)',
        '      --log-format string  Format of messages on stderr (text, json) (default: text)',
        '  -h, --help               Print this help',
        '',
        'Use "oc other <command> --help" for more information about a command.',
      ].join('\n'),
    );
  });

  it('shows the help of a command with its values, and one line for the options of the cluster', async () => {
    const help = await formatHelp(moving, moving.commands[0], { width: 80 });
    expect(help).to.match(
      /^Go there\.\n\nMore\.\n\nUsage:\n {2}oc other go <where> \[options\]\n\nExamples:\n {2}# Do it\n/,
    );
    expect(help).to.include('\n  -o, --output string       Output format (json, yaml)\n');
    expect(help).to.match(/\n {6}--extra-image string {2}An image, (long\s+)+\(required\) \(repeatable\)\n/);
    expect(help).to.include('\n      --timeout int         Seconds to wait (default: 30)\n');
    expect(help).to.match(/\n\nUse "oc other options" for a list of options\s[\w\s]+, such as\s--kubeconfig\.\n\n/);
    expect(help).not.to.include('--kubeconfig ');
    for (const line of help.split('\n')) expect(line).to.have.length.below(100);
  });

  describe('shows an error', () => {
    it('of the command line as JSON too, if the messages are', async () => {
      for (const line of [
        ['--log-format=json', 'shwo'],
        ['show', '--log-format', 'json', '--unknown'],
      ]) {
        const { code, stderr } = await run(...line);
        expect(code).to.equal(2);
        expect(JSON.parse(stderr)).to.include({ level: 'error', code: 'usage' });
      }
    });

    it('with its message and hint, and exit code 1', async () => {
      expect(await run('fail', 'plainly')).to.deep.equal({
        code: 1,
        stdout: '',
        stderr:
          'error (unreachable): The registry r.test does not answer.\nhint: Check the network.\nmore: oc ' +
          'sample explain unreachable\n',
      });
    });

    it('with its cause for -v', async () => {
      expect((await run('fail', 'plainly', '-v')).stderr).to.match(
        /\nmore: oc sample explain unreachable\ncaused by: ECONNREFUSED 192\.0\.2\.1\n$/,
      );
    });

    it('of its own without a stack trace, except for -v', async () => {
      const [plain, verbose] = await Promise.all([run('fail', 'badly'), run('fail', 'badly', '-v')]);
      expect(plain.code).to.equal(1);
      expect(plain.stderr).to.match(/^error \([a-z-]+\): .*\(a defect of this program\)\nhint: .*\n$/);
      expect(verbose.stderr).to.match(/\n {4}at /);
    });
  });
});

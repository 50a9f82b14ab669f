import { setImmediate } from 'node:timers/promises';
import type { Argv, Options } from 'yargs';
import manifest from '../package.json' with { type: 'json' };
import type { Context } from '../lib/context.ts';
import { PluginError } from '../lib/errors.ts';
import { readArguments } from './arguments.ts';
import {
  callOf,
  defaultName,
  defaultOf,
  nameOf,
  usageOf,
  type Command,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from './command.ts';
import { showFailure, withPointer } from './failure.ts';
import { commonOptions } from './commonOptions.ts';
import { findSimilar } from './similar.ts';
import { Terminal, type OutputStream } from './terminal.ts';
import { versionText } from './version.ts';

/** The word that makes a program tell a shell what words may follow, as it does in programs made with cobra. */
export const completionWord = '__complete';
/** How wide a help text is where it does not go to a terminal, in columns. */
const defaultWidth = 100;

/** The headlines of a help text, in their order. */
const optionGroups = [
  'Positionals:',
  'Options:',
  'Destination:',
  'Configuration:',
  'Registries:',
  'Trust:',
  'Cluster:',
  'Certificates:',
  'Host:',
];

/** What a program is given from outside, so that it can run in any process. */
export interface ProgramIo {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly environment: NodeJS.ProcessEnv;
  /** The path that the program was started by. */
  readonly executable: string;
  /** When progress is first told where stderr is no terminal, in milliseconds. */
  readonly firstProgress?: number;
  /** Aborted to interrupt the command, which then cleans up and ends. */
  readonly signal: AbortSignal;
  /** Aborted with an error that ends the program at once, whatever its command does. */
  readonly broken?: AbortSignal;
  /** Has a listener told of what packages and Node.js itself would print. */
  readonly listenToPackages?: (listener: (text: string) => void) => void;
}

/**
 * Runs a program to its end: parses the command line, runs the command that it names, and shows errors. Returns the exit code: 0 (done),
 * 1 (failed), 2 (wrong usage), 130 (interrupted), or that of the command. Reads and changes nothing of the process. Never throws.
 */
export async function execute(program: Program, argv: readonly string[], io: ProgramIo): Promise<number> {
  const { stdout, stderr, environment, executable, firstProgress } = io;
  if (argv[0] === completionWord) {
    const { answerCompletion } = await import('./completion/answer.ts');
    stdout.write(await answerCompletion(program, argv.slice(1), environment));
    await drain(stdout);
    return 0;
  }
  const ended = new AbortController();
  const signal = AbortSignal.any([io.signal, ended.signal]);
  const streams = { stdout, stderr, environment, ...(firstProgress && { firstProgress }) };
  let terminal = await Terminal.open(streams);
  io.listenToPackages?.((text) => void terminal.log('debug', text));
  let exitCode = 0;
  const run: Run = async (command, args) => {
    const [quiet, verbose] = [args['quiet'] === true, args['verbose'] === true];
    terminal = await Terminal.open({ ...streams, quiet, verbose });
    const { log, transfer } = terminal;
    const context: Context = { signal, log, onEvent: transfer('Transferring') };
    const setExitCode = (code: number): void => void (exitCode = code);
    await command.run(args, { context, terminal, environment, executable, setExitCode });
  };
  const broken = failureOf(io.broken);
  try {
    requireNode();
    const text = await Promise.race([parse(program, respell(argv, program), run, widthOf(stdout)), broken]);
    if (text !== '') terminal.print(text);
    terminal.close();
    await Promise.race([drain(stdout, stderr), broken]);
  } catch (error) {
    terminal.close();
    exitCode = showFailure(withPointer(error, program, argv), terminal, io.signal);
  }
  // Ends what may still be under way beside the operation that failed.
  ended.abort();
  await drain(stdout, stderr);
  return exitCode;
}

/** Waits until the streams have passed on what was written: an exit would cut off what a slow reader has not taken yet. */
async function drain(...streams: readonly OutputStream[]): Promise<void> {
  await Promise.all(streams.map((stream) => new Promise((resolve) => stream.write('', resolve))));
  // A stream tells its writer that it failed before it tells its listeners.
  await setImmediate();
}

/** Rejects when the signal is aborted, with its reason. */
function failureOf(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    const fail = (): void => void reject(signal?.reason as Error);
    if (signal?.aborted) fail();
    else signal?.addEventListener('abort', fail);
  });
}

function widthOf({ isTTY, columns = 100 }: OutputStream): number {
  return isTTY === true ? Math.min(120, columns) : defaultWidth;
}

/** The words of a command line as the parser needs them: `help create` is `create --help`. */
function respell(argv: readonly string[], { spellings, commands }: Program): string[] {
  const words = argv[0] === 'help' ? [...argv.slice(1), '--help'] : argv;
  const command = commands.find((entry) => nameOf(entry) === words[0]);
  const known: Readonly<Record<string, string>> = { ...spellings, ...command?.spellings };
  return words.map((word) => known[word] ?? word);
}

/** Refuses a Node.js that lacks what the library needs, before something fails without saying why. */
function requireNode(): void {
  const least = /\d+/.exec(manifest.engines.node)?.[0] ?? '0';
  if (Number.parseInt(process.versions.node, 10) < Number(least)) {
    throw new PluginError(
      'usage',
      `This is Node.js ${process.versions.node}, and version ${least} or newer is needed.`,
      {
        hint: `Put a newer 'node' first on the path.`,
      },
    );
  }
}

/** The help of a program, or of one of its commands, as it is printed. */
export async function helpOf(program: Program, entry?: CommandEntry): Promise<string> {
  const words = entry === undefined || entry === defaultOf(program) ? ['--help'] : [nameOf(entry), '--help'];
  return parse(program, words, async () => {});
}

/** Reads a command line as a program does, without doing what it says. Throws `usage` where it is not understood. */
export async function checkLine(program: Program, words: readonly string[]): Promise<void> {
  await parse(program, respell(words, program), async () => {});
}

type Run = (command: Command, args: Record<string, unknown>) => Promise<void>;

/** Runs what the words name, and gives what they ask to be printed instead: a help or a version. */
async function parse(
  program: Program,
  words: readonly string[],
  run: Run,
  width: number = defaultWidth,
): Promise<string> {
  let examples = '';
  const parser = await createParser(program, words, run, width, (text) => (examples = text));
  let printed = '';
  await parser.parseAsync(words, {}, (_error, _args, output) => {
    printed = output;
  });
  return printed === '' || printed === versionText ? printed : printed + examples;
}

type Note = (examples: string) => void;

async function createParser(
  program: Program,
  words: readonly string[],
  run: Run,
  width: number,
  note: Note,
): Promise<Argv> {
  const parser = (await configure(program, words, width)).epilogue(`'$0 <command> --help' tells all about a command.`);
  const alone = defaultOf(program);
  if (alone === undefined) {
    parser.usage(`${program.describe}\n\nUsage: ${program.name} <command> [options]`);
    // Hidden, and in place of any word that is no command.
    parser.command(defaultName, false, addVersion, async ({ _: [word], ...values }) => {
      if (word !== undefined) throw unknownCommand(String(word), program);
      await readArguments({ words, values, rest: [] }, { options: {} });
      throw new PluginError('usage', 'a command is missing');
    });
  }
  for (const entry of program.commands) {
    // Only the help of the program itself cannot wait for a command to be loaded: it has that of the default in it.
    const loaded: { command?: Command } = entry === alone ? await entry.load() : {};
    if (loaded.command) {
      parser.usage(formatUsage(program, entry, loaded.command));
      note(formatExamples(program, entry, loaded.command));
    }
    parser.command(
      entry.usage,
      entry.describe,
      (inner) =>
        loaded.command
          ? describeCommand(addVersion(inner), program, entry, loaded.command)
          : entry.load().then(({ command }) => {
              note(formatExamples(program, entry, command));
              return describeCommand(inner, program, entry, (loaded.command = command));
            }),
      async ({ _: rest, ...values }) => {
        if (loaded.command === undefined) return;
        const line = { words, values, rest: entry === alone ? rest : rest.slice(1) };
        await run(loaded.command, await readArguments(line, loaded.command));
      },
    );
  }
  return parser;
}

async function configure(program: Program, words: readonly string[], width: number): Promise<Argv> {
  // Not needed to complete words, which happens at every key: to load it takes as long as all else together.
  const { default: yargs } = await import('yargs');
  return (
    yargs()
      .scriptName(program.name)
      .locale('en')
      .wrap(width)
      .parserConfiguration({ 'greedy-arrays': false, 'dot-notation': false })
      .exitProcess(false)
      .showHelpOnFail(false)
      // What a command is for is checked by readArguments; the parser itself misses positional arguments only.
      .fail((_message: string | null, error: Error | null) => {
        throw error ?? missingArgument(program, words);
      })
      // In a command, it may be another version: `create --version=4.12.4`.
      .version(false)
      .options(toYargs(commonOptions))
      .alias('help', 'h')
      .group('help', 'General:')
  );
}

function missingArgument(program: Program, words: readonly string[]): PluginError {
  const entry = program.commands.find((each) => words.includes(nameOf(each)));
  const [, argument = 'an argument'] = entry?.usage.split(' ') ?? [];
  return new PluginError('usage', `${argument} is missing`, {
    hint: entry && `Usage: ${usageOf(program, entry)} [options]`,
  });
}

function addVersion(parser: Argv): Argv {
  return parser.version(versionText).group('version', 'General:');
}

function unknownCommand(word: string, program: Program): PluginError {
  const similar = findSimilar(word, program.commands.map(nameOf));
  return new PluginError('usage', `there is no command “${word}”`, { hint: similar && `Did you mean ${similar}?` });
}

function formatUsage(program: Program, entry: CommandEntry, { details }: Command): string {
  const paragraphs = [`${entry.describe}.`, details, `Usage: ${usageOf(program, entry)} [options]`];
  return paragraphs.filter((paragraph) => paragraph !== undefined).join('\n\n');
}

function describeCommand(parser: Argv, program: Program, entry: CommandEntry, command: Command): Argv {
  for (const group of optionGroups) parser.group([], group);
  // What is said of the program itself is there already.
  if (entry !== defaultOf(program)) parser.usage(formatUsage(program, entry, command));
  for (const [name, positional] of Object.entries(command.positionals ?? {})) {
    parser.positional(name, { type: positional.type, describe: phraseOf(positional) });
  }
  return parser.options(toYargs(command.options));
}

/** Below the help, each in a line of its own, however long: what the parser breaks into lines cannot be copied. */
function formatExamples(program: Program, entry: CommandEntry, { examples }: Command): string {
  const lines = examples.map(([args, what]) => `  ${what}:\n    ${callOf(program, entry)} ${args}`.trimEnd());
  return lines.length === 0 ? '' : `\n\nExamples:\n${lines.join('\n')}`;
}

function toYargs(options: OptionRecord): Record<string, Options> {
  return Object.fromEntries(Object.entries(options).map(([name, option]) => [name, toYargsOption(option)]));
}

function toYargsOption(option: Option): Options {
  const { type, alias, repeatable, required, group = 'Options:' } = option;
  return {
    describe: phraseOf(option, ...(required ? ['required'] : [])),
    ...(repeatable ? { array: true, string: true } : { type }),
    ...(alias === undefined ? {} : { alias }),
    ...(option.default === undefined ? {} : { default: option.default }),
    group,
  };
}

function phraseOf({ describe, choices = [] }: Option, ...more: readonly string[]): string {
  const notes = [...choices, ...more];
  return notes.length === 0 ? describe : `${describe} (${notes.join(', ')})`;
}

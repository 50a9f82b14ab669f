import type { Argv, Options } from 'yargs';
import { PluginError } from '../../lib/errors.ts';
import { readArguments } from './arguments.ts';
import {
  callOf,
  defaultName,
  defaultOf,
  commandNameOf,
  usageOf,
  type Command,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from './command.ts';
import { commonOptions } from './commonOptions.ts';
import { findSimilar } from './similar.ts';
import { versionText } from './version.ts';

/** How wide a help text is if it does not go to a terminal, in columns. */
export const defaultWidth = 100;

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

/** The words of a command line as the parser needs them: `help create` is `create --help`. */
export function respell(argv: readonly string[], { spellings, commands }: Program): string[] {
  const words = argv[0] === 'help' ? [...argv.slice(1), '--help'] : argv;
  const command = commands.find((entry) => commandNameOf(entry) === words[0]);
  const known: Readonly<Record<string, string>> = { ...spellings, ...command?.spellings };
  return words.map((word) => known[word] ?? word);
}

/** The help of a program, or of one of its commands, as it is printed. */
export async function helpOf(program: Program, entry?: CommandEntry): Promise<string> {
  const words = entry === undefined || entry === defaultOf(program) ? ['--help'] : [commandNameOf(entry), '--help'];
  return parse(program, words, async () => {});
}

/** Reads a command line as a program does, without doing what it says. Throws `usage` where it is not understood. */
export async function checkLine(program: Program, words: readonly string[]): Promise<void> {
  await parse(program, respell(words, program), async () => {});
}

/** Runs a command with the arguments that were read. */
export type Run = (command: Command, args: Record<string, unknown>) => Promise<void>;

/** Runs what the words name, and gives what they ask to be printed instead: a help or a version. */
export async function parse(
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
  const entry = program.commands.find((each) => words.includes(commandNameOf(each)));
  const [, argument = 'an argument'] = entry?.usage.split(' ') ?? [];
  return new PluginError('usage', `${argument} is missing`, {
    hint: entry && `Usage: ${usageOf(program, entry)} [options]`,
  });
}

function addVersion(parser: Argv): Argv {
  return parser.version(versionText).group('version', 'General:');
}

function unknownCommand(word: string, program: Program): PluginError {
  const similar = findSimilar(word, program.commands.map(commandNameOf));
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

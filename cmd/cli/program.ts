import { Readable } from 'node:stream';
import type { Argv, Options } from 'yargs';
import { PluginError } from '#errors';
import { camelCase, readArguments, type ParsedLine } from './arguments.ts';
import {
  defaultName,
  defaultOf,
  commandNameOf,
  type Command,
  type Option,
  type OptionRecord,
  type Program,
} from './command.ts';
import { commonOptions, normalizeWord, versionOption, withVersion } from './commonOptions.ts';
import { defaultWidth } from './format.ts';
import { formatHelp } from './help.ts';
import { readKubectlFlags } from './kubectlFlags.ts';
import type { FiledValues } from './optionFile.ts';
import { findSimilar } from './similar.ts';
import { versionText } from './version.ts';

/** Returns the words of a command line in the form for the parser: `help create` becomes `create --help`. */
export function normalizeWords(given: readonly string[]): string[] {
  const argv = readKubectlFlags(given);
  const isHelp = argv[0] === 'help' || argv.at(-1) === 'help';
  const words = isHelp ? [...argv.filter((word) => word !== 'help'), '--help'] : argv;
  return words.map(normalizeWord);
}

/** Runs a command with its arguments. `notes` are warnings about the file with its options. */
export type RunCommand = (command: Command, args: Record<string, unknown>, notes: readonly string[]) => Promise<void>;

/** Runs the command that the words name. Returns the help or the version if the words ask for one. */
export async function parse(
  program: Program,
  words: readonly string[],
  run: RunCommand,
  width: number = defaultWidth,
  stdin: AsyncIterable<Buffer> = Readable.from([]),
): Promise<string> {
  const named = program.commands.find((entry) => commandNameOf(entry) === words[0]);
  const others = named ? words.slice(1) : words;
  // The usual ways to ask for help, without loading the parser.
  if (words.length === 0 || /^(--help|-h)$/.test(others.join(' '))) return formatHelp(program, named, { width });
  if (/^(--all --help|--help --all)$/.test(words.join(' ')))
    return formatHelp(program, undefined, { width, isWhole: true });
  checkInherited(words);
  let printed = '';
  const parser = await createParser(program);
  if (defaultOf(program) === undefined) {
    parser.command(defaultName, false, addVersion, async ({ _: [word], ...values }) => {
      if (word !== undefined) throw unknownCommand(String(word), program);
      await readArguments({ words, values, rest: [] }, { options: versionOption });
      printed = values['version'] === true ? versionText : await formatHelp(program, undefined, { width });
    });
  }
  for (const entry of program.commands) {
    const isDefault = entry === defaultOf(program);
    parser.command(
      // readArguments checks which arguments are required.
      entry.usage.replace(/<(.*?)>/g, '[$1]'),
      false,
      async (inner) => describeCommand(inner, (await entry.load()).command, isDefault),
      async ({ _: rest, ...values }) => {
        const { command } = await entry.load();
        if (values['help'] === true) printed = await formatHelp(program, entry, { width });
        else if (isDefault && asksForVersion(values, words)) printed = versionText;
        else {
          if (isDefault) checkCommandWord(values, rest, command, program);
          const filed = await addFile(values, command, stdin);
          const line = { words, values: filed.values, rest: isDefault ? rest : rest.slice(1) };
          await run(command, await readArguments(line, command), filed.notes);
        }
      },
    );
  }
  await parser.parseAsync(words);
  return printed;
}

/**
 * Throws `usage` for an option with the name of a member of each object, such as `--constructor`, on which the parser
 * breaks.
 */
function checkInherited(words: readonly string[]): void {
  for (const word of words.slice(0, [...words, '--'].indexOf('--'))) {
    const [, name = ''] = /^--?([^=]*)/.exec(word) ?? [];
    if (camelCase(name) in {}) throw new PluginError('usage', `unknown option ${word.replace(/=.*/s, '')}`);
  }
}

/** Adds the options of a configuration file. Commands without one do not load its parser. */
async function addFile(
  values: ParsedLine['values'],
  command: Command,
  stdin: AsyncIterable<Buffer>,
): Promise<FiledValues> {
  if (!command.config || values[command.config.option] === undefined) return { values, notes: [] };
  const { addOptionFile } = await import('./optionFile.ts');
  return addOptionFile(values, command, stdin);
}

async function createParser(program: Program): Promise<Argv> {
  // Completion runs at every key and does not load the parser, because loading it takes as long as
  // all other work.
  const { default: yargs } = await import('yargs');
  return (
    yargs()
      .scriptName(program.name)
      .locale('en')
      .parserConfiguration({ 'greedy-arrays': false, 'dot-notation': false })
      .exitProcess(false)
      .showHelpOnFail(false)
      .fail((message: string | null, error: Error | null) => {
        throw error ?? new PluginError('usage', message ?? 'the command line is invalid');
      })
      .help(false)
      // A command may have its own option `version`: `create --version=4.20.3`.
      .version(false)
      .options(toYargs(commonOptions))
  );
}

function addVersion(parser: Argv): Argv {
  return parser.options(toYargs(versionOption));
}

/**
 * Throws `usage` if the first argument of the default command looks like the name of another one: `lst`,
 * `mirror 4.20.3`.
 */
function checkCommandWord(
  values: ParsedLine['values'],
  rest: ParsedLine['rest'],
  { positionals = {} }: Command,
  program: Program,
): void {
  const word = values[Object.keys(positionals)[0] ?? ''];
  if (typeof word !== 'string' || !/^[a-z]+$/.test(word)) return;
  const names = program.commands.flatMap((entry) => [commandNameOf(entry), ...(entry.reflexes ?? [])]);
  const isSimilar = findSimilar(word, names) !== undefined;
  const meant = rest.map((each) => ` ${each}`).join('');
  if (isSimilar) throw unknownCommand(word, program);
  if (meant !== '')
    throw new PluginError('usage', `unknown command “${word}”`, { hint: `Did you mean “${program.name}${meant}”?` });
}

function unknownCommand(word: string, program: Program): PluginError {
  const meant = program.commands.find(({ reflexes = [] }) => reflexes.includes(word));
  const similar = meant ? commandNameOf(meant) : findSimilar(word, program.commands.map(commandNameOf));
  return new PluginError('usage', `unknown command “${word}”`, { hint: similar && `Did you mean ${similar}?` });
}

function describeCommand(parser: Argv, { positionals = {}, options }: Command, isDefault: boolean): Argv {
  for (const [name, { type }] of Object.entries(positionals)) parser.positional(name, { type });
  return parser.options(toYargs(isDefault ? withVersion(options) : options));
}

/** Returns whether `--version` is given, without a value for an option of that name. */
function asksForVersion({ version }: ParsedLine['values'], words: readonly string[]): boolean {
  const next = words[words.indexOf('--version') + 1];
  return version === true || (version === '' && words.includes('--version') && next !== '');
}

function toYargs(options: OptionRecord): Record<string, Options> {
  return Object.fromEntries(
    Object.entries(options).flatMap(([name, option]) => [
      [name, toYargsOption(option)],
      ...(option.hiddenAlias === undefined ? [] : [[option.hiddenAlias, { type: option.type }]]),
    ]),
  ) as Record<string, Options>;
}

// readArguments adds the defaults, because the parser does not tell them from given values.
function toYargsOption({ type, alias, repeatable }: Option): Options {
  return {
    ...(repeatable ? { array: true, string: true } : { type: type === 'boolean' ? type : 'string' }),
    ...(alias === undefined ? {} : { alias }),
    // The parser makes a help of its own before it runs a command. Without options it takes no time.
    hidden: true,
  };
}

import yargs, { type Argv, type Options } from 'yargs';
import manifest from '../package.json' with { type: 'json' };
import type { Context } from '../lib/context.ts';
import { PluginError } from '../lib/errors.ts';
import {
  callOf,
  defaultOf,
  nameOf,
  usageOf,
  type Arguments,
  type Command,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from './command.ts';
import { showFailure, withPointer } from './failure.ts';
import { Terminal } from './terminal.ts';

/** The headlines of a help text, in their order. */
const optionGroups = [
  'Positionals:',
  'Options:',
  'Destination:',
  'Configuration:',
  'Registries:',
  'Trust:',
  'Cluster:',
];

/** Options of every command. */
export const commonOptions = {
  verbose: {
    type: 'boolean',
    alias: 'v',
    describe: 'Tell more: every request, and what was underneath an error',
    group: 'General:',
  },
  quiet: {
    type: 'boolean',
    alias: 'q',
    describe: 'Show no progress, only warnings, errors and results',
    group: 'General:',
  },
} as const satisfies OptionRecord;

/**
 * Runs a program to its end: parses the command line, runs the command it names, shows what went wrong, and exits
 * with 0 (done), 1 (failed), 2 (wrong usage) or 130 (interrupted). Never returns.
 */
export async function runProgram(program: Program, argv: readonly string[] = process.argv.slice(2)): Promise<never> {
  const { stdout, stderr, env: environment } = process;
  const controller = new AbortController();
  let terminal = await Terminal.open({ stdout, stderr, environment });

  let unwritable: PluginError | undefined;
  const finish = async (error?: unknown): Promise<never> => {
    terminal.close();
    const code = error === undefined ? 0 : showFailure(withPointer(error, program, argv), terminal, controller.signal);
    // Ends what may still be under way beside the operation that failed.
    controller.abort();
    // An exit would cut off what a slow reader of a pipe has not taken yet.
    await Promise.all([stdout, stderr].map((stream) => new Promise((resolve) => stream.write('', resolve))));
    process.exit(code === 0 && unwritable ? 1 : code);
  };
  const interrupt = (): void => {
    if (controller.signal.aborted) {
      terminal.close();
      process.exit(130);
    }
    controller.abort(new PluginError('interrupted', 'Interrupted.'));
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  process.on('uncaughtException', (error) => void finish(error));
  for (const stream of [stdout, stderr]) {
    stream.on('error', (cause: NodeJS.ErrnoException) => {
      // The reader of a pipe went away (`| head`), or this cannot be written either: there is nobody left to tell.
      if (cause.code === 'EPIPE' || unwritable) return;
      unwritable = new PluginError('not-writable', `The output cannot be written: ${cause.message}`, { cause });
      void finish(unwritable);
    });
  }

  const run: Run = async (command, args) => {
    const { quiet, verbose } = args as Arguments<typeof commonOptions>;
    terminal = await Terminal.open({ stdout, stderr, environment, quiet, verbose });
    const { log, transfer } = terminal;
    const context: Context = { signal: controller.signal, log, onEvent: transfer('Transferring') };
    await command.run(args as never, { context, terminal, environment });
  };
  try {
    requireNode();
    const parser = await createParser(program, run);
    await parser.parseAsync(argv.map((word) => program.spellings?.[word] ?? word));
  } catch (error) {
    return finish(error);
  }
  return finish();
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
  const words = entry === undefined || entry === defaultOf(program) ? [] : [nameOf(entry)];
  let help = '';
  const parser = await createParser(program, async () => {});
  await parser.parseAsync([...words, '--help'], {}, (_error, _args, output) => {
    help = output;
  });
  return help;
}

type Run = (command: Command, args: Record<string, unknown>) => Promise<void>;

async function createParser(program: Program, run: Run): Promise<Argv> {
  const parser = configure(program)
    .version(manifest.version)
    .group('version', 'General:')
    // In a command, `--version` may be another version: `create --version=4.12.4`.
    // @ts-expect-error: the types lack the second argument
    .global('version', false)
    .epilogue(`'$0 <command> --help' tells all about a command.`);
  const alone = defaultOf(program);
  if (alone === undefined) {
    parser.usage(`${program.describe}\n\nUsage: ${program.name} <command> [options]`);
    parser.demandCommand(1, 1, 'A command is missing.', 'There is more than one command.').recommendCommands();
  }
  for (const entry of program.commands) {
    // Only the help of the program itself cannot wait for a command to be loaded: it has that of the default in it.
    const loaded: { command?: Command } = entry === alone ? await entry.load() : {};
    if (loaded.command) parser.usage(formatUsage(program, entry, loaded.command));
    parser.command(
      entry.usage,
      entry.describe,
      (inner) =>
        loaded.command
          ? describeCommand(inner, program, entry, loaded.command)
          : entry.load().then(({ command }) => describeCommand(inner, program, entry, (loaded.command = command))),
      async (args) => {
        if (loaded.command !== undefined) {
          await run(loaded.command, completeArguments(args, loaded.command));
        }
      },
    );
  }
  return parser;
}

function configure(program: Program): Argv {
  return yargs()
    .scriptName(program.name)
    .locale('en')
    .updateStrings({
      'Did you mean %s?': 'There is no such command; did you mean %s?',
      // The types do not know that this text has a plural.
      'Not enough non-option arguments: got %s, need at least %s': plural('An argument is missing (%s of %s).'),
    })
    .wrap(process.stdout.isTTY ? Math.min(120, process.stdout.columns) : 100)
    .parserConfiguration({ 'greedy-arrays': false, 'dot-notation': false })
    .strict()
    .exitProcess(false)
    .showHelpOnFail(false)
    .fail((message: string | null, error: Error | null) => {
      throw error ?? new PluginError('usage', message ?? 'The command line is not understood.');
    })
    .options(toYargs(commonOptions))
    .alias('help', 'h')
    .group('help', 'General:');
}

function plural(text: string): string {
  return { one: text, other: text } as unknown as string;
}

function formatUsage(program: Program, entry: CommandEntry, { details }: Command): string {
  const paragraphs = [`${entry.describe}.`, details, `Usage: ${usageOf(program, entry)} [options]`];
  return paragraphs.filter((paragraph) => paragraph !== undefined).join('\n\n');
}

function describeCommand(parser: Argv, program: Program, entry: CommandEntry, command: Command): Argv {
  for (const group of optionGroups) {
    parser.group([], group);
  }
  // What is said of the program itself is there already.
  if (entry !== defaultOf(program)) parser.version(false).usage(formatUsage(program, entry, command));
  parser
    .options(toYargs(command.options))
    .example(command.examples.map(([args, what]) => [`${callOf(program, entry)} ${args}`, what]));
  for (const [name, positional] of Object.entries(command.positionals ?? {})) {
    const { type, describe, choices } = positional;
    parser.positional(name, { type, describe, ...(choices === undefined ? {} : { choices }) });
  }
  return parser.check((args) => {
    checkArguments(args, { ...commonOptions, ...command.options });
    return true;
  });
}

function toYargs(options: OptionRecord): Record<string, Options> {
  return Object.fromEntries(Object.entries(options).map(([name, option]) => [name, toYargsOption(option)]));
}

function toYargsOption({ type, describe, alias, repeatable, required, choices, group, ...option }: Option): Options {
  return {
    describe,
    ...(repeatable ? { array: true, string: true } : { type }),
    ...(alias === undefined ? {} : { alias }),
    ...(required ? { demandOption: true } : {}),
    ...(option.default === undefined ? {} : { default: option.default }),
    ...(choices === undefined ? {} : { choices }),
    group: group ?? 'Options:',
  };
}

/** Refuses what yargs lets pass: a value that is missing, an option given twice, a number out of its range. */
function checkArguments(args: Record<string, unknown>, options: OptionRecord): void {
  for (const [name, option] of Object.entries(options)) {
    const value = args[name];
    if (Array.isArray(value) && !option.repeatable) {
      throw new PluginError('usage', `--${name} is given more than once.`);
    }
    if ([value].flat().includes('')) {
      throw new PluginError('usage', `--${name} needs a value.`);
    }
    if (option.type === 'number' && value !== undefined) {
      const [least, most] = option.range ?? [-Infinity, Infinity];
      if (typeof value !== 'number' || !(value >= least && value <= most)) {
        throw new PluginError('usage', `--${name} must be a number from ${String(least)} to ${String(most)}.`);
      }
    }
  }
}

function completeArguments(args: Record<string, unknown>, command: Command): Record<string, unknown> {
  const completed = { ...args };
  for (const [name, option] of Object.entries({ ...commonOptions, ...command.options } as OptionRecord)) {
    const key = name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    completed[key] ??= option.repeatable ? [] : option.type === 'boolean' ? false : undefined;
  }
  return completed;
}

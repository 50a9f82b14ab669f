import { isPluginError, messageOf, PluginError, type ErrorCode, type SettingName } from '../../lib/errors.ts';
import { kebabCase } from './arguments.ts';
import { callOf, defaultOf, commandNameOf, type Command, type OptionRecord, type Program } from './command.ts';
import type { Terminal } from './terminal.ts';

/** Adds a hint to a usage error that names the help to read. */
export function withPointer(error: unknown, program: Program, argv: readonly string[]): unknown {
  if (!isPluginError(error, 'usage') || error.hint !== undefined) {
    return error;
  }
  const entry = program.commands.find((each) => argv.includes(commandNameOf(each))) ?? defaultOf(program);
  const hint =
    entry === undefined
      ? `'${program.name} --help' lists the commands.`
      : `'${callOf(program, entry)} --help' lists its options.`;
  return new PluginError('usage', error.message, { hint, settings: error.settings, cause: error.cause });
}

const exitCodes: Readonly<Partial<Record<ErrorCode, number>>> = { usage: 2, 'rolled-back': 3, 'rollback-failed': 4 };

/**
 * Shows an error, with its settings that are options of the command. Returns the exit code. Without a command, shows no
 * options.
 */
export function showFailure(
  error: unknown,
  terminal: Terminal,
  signal: AbortSignal,
  command?: Pick<Command, 'options'>,
): number {
  const { verbose } = terminal;
  const causes = causesOf(error).map((cause) => `caused by: ${messageOf(cause)}`);
  const codes = isPluginError(error) ? [`code: ${error.code}`] : [];
  const details = verbose ? [...codes, ...causes] : [];
  if (isPluginError(error, 'interrupted') || (signal.aborted && !isPluginError(error))) {
    terminal.showError('Interrupted.', { hint: isPluginError(error) ? error.hint : undefined, details });
    return 130;
  }
  if (isPluginError(error) && error.code !== 'internal') {
    const options = optionsFor(error, command?.options ?? {});
    terminal.showError(error.message, { hint: error.hint, options, details });
    return exitCodes[error.code] ?? 1;
  }
  const stack = verbose && error instanceof Error && error.stack !== undefined ? [error.stack] : [];
  const hint = verbose ? 'Report it, with the lines below.' : 'Report it, with the output of the same command and -v.';
  terminal.showError(`${messageOf(error)} (a defect of this program)`, { hint, details: [...stack, ...details] });
  return 1;
}

/** Returns the options for the settings of an error. */
function optionsFor(error: PluginError, options: OptionRecord): string[] {
  const names = settingsOf(error).map(kebabCase);
  return names.filter((name) => name in options).map((name) => `--${name}`);
}

/** Returns the settings of an error, or of its first cause with settings. */
function settingsOf(error: unknown): readonly SettingName[] {
  if (!(error instanceof Error)) return [];
  if (isPluginError(error) && error.settings.length > 0) return error.settings;
  return settingsOf(error instanceof AggregateError ? error.errors[0] : error.cause);
}

/** Returns the causes of an error, the direct cause first. */
function causesOf(error: unknown): unknown[] {
  if (!(error instanceof Error) || error.cause === undefined) return [];
  return [error.cause, ...causesOf(error.cause)];
}

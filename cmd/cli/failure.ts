import { isPluginError, messageOf, PluginError, type ErrorCode } from '#errors';
import { formatShare, withoutUrlPasswords, shellWord } from '#text';
import { kebabCase } from './arguments.ts';
import { callOf, defaultOf, commandNameOf, type Command, type OptionRecord, type Program } from './command.ts';
import type { ProgressCounts } from './progress.ts';
import type { Terminal } from './terminal.ts';

/** Returns the failure of an action whose end failed too, which JavaScript throws as one SuppressedError. */
export function firstFailure(error: unknown): unknown {
  return error instanceof SuppressedError ? firstFailure(error.suppressed) : error;
}

/** Adds a hint to a usage error that names the help to read. */
export function withPointer(error: unknown, program: Program, argv: readonly string[]): unknown {
  if (!isPluginError(error, 'usage') || error.hint !== undefined) return error;
  const named = argv.flatMap((word) => program.commands.find((each) => commandNameOf(each) === word) ?? []);
  const entry = named[0] ?? defaultOf(program);
  const hint =
    entry === undefined
      ? `'${program.name} --help' lists the commands.`
      : `'${callOf(program, entry)} --help' lists its options.`;
  return new PluginError('usage', error.lines, { hint, settings: error.settings, cause: error.cause });
}

/**
 * Adds to an interruption of a command that resumes what is kept, and the command line that resumes. Leaves out a
 * command line with secrets.
 */
export function withResumption(
  error: unknown,
  command: Pick<Command, 'resumes'> | undefined,
  commandLine: readonly string[],
  counts: ProgressCounts | undefined,
): unknown {
  if (command?.resumes === undefined || !isPluginError(error, 'interrupted')) return error;
  const bytes = counts && `${formatShare(counts.bytes, counts.bytesTotal)} is kept.`;
  const images = counts && `${counts.images} of ${counts.imagesTotal} images are complete.`;
  const kept = command.resumes === 'bytes' ? bytes : images;
  const isSecret = commandLine.some(
    (word) => /^--(?:token|password)(?:=|$)/.test(word) || withoutUrlPasswords(word) !== word,
  );
  const resume = isSecret ? 'Run the same command again to resume.' : `To resume: ${formatCommandLine(commandLine)}`;
  const hint = [kept, resume].filter((part) => part !== undefined).join(' ');
  return new PluginError('interrupted', error.lines, { hint, cause: error.cause });
}

/** Quotes the words of a command line for a POSIX shell. */
function formatCommandLine([program = '', ...words]: readonly string[]): string {
  const quoted = words.map((word) => {
    const [, option = '', value] = /^(--?[\w-]+=?)?(.*)$/s.exec(word) ?? [];
    return option + (value === '' && option !== '' ? '' : shellWord(value ?? ''));
  });
  return [program, ...quoted].join(' ');
}

/** All exit codes with their meanings; the reference and the man pages are generated from them. */
export const exitMeanings = {
  0: 'Done.',
  1: 'Failed; the last lines of stderr say why. Also the bad result of a check, such as verify or preflight.',
  2: 'The command line is invalid.',
  3: 'A change of a mirror registry failed, and was rolled back.',
  4: 'A change of a mirror registry failed, and so did its rollback.',
  130: 'Interrupted.',
} as const;

const exitCodes: Readonly<Partial<Record<ErrorCode, keyof typeof exitMeanings>>> = {
  usage: 2,
  interrupted: 130,
  'rolled-back': 3,
  'rollback-failed': 4,
};

/**
 * Shows an error, with its settings that are options of the command, and the command that explains its code. Returns
 * the exit code. Without a command, shows no options.
 */
export function showFailure(
  error: unknown,
  terminal: Terminal,
  signal: AbortSignal,
  { program, command }: { readonly program: Program; readonly command?: Pick<Command, 'options' | 'needsRoot'> },
): number {
  const { verbose } = terminal;
  const details = verbose ? causesOf(error).map((cause) => `caused by: ${messageOf(cause)}`) : [];
  if (isPluginError(error, 'interrupted') || (signal.aborted && !isPluginError(error))) {
    const hint = isPluginError(error) ? error.hint : undefined;
    terminal.showError('Interrupted.', { code: 'interrupted', hint, details });
    return exitCodes.interrupted ?? 1;
  }
  if (isPluginError(error) && error.code !== 'internal') {
    const options = optionsFor(error, command?.options ?? {});
    const hint = error.hint ?? (command?.needsRoot && isDenied(error) ? 'Run this command as root.' : undefined);
    // The help of the command explains usage better.
    const page = error.code === 'usage' ? undefined : `${program.name} explain ${error.code}`;
    terminal.showError(error.lines, { code: error.code, hint, options, page, details });
    return exitCodes[error.code] ?? 1;
  }
  // The first lines of a stack quote the message.
  const stack =
    verbose && error instanceof Error ? (error.stack ?? '').split('\n').filter((line) => /^ +at /.test(line)) : [];
  const hint = verbose ? 'Report it, with the lines below.' : 'Report it, with the output of the same command and -v.';
  const lines = [...stack, ...details];
  terminal.showError(`${messageOf(error)} (a defect of this program)`, { code: 'internal', hint, details: lines });
  return 1;
}

/** Returns whether the system denied access. */
function isDenied(error: PluginError): boolean {
  return causesOf(error).some((cause) => ['EACCES', 'EPERM'].includes((cause as NodeJS.ErrnoException).code ?? ''));
}

function optionsFor(error: PluginError, options: OptionRecord): string[] {
  const names = settingsOf(error).map(kebabCase);
  return names.filter((name) => name in options).map((name) => `--${name}`);
}

/** Returns the settings of an error, or of its first cause with settings. */
function settingsOf(error: unknown): readonly string[] {
  if (!(error instanceof Error)) return [];
  if (isPluginError(error) && error.settings.length > 0) return error.settings;
  return settingsOf(error instanceof AggregateError ? error.errors[0] : error.cause);
}

/** Returns the causes of an error, the direct cause first. */
function causesOf(error: unknown): unknown[] {
  if (!(error instanceof Error) || error.cause === undefined) return [];
  return [error.cause, ...causesOf(error.cause)];
}

import { isPluginError, messageOf, PluginError, type ErrorCode } from '../../lib/errors.ts';
import { callOf, defaultOf, commandNameOf, type Program } from './command.ts';
import type { Terminal } from './terminal.ts';

/** Gives an error about the command line a hint that says where to read on. */
export function withPointer(error: unknown, program: Program, argv: readonly string[]): unknown {
  if (!isPluginError(error, 'usage') || error.hint !== undefined) {
    return error;
  }
  const entry = program.commands.find((each) => argv.includes(commandNameOf(each))) ?? defaultOf(program);
  const hint =
    entry === undefined
      ? `'${program.name} --help' lists the commands.`
      : `'${callOf(program, entry)} --help' lists its options.`;
  return new PluginError('usage', error.message, { hint, cause: error.cause });
}

const exitCodes: Readonly<Partial<Record<ErrorCode, number>>> = { usage: 2, 'rolled-back': 3, 'rollback-failed': 4 };

/** Shows an error and gives the exit code that goes with it. */
export function showFailure(error: unknown, terminal: Terminal, signal: AbortSignal): number {
  const { verbose } = terminal;
  const causes: string[] = [];
  for (let cause = causeOf(error); cause !== undefined; cause = causeOf(cause)) {
    causes.push(`caused by: ${messageOf(cause)}`);
  }
  const codes = isPluginError(error) ? [`code: ${error.code}`] : [];
  const details = verbose ? [...codes, ...causes] : [];
  if (isPluginError(error, 'interrupted') || (signal.aborted && !isPluginError(error))) {
    terminal.showError('Interrupted.', isPluginError(error) && error.hint !== undefined ? [error.hint] : [], details);
    return 130;
  }
  if (isPluginError(error) && error.code !== 'internal') {
    terminal.showError(error.message, error.hint === undefined ? [] : [error.hint], details);
    return exitCodes[error.code] ?? 1;
  }
  const stack = verbose && error instanceof Error && error.stack !== undefined ? [error.stack] : [];
  const hint = verbose ? 'Please report it with the lines below.' : 'Please report it with what -v shows besides.';
  terminal.showError(`${messageOf(error)} (a defect of this program)`, [hint], [...stack, ...details]);
  return 1;
}

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { Lines } from '#text';
import type { Arguments, Command, Program } from './cli/command.ts';
import type { commonOptions } from './cli/commonOptions.ts';
import { firstFailure, showFailure, withPointer, withResumption } from './cli/failure.ts';
import { parse, normalizeWords, type RunCommand } from './cli/program.ts';
import { Terminal, type OutputStream } from './cli/terminal.ts';

/** The word that requests completion, as in programs with cobra. */
export const completionWord = '__complete';

/** The environment of a program, so that it can run in any process. */
export interface ProgramIo {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly environment: NodeJS.ProcessEnv;
  /** The standard input; empty by default. */
  readonly stdin?: AsyncIterable<Buffer>;
  /** The path with which the program was started. */
  readonly executable: string;
  /** The delay of the first line of progress if stderr is not a terminal, in milliseconds. */
  readonly firstProgress?: number;
  /** Returns whether there is no standard output; by default there is. */
  readonly isOutputClosed?: () => boolean;
  /** Aborted to interrupt the command, which then cleans up and ends. */
  readonly signal: AbortSignal;
  /** Aborted with an error that ends the program immediately. */
  readonly broken?: AbortSignal;
  /** Sets a listener for output of packages and Node.js itself. */
  readonly listenToPackages?: (listener: (text: string) => void) => void;
  /** Called before a command runs. */
  readonly onCommand?: (command: Command) => void;
  /** Called with what is unfinished if the program ends now; undefined if nothing is. */
  readonly onUnfinished?: (message: string | undefined) => void;
}

/**
 * Runs a program to its end: parses the command line, runs the named command, and shows errors. Returns the exit code:
 * 0 (success), 1 (failure), 2 (invalid usage), 130 (interrupted), or the code of the command. Does not read or change
 * the process. Never throws.
 */
export async function execute(program: Program, argv: readonly string[], io: ProgramIo): Promise<number> {
  const { stdout, stderr, environment, executable, firstProgress, stdin = Readable.from([]) } = io;
  if (argv[0] === completionWord) {
    const { answerCompletion } = await import('./cli/completion/suggestions.ts');
    stdout.write(await answerCompletion(program, argv.slice(1), environment));
    await drain(stdout);
    return 0;
  }
  const ended = new AbortController();
  const signal = AbortSignal.any([io.signal, ended.signal]);
  const streams = { stdout, stderr, environment, firstProgress, logFormat: readLogFormat(argv) };
  let terminal = await Terminal.open(streams);
  io.listenToPackages?.((text) => void terminal.log('debug', text));
  let exitCode = 0;
  let running: Command | undefined;
  const run: RunCommand = async (command, args, notes) => {
    running = command;
    if (printsForm(command, args) && io.isOutputClosed?.() === true) throw outputClosed();
    const { quiet, verbose, color, logFormat } = args as Arguments<typeof commonOptions>;
    terminal = await Terminal.open({
      ...streams,
      quiet,
      verbose,
      color,
      logFormat,
      isService: command.isService === true,
    });
    const { log, transfer } = terminal;
    for (const note of notes) log('warn', note);
    const onUnfinished = (unfinished: PluginError | undefined): void =>
      io.onUnfinished?.(unfinished && `error: ${unfinished.message}\nhint: ${unfinished.hint ?? ''}`);
    const context: Context = { signal, log, onEvent: transfer('Transferring'), onUnfinished };
    const setExitCode = (code: number): void => void (exitCode = code);
    io.onCommand?.(command);
    await command.run(args, { context, terminal, environment, stdin, executable, setExitCode });
  };
  const broken = failureOf(io.broken);
  try {
    requireFolder();
    const text = await Promise.race([parse(program, normalizeWords(argv), run, terminal.textWidth, stdin), broken]);
    if (text !== '') terminal.print(Lines.split(text));
    terminal.end();
    await Promise.race([drain(stdout, stderr), broken]);
  } catch (error) {
    const { counts } = terminal;
    terminal.end();
    const explained = withResumption(
      withPointer(firstFailure(error), program, argv),
      running,
      [program.name, ...argv],
      counts,
    );
    exitCode = showFailure(explained, terminal, io.signal, { program, command: running });
  }
  // Ends operations that are still running after one of them failed.
  ended.abort();
  await drain(stdout, stderr);
  return exitCode;
}

/** Returns the format of messages before the command line is parsed, so that usage errors have it too. */
function readLogFormat(argv: readonly string[]): 'text' | 'json' {
  const line = argv.slice(0, [...argv, '--'].indexOf('--')).join(' ');
  return /(?:^| )--log-?[fF]ormat[= ]json(?: |$)/.test(line) ? 'json' : 'text';
}

/** Returns whether a command line asks for a result in a form for programs, such as JSON. */
function printsForm({ options }: Command, args: Readonly<Record<string, unknown>>): boolean {
  const name = options['format'] ? 'format' : 'output';
  const { choices, default: usual } = options[name] ?? {};
  return choices !== undefined && args[name] !== usual;
}

function outputClosed(): PluginError {
  return new PluginError('not-writable', 'the result cannot be written: standard output is closed', {
    hint:
      'Redirect it to a file or a pipe. If the program that starts this one discards the result on purpose, ' +
      'leave out -o.',
  });
}

/** Waits until the streams have written everything, because an exit would lose data for a slow reader. */
async function drain(...streams: readonly OutputStream[]): Promise<void> {
  await Promise.all(streams.map((stream) => new Promise((resolve) => stream.write('', resolve))));
  // A stream calls the callback of a failed write before its error listeners.
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

/** Throws `not-found` if the current folder was removed, before a less clear error occurs. */
function requireFolder(): void {
  try {
    process.cwd();
  } catch (cause) {
    throw new PluginError('not-found', 'the current folder does not exist any more', {
      hint: 'Change to another folder with cd.',
      cause,
    });
  }
}

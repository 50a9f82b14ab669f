import type { ChalkInstance } from 'chalk';
import type { Ora } from 'ora';
import type { LogLevel, TransferEvent } from '../../lib/context.ts';
import { Progress } from './progress.ts';

/** The delay of the first plain line of progress, and the interval of the next lines, in milliseconds. */
const firstLine = 2_000;
const nextLine = 30_000;
/** The interval of updates to a live line, in milliseconds. */
const liveInterval = 200;
const barWidth = 20;

/** A stream that may be a terminal. */
export type OutputStream = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
};

/** Options of a Terminal. */
export interface TerminalOptions {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** The environment, for `NO_COLOR` and `TERM`. */
  readonly environment: NodeJS.ProcessEnv;
  /** The delay of the first plain line of progress, in milliseconds. */
  readonly firstProgress?: number;
  /** Show only warnings and errors. */
  readonly quiet?: boolean;
  /** Also show debug lines of the log. */
  readonly verbose?: boolean;
  /** Begins each line of stderr with the time and the level, for the log of a pod. */
  readonly isService?: boolean;
}

/** The level of a line of stderr. */
type LineLevel = LogLevel | 'error';

/**
 * Prints results on stdout, and progress, the log and errors on stderr: as live lines if stderr is a terminal, else as
 * plain lines.
 */
export class Terminal {
  readonly #options: TerminalOptions;
  readonly #colors: ChalkInstance | undefined;
  readonly #spinner: Ora | undefined;
  readonly #transfers = new Map<string, Progress>();
  #timer: NodeJS.Timeout | undefined;
  /** The last plain line of each transfer. */
  readonly #told = new Map<string, string>();
  /** The number of lines of stdout that the next redraw overwrites. */
  #drawn = 0;

  private constructor(options: TerminalOptions, colors: ChalkInstance | undefined, spinner: Ora | undefined) {
    this.#options = options;
    this.#colors = colors;
    this.#spinner = spinner;
  }

  /** Creates a terminal. Loads the packages for live lines only if stderr is a terminal. */
  static async open(options: TerminalOptions): Promise<Terminal> {
    const { stderr, environment, quiet } = options;
    if (stderr.isTTY !== true || environment['TERM'] === 'dumb') {
      return new Terminal(options, undefined, undefined);
    }
    const colors = environment['NO_COLOR'] ? undefined : (await import('chalk')).chalkStderr;
    const spinner =
      quiet === true
        ? undefined
        : (await import('ora')).default({
            stream: stderr,
            isEnabled: true,
            discardStdin: false,
            color: colors === undefined ? false : 'cyan',
          });
    return new Terminal(options, colors, spinner);
  }

  /** Whether the user requested debug lines. */
  get verbose(): boolean {
    return this.#options.verbose === true;
  }

  /** Prints a result, or a part of one, as a line of stdout. */
  print(text: string): void {
    // A live line would be on the same terminal, and a plain line would follow the result.
    this.close();
    this.#drawn = 0;
    this.#options.stdout.write(`${disarm(text)}\n`);
  }

  /** Whether results go to a terminal, where they can be overwritten. */
  get live(): boolean {
    const { stdout, environment } = this.#options;
    return stdout.isTTY === true && environment['TERM'] !== 'dumb';
  }

  /** Overwrites the result of the last redraw, on a terminal. Leaves out lines that do not fit on the screen. */
  redraw(text: string): void {
    const { columns = 80, rows = 24 } = this.#options.stdout;
    const lines = disarm(text).split('\n');
    const fitting = lines.length < rows ? lines : [...lines.slice(0, rows - 2), '…'];
    const back = this.#drawn > 0 ? `\x1b[${this.#drawn}A\x1b[J` : '';
    this.close();
    this.#options.stdout.write(back + fitting.map((line) => `${line.slice(0, columns - 1)}\n`).join(''));
    this.#drawn = fitting.length;
  }

  /** Prints a line of the log, unless its level is hidden. */
  readonly log = (level: LogLevel, text: string): void => {
    const message = disarm(text);
    if (level === 'debug' && this.verbose) this.#write(this.#colors?.gray(message) ?? message, level);
    if (level === 'info' && this.#options.quiet !== true) this.#write(message, level);
    if (level === 'warn') this.#write(`${this.#mark('warning:')}${message}`, level);
  };

  /** Prints why the run failed, what to do, and options to try; then each detail on its own line. */
  showError(
    message: string,
    {
      hint,
      options = [],
      details,
    }: { hint: string | undefined; options?: readonly string[]; details: readonly string[] },
  ): void {
    this.#write(`${this.#mark('error:')}${disarm(message)}`, 'error');
    if (hint !== undefined) this.#write(`${this.#colors?.cyan('hint:') ?? 'hint:'} ${disarm(hint)}`);
    if (options.length > 0) this.#write(`${this.#colors?.cyan('try:') ?? 'try:'} ${options.join(', ')}`);
    for (const detail of details.map(disarm)) {
      this.#write(this.#colors?.gray(detail) ?? detail);
    }
  }

  /** Returns the listener for a transfer. Its progress line begins with `label`: `Downloading`. */
  readonly transfer = (label: string): ((event: TransferEvent) => void) => {
    return (event) => {
      let progress = this.#transfers.get(label);
      if (progress === undefined) {
        // The lines of earlier transfers come first.
        if (this.#told.size > 0) this.#tell();
        progress = new Progress(label, Date.now());
        this.#transfers.set(label, progress);
        this.#start();
      }
      progress.add(event, Date.now());
    };
  };

  /** Ends live lines, and restores the cursor. Prints a last plain line for transfers with plain lines. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#spinner?.stop();
    if (this.#told.size > 0) this.#tell();
    this.#told.clear();
    this.#transfers.clear();
  }

  #write(line: string, level: LineLevel = 'info'): void {
    const head =
      this.#options.isService === true ? `${new Date().toISOString()} ${level.toUpperCase().padEnd(5)} ` : '';
    this.#options.stderr.write(`${head}${line}\n`);
  }

  /** The word before a warning or an error; a line with a level needs none. */
  #mark(word: 'warning:' | 'error:'): string {
    if (this.#options.isService === true) return '';
    return `${this.#colors?.[word === 'error:' ? 'red' : 'yellow'](word) ?? word} `;
  }

  #start(): void {
    if (this.#options.quiet === true || this.#timer !== undefined) {
      return;
    }
    const spinner = this.#spinner;
    if (spinner === undefined) {
      this.#timer = setTimeout(() => {
        this.#tell();
        this.#timer = setInterval(() => {
          this.#tell();
        }, nextLine).unref();
      }, this.#options.firstProgress ?? firstLine).unref();
      return;
    }
    spinner.start();
    this.#timer = setInterval(() => {
      spinner.text = [...this.#lines(barWidth).values()].join('\n  ');
    }, liveInterval).unref();
  }

  #tell(): void {
    for (const [label, line] of this.#lines(0)) {
      if (this.#told.get(label) === line) continue;
      this.#told.set(label, line);
      this.#write(line);
    }
  }

  #lines(bar: number): Map<string, string> {
    // A wrapped line cannot be overwritten. The spinner and a space take two columns.
    const width = bar > 0 ? Math.max(1, (this.#options.stderr.columns ?? 80) - 3) : Infinity;
    const started = [...this.#transfers].filter(([, progress]) => progress.started);
    return new Map(started.map(([label, progress]) => [label, progress.line(Date.now(), { bar, width })]));
  }
}

/**
 * Replaces characters that control a terminal or change the order of text, because the text may quote untrusted
 * content.
 */
function disarm(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/gu, '\ufffd');
}

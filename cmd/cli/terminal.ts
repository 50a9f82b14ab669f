import type { ChalkInstance } from 'chalk';
import type { Ora } from 'ora';
import type { LogLevel, TransferEvent } from '#context';
import type { ErrorCode } from '#errors';
import { Lines } from '#text';
import { defaultWidth, formatData, isDataForm, type DataForm } from './format.ts';
import { Progress, type ProgressCounts } from './progress.ts';

/** The delay of the first plain line of progress, and the interval of the next lines, in milliseconds. */
const firstLine = 2_000;
const nextLine = 30_000;
/** The interval of updates to a live line, in milliseconds. */
const liveInterval = 200;
const barWidth = 20;
/** The fewest columns and rows that live lines and tables need. */
const fewestColumns = 10;
const fewestRows = 3;

/** An output stream; `columns` and `rows` are those of a terminal. */
export type OutputStream = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
};

/**
 * Returns the size of a terminal in characters, or 80 columns and 24 rows if it states none that a line fits into.
 * Serial consoles, `script` and `expect` state 0 columns.
 */
function screenSizeOf({ columns = 80, rows = 24 }: OutputStream) {
  const isKnown = columns >= fewestColumns && rows >= fewestRows;
  return isKnown ? { columns, rows, isKnown } : { columns: 80, rows: 24, isKnown };
}

/** Options of a Terminal. */
export interface TerminalOptions {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** The environment, for `NO_COLOR`, `TERM`, `CI` and the locale. */
  readonly environment: NodeJS.ProcessEnv;
  /** The delay of the first plain line of progress, in milliseconds. */
  readonly firstProgress?: number;
  /** Show only warnings and errors. */
  readonly quiet?: boolean;
  /** Also show debug lines of the log. */
  readonly verbose?: boolean;
  /** Begins each line of stderr with the time and the level, for the log of a pod. */
  readonly isService?: boolean;
  readonly color?: ColorMode;
  /** With `json`, each line of stderr is a JSON object. */
  readonly logFormat?: 'text' | 'json';
}

/** What is shown below an error. */
interface FailureLines {
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly options?: readonly string[];
  /** The command that explains the code. */
  readonly page?: string;
  readonly details: readonly string[];
}

type LineLevel = LogLevel | 'error';

/**
 * Prints results on stdout, and progress, the log and errors on stderr: as live lines if stderr is a terminal, else as
 * plain lines.
 */
export class Terminal {
  readonly #options: TerminalOptions;
  /** For stderr, and for stdout. */
  readonly #colors: ChalkInstance | undefined;
  readonly #resultColors: ChalkInstance | undefined;
  #spinner: Ora | undefined;
  readonly #transfers = new Map<string, Progress>();
  #timer: NodeJS.Timeout | undefined;
  /** The last plain line of each transfer. */
  readonly #printed = new Map<string, string>();
  /** The number of lines of stdout that the next redraw overwrites. */
  #drawn = 0;
  #isEnded = false;

  private constructor(options: TerminalOptions, colors: ChalkInstance | undefined, spinner: Ora | undefined) {
    this.#options = options;
    this.#colors = hasColors(options.stderr, options) ? colors : undefined;
    this.#resultColors = hasColors(options.stdout, options) ? colors : undefined;
    this.#spinner = spinner;
    // ora divides by the columns, so it must not draw once there are none.
    if (spinner) options.stderr.on('resize', this.#checkSize);
  }

  /** Creates a terminal. Loads the packages for colors and live lines only if they are used. */
  static async open(options: TerminalOptions): Promise<Terminal> {
    const { stdout, stderr, environment, quiet, logFormat } = options;
    const usesColors = [stdout, stderr].some((stream) => hasColors(stream, options));
    const colors = usesColors ? new (await import('chalk')).Chalk({ level: 1 }) : undefined;
    const isLive = isDrawable(stderr, environment) && logFormat !== 'json' && quiet !== true;
    if (!isLive) return new Terminal(options, colors, undefined);
    const { default: ora } = await import('ora');
    const color = hasColors(stderr, options) ? 'cyan' : false;
    const spinner = showsUnicode(environment) ? 'dots' : 'line';
    return new Terminal(options, colors, ora({ stream: stderr, isEnabled: true, discardStdin: false, color, spinner }));
  }

  /** Whether the user requested debug lines. */
  get verbose(): boolean {
    return this.#options.verbose === true;
  }

  /**
   * Prints a result, or a part of one, on stdout: a string as one line. Words of `accents` have colors on a terminal.
   */
  print(text: string | Lines, accents?: Accents): void {
    // A live line would be on the same terminal, and a plain line would follow the result.
    this.close();
    this.#drawn = 0;
    this.#options.stdout.write(`${this.#paint(this.#spell(text, this.#options.stdout), accents)}\n`);
  }

  /**
   * Prints a result as `--output` says: as data, in another form of the command, or as words, which may have colors.
   */
  async printResult<Form extends string = never>(
    form: Form | DataForm | undefined,
    result: object,
    forms: string | Lines | Readonly<Record<'words' | Form, () => string | Lines | Promise<string | Lines>>>,
    accents?: Accents,
  ): Promise<void> {
    if (isDataForm(form)) return void this.print(await formatData(form, result));
    const text = typeof forms === 'string' || forms instanceof Lines ? forms : await forms[form ?? 'words']();
    this.print(text, form === undefined ? accents : undefined);
  }

  /** Whether results go to a terminal, where they can be overwritten. */
  get live(): boolean {
    return isDrawable(this.#options.stdout, this.#options.environment);
  }

  /** The width of the terminal for results, in characters. Infinity if results go elsewhere. */
  get width(): number {
    return this.live ? screenSizeOf(this.#options.stdout).columns - 1 : Infinity;
  }

  /** The number of lines of the terminal for results. */
  get height(): number {
    return screenSizeOf(this.#options.stdout).rows;
  }

  /**
   * The width for text in characters: of the terminal for results, else of that for messages (`| less`), 120 at most.
   */
  get textWidth(): number {
    const { stdout, stderr } = this.#options;
    const screen = [stdout, stderr].find(({ isTTY }) => isTTY === true);
    return screen ? Math.min(120, screenSizeOf(screen).columns) : defaultWidth;
  }

  /** Overwrites the result of the last redraw, on a terminal. Leaves out lines that do not fit on the screen. */
  redraw(text: string | Lines, accents?: Accents): void {
    const { columns, rows } = screenSizeOf(this.#options.stdout);
    const { lines } = new Lines(text);
    const fitting = new Lines(...(lines.length < rows ? lines : [...lines.slice(0, rows - 2), '…']));
    const back = this.#drawn > 0 ? `\x1b[${this.#drawn}A\x1b[J` : '';
    this.close();
    const cut = new Lines(...fitting.lines.map((line) => line.slice(0, columns - 1)));
    this.#options.stdout.write(`${back}${this.#paint(this.#spell(cut, this.#options.stdout), accents)}\n`);
    this.#drawn = cut.lines.length;
  }

  /** Prints a message of the log, unless its level is hidden: a string as one line. */
  readonly log = (level: LogLevel, text: string | Lines): void => {
    const message = this.#spell(text);
    if (level === 'debug' && this.verbose) this.#write(level, message, [this.#colors?.gray(message) ?? message]);
    if (level === 'info' && this.#options.quiet !== true) this.#write(level, message, [message]);
    if (level === 'warn') this.#write(level, message, [`${this.#mark('warning:')}${message}`]);
  };

  /**
   * Prints why the run failed, what to do, options to try, and what explains the code; then each detail on its own
   * line.
   */
  showError(text: string | Lines, { code, hint, options = [], page, details }: FailureLines): void {
    const message = this.#spell(text);
    const label = (word: string): string => this.#colors?.cyan(word) ?? word;
    const mark = this.#options.isService === true ? `(${code}) ` : this.#mark(`error (${code}):`);
    const lines = [
      `${mark}${message}`,
      ...(hint === undefined ? [] : [`${label('hint:')} ${this.#spell(hint)}`]),
      ...(options.length > 0 ? [`${label('try:')} ${options.join(', ')}`] : []),
      ...(page === undefined ? [] : [`${label('more:')} ${page}`]),
      ...details.map((detail) => this.#spell(detail)).map((detail) => this.#colors?.gray(detail) ?? detail),
    ];
    this.#write('error', message, lines, { code, hint, options, details });
  }

  /** The counts of the last transfer that has a plan and is not closed. */
  get counts(): ProgressCounts | undefined {
    return [...this.#transfers.values()].findLast(({ counts }) => counts !== undefined)?.counts;
  }

  /** Returns the listener for a transfer. Its progress line begins with `label`: `Downloading`. */
  readonly transfer = (label: string): ((event: TransferEvent) => void) => {
    return (event) => {
      let progress = this.#transfers.get(label);
      if (progress === undefined) {
        // The lines of earlier transfers come first.
        if (this.#printed.size > 0) this.#printLines();
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
    if (this.#printed.size > 0) this.#printLines();
    this.#printed.clear();
    this.#transfers.clear();
  }

  /** Prints lines of text about one message, or one object with the message and the facts. */
  #write(level: LineLevel, message: string, lines: readonly string[], facts: object = {}): void {
    const { logFormat, isService, stderr } = this.#options;
    const time = new Date().toISOString();
    if (logFormat === 'json') return void stderr.write(`${JSON.stringify({ time, level, message, ...facts })}\n`);
    const head = isService === true ? `${time} ${level.toUpperCase().padEnd(5)} ` : '';
    stderr.write(lines.map((line) => `${head}${line}\n`).join(''));
  }

  /** The word before a warning or an error; a line with a level needs none. */
  #mark(word: 'warning:' | `error (${ErrorCode}):`): string {
    if (this.#options.isService === true) return '';
    return `${this.#colors?.[word === 'warning:' ? 'yellow' : 'red'](word) ?? word} `;
  }

  /**
   * Returns a text as a stream shows it: a string on one line, and on some terminals without signs that are not ASCII.
   */
  #spell(text: string | Lines, stream: OutputStream = this.#options.stderr): string {
    const escaped = new Lines(text).text;
    return stream.isTTY === true && !showsUnicode(this.#options.environment) ? toAscii(escaped) : escaped;
  }

  #paint(text: string, accents: Accents | undefined): string {
    return accents && this.#resultColors ? paint(text, accents, this.#resultColors) : text;
  }

  /** Continues with plain lines if the terminal has no usable size any more. */
  readonly #checkSize = (): void => {
    if (screenSizeOf(this.#options.stderr).isKnown || !this.#spinner) return;
    const isRunning = this.#timer !== undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#spinner.stop();
    this.#spinner = undefined;
    if (isRunning) this.#start();
  };

  /** Closes the terminal for good: transfers that are still ending draw no line again. */
  end(): void {
    this.close();
    this.#isEnded = true;
  }

  #start(): void {
    if (this.#options.quiet === true || this.#timer !== undefined || this.#isEnded) return;
    const spinner = this.#spinner;
    if (spinner === undefined) {
      this.#timer = setTimeout(() => {
        this.#printLines();
        this.#timer = setInterval(() => {
          this.#printLines();
        }, nextLine).unref();
      }, this.#options.firstProgress ?? firstLine).unref();
      return;
    }
    spinner.start();
    this.#timer = setInterval(() => {
      spinner.text = [...this.#lines(barWidth).values()].join('\n  ');
    }, liveInterval).unref();
  }

  #printLines(): void {
    for (const [label, line] of this.#lines(0)) {
      if (this.#printed.get(label) === line) continue;
      this.#printed.set(label, line);
      const counts = this.#transfers.get(label)?.counts;
      this.#write('info', line, [line], { progress: { label, ...counts } });
    }
  }

  #lines(bar: number): Map<string, string> {
    // A wrapped line cannot be overwritten. The spinner and a space take two columns.
    const width = bar > 0 ? screenSizeOf(this.#options.stderr).columns - 3 : Infinity;
    const started = [...this.#transfers].filter(([, progress]) => progress.started);
    return new Map(started.map(([label, progress]) => [label, this.#spell(progress.line(Date.now(), { bar, width }))]));
  }
}

/** Whether lines on a stream can be overwritten. The log of a CI system keeps every line. */
function isDrawable(stream: OutputStream, { TERM, CI = '' }: NodeJS.ProcessEnv): boolean {
  const isContinuous = !['', '0', 'false'].includes(CI);
  return stream.isTTY === true && TERM !== 'dumb' && !isContinuous && screenSizeOf(stream).isKnown;
}

const replacements: Readonly<Record<string, string>> = {
  '“': '"',
  '”': '"',
  '‘': "'",
  '’': "'",
  '…': '...',
  '→': '->',
  '–': '-',
  '—': '-',
  '×': 'x',
  '·': '*',
  '█': '#',
  '░': '.',
  '\ufffd': '?',
};

/**
 * Returns whether a terminal shows more than ASCII: its locale is UTF-8, and it is not the Linux console, which lacks
 * most glyphs.
 */
function showsUnicode(environment: NodeJS.ProcessEnv, platform: NodeJS.Platform = process.platform): boolean {
  const { TERM, LC_ALL, LC_CTYPE, LANG } = environment;
  // Windows has no such variables. On macOS, terminals of editors leave them out.
  const locale = LC_ALL || LC_CTYPE || LANG || (platform === 'linux' ? 'C' : 'UTF-8');
  return TERM !== 'linux' && /utf-?8/i.test(locale);
}

/** Replaces the signs of this program’s own texts that are not ASCII. Names of files and people stay. */
function toAscii(text: string): string {
  return text.replace(/[\u0080-\uffff]/g, (sign) => replacements[sign] ?? sign);
}

/** When to use colors; `auto` is for terminals, unless `NO_COLOR` is set. */
type ColorMode = 'auto' | 'always' | 'never';

/** The meaning of a word, which decides its color. */
export type Accent = 'good' | 'bad' | 'doubtful' | 'busy';

/** The words of a result that have a color, such as `{ FAILED: 'bad' }`. */
export type Accents = Readonly<Record<string, Accent>>;

const colorOf = { good: 'green', bad: 'red', doubtful: 'yellow', busy: 'cyan' } as const;

/**
 * Returns whether a stream gets colors: by `--color`, else if it is a terminal and neither TERM nor NO_COLOR forbids
 * them.
 */
function hasColors(
  { isTTY }: { readonly isTTY?: boolean },
  { color = 'auto', environment }: { readonly color?: ColorMode; readonly environment: NodeJS.ProcessEnv },
): boolean {
  if (color !== 'auto') return color === 'always';
  return isTTY === true && environment['TERM'] !== 'dumb' && !environment['NO_COLOR'];
}

/** Colors words that stand alone: as a cell of a table, before a colon, or as the first word after one. */
export function paint(text: string, accents: Accents, colors: ChalkInstance): string {
  const words = new RegExp(
    `(?<=^ *|  |: )(?:${Object.keys(accents)
      .map((word) => RegExp.escape(word))
      .join('|')})(?=  |:|,|$)`,
    'gm',
  );
  return text.replace(words, (word) => {
    const accent = accents[word];
    return accent === undefined ? word : colors[colorOf[accent]](word);
  });
}

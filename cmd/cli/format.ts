import { formatBytes, withoutUrlPasswords, Lines, toLine } from '#text';

/** Formats the volumes of a bundle: `5 files of 3.7 GiB: upgrade.tar.000 to upgrade.tar.004`. */
export function formatVolumes(volumes: readonly { readonly name: string; readonly size: number }[]): string {
  const [first, last] = [volumes[0], volumes.at(-1)];
  const size = formatBytes(first?.size ?? 0);
  return `${formatCount(volumes.length, 'file')} of ${size}: ${first?.name ?? ''} to ${last?.name ?? ''}`;
}

/** Formats a number of things: `1 node`, `3 nodes`. */
export function formatCount(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Formats a time in seconds: `8s`, `2m05s`, `3h20m`. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const pad = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}m${pad(whole % 60)}s` : `${Math.floor(minutes / 60)}h${pad(minutes % 60)}m`;
}

/** Formats a point in time for a page: `28 November 2026, 13:05 UTC`. Returns a text that is no time as it is. */
export function formatTime(time: Date | string): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return String(time);
  const options = { timeZone: 'UTC', hourCycle: 'h23' } as const;
  const day = new Intl.DateTimeFormat('en-GB', { ...options, dateStyle: 'long' }).format(date);
  return `${day}, ${new Intl.DateTimeFormat('en-GB', { ...options, timeStyle: 'short' }).format(date)} UTC`;
}

/** Returns a bar of `width` characters that is filled to a fraction from 0 to 1. */
export function formatBar(fraction: number, width: number): string {
  const filled = Math.floor(fraction * width);
  return '█'.repeat(filled) + '░'.repeat(width - filled);
}

/**
 * Formats rows as aligned columns with two spaces between them. The first row is the header. Columns in `right` are
 * aligned to the right. The last column is wrapped at `width`, in characters.
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
  width = Infinity,
): Lines {
  const cells = rows.map((row) => row.map(toLine));
  const header = cells[0] ?? [];
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const indent = widths.slice(0, -1).reduce((sum, each) => sum + each + 2, 0);
  const format = (row: readonly string[]): string[] => {
    const isRight = widths.map((_, column) => right.includes(header[column] ?? ''));
    const columns = widths.map((size, column) => (row[column] ?? '')[isRight[column] ? 'padStart' : 'padEnd'](size));
    const start = columns
      .slice(0, -1)
      .map((cell) => `${cell}  `)
      .join('');
    const last = isRight.at(-1) ? (columns.at(-1) ?? '') : (row[widths.length - 1] ?? '');
    return wrapAfter(start, last, Math.max(20, width - indent));
  };
  return new Lines(...cells.flatMap(format));
}

/** Breaks a cell into lines of a width behind a start. Splits longer words, such as digests. */
function wrapAfter(start: string, cell: string, width: number): string[] {
  if (cell.length <= width) return [(start + cell).trimEnd()];
  const words = cell.split(' ').flatMap((word) => (word.length > width ? splitWord(word, width) : [word]));
  const [first = '', ...others] = breakLine(words.join(' '), width);
  return [start + first, ...others.map((line) => ' '.repeat(start.length) + line)];
}

function splitWord(word: string, width: number): string[] {
  return Array.from({ length: Math.ceil(word.length / width) }, (_, index) =>
    word.slice(index * width, (index + 1) * width),
  );
}

/** The width of text that is not for a terminal, in characters. */
export const defaultWidth = 100;

/**
 * Breaks a line that may quote others, with an indent after its first line: a text with blanks cannot choose what
 * begins a line. `width` is in characters.
 */
export function breakHanging(line: string, width: number): string[] {
  const [first = '', ...others] = breakLine(line, width - 2);
  return [first, ...others.map((each) => `  ${each}`)];
}

/** Breaks a line at blanks into lines of a width, in characters. Does not split longer words. */
export function breakLine(line: string, width: number): string[] {
  const lines: string[] = [];
  let current = '';
  for (const word of toLine(line).split(' ')) {
    if (current !== '' && current.length + 1 + word.length > width) {
      lines.push(current);
      current = word;
    } else current = current === '' ? word : `${current} ${word}`;
  }
  return [...lines, current];
}

/** Formats names and values as indented lines, with the values aligned and wrapped at `width`, in characters. */
export function formatFields(fields: readonly (readonly string[])[], width = Infinity): Lines {
  const lines = fields.flatMap(([name = '', value = '']) => {
    const start = `  ${name.padEnd(10)} `;
    return wrapAfter(start, toLine(value), Math.max(20, width - start.length));
  });
  return new Lines(...lines);
}

/** Leaves out passwords in the URLs of a result. */
function withoutPassword(_key: unknown, value: unknown): unknown {
  return typeof value === 'string' ? withoutUrlPasswords(value) : value;
}

/** A text with line breaks stays on one line, in quotes. */
const dataStyle = { blockQuote: false } as const;

/** Formats plain data as YAML, with each string on one line. Leaves out passwords in URLs. */
export async function formatYaml(value: unknown): Promise<string> {
  // Loaded on first use, because most commands do not need it.
  const { stringify } = await import('yaml');
  return stringify(value, withoutPassword, { ...dataStyle, lineWidth: 0, aliasDuplicateObjects: false });
}

/**
 * The version of what `-o json` and `-o yaml` print, for all commands. A change that programs must adapt to raises it;
 * new fields do not.
 */
export const outputVersion = 1;

/** Formats a result for `-o json`, in one line if `indent` is 0. */
function formatJson(result: object, indent = 2): string {
  return JSON.stringify(withVersion(result), withoutPassword, indent);
}

/** A value of `--output` that every command with a result accepts. */
export type DataForm = 'json' | 'yaml';

/** Returns whether a value of `--output` is the name of a form that every result has. */
export function isDataForm(form: string | undefined): form is DataForm {
  return form === 'json' || form === 'yaml';
}

/** Formats a result for `-o json` or `-o yaml`. */
export async function formatData(output: DataForm, result: object): Promise<Lines> {
  return Lines.split(output === 'json' ? formatJson(result) : await formatYaml(withVersion(result)));
}

/** Returns a function that formats each event of a stream for `-o json`, as a line, or for `-o yaml`, as a document. */
export async function openEventFormat(output: DataForm): Promise<(event: object) => Lines> {
  if (output === 'json') return (event) => Lines.split(formatJson(event, 0));
  const { stringify } = await import('yaml');
  return (event) => Lines.split(`---\n${stringify(withVersion(event), withoutPassword, dataStyle)}`);
}

/** Adds the version of the output, to the objects of a list too. Kubernetes objects have their own. */
function withVersion<Result>(result: Result): Result {
  if (typeof result !== 'object' || result === null) return result;
  if (Array.isArray(result)) return result.map(withVersion) as Result;
  return 'apiVersion' in result ? result : { outputVersion, ...result };
}

/** Returns the versions of a bundle in words: of its only release, or of several in the order of the updates. */
export function nameReleases({
  version,
  releases,
}: {
  readonly version: string;
  readonly releases?: readonly { readonly version: string }[];
}): string {
  return (releases ?? [{ version }]).map((each) => each.version).join(', ');
}

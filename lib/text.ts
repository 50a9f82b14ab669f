/**
 * Text of several lines that this program has laid out. Everything that is printed is a string or Lines, and a string
 * is one line. So names and messages of a cluster, a registry, a drive or a file cannot begin a line of their own.
 */
export class Lines {
  #lines: readonly string[];

  /** Strings are one line each. */
  constructor(...parts: readonly (string | Lines)[]) {
    this.#lines = parts.flatMap((part) => (typeof part === 'string' ? [toLine(part)] : part.#lines));
  }

  /** The lines, without line breaks. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  /**
   * Splits a text whose layout is that of this program, or that is shown as it is: a manifest, a diff, a page. Anything
   * else that has line breaks is one line. Passwords in URLs stay.
   */
  static split(text: string): Lines {
    const split = new Lines();
    split.#lines = text.replace(/\n$/, '').split('\n').map(escapeControlCharacters);
    return split;
  }

  /** The text with line breaks. As a part of another string, it becomes one line again. */
  get text(): string {
    return this.#lines.join('\n');
  }
}

/** The characters that begin a new line on some terminal or in some editor. */
const lineBreaks = /[\n\r\v\f\u0085\u2028\u2029]+/;

/**
 * Returns a text as one line. Line breaks become blanks, and characters that control a terminal or change the order of
 * text become `\ufffd`. Passwords in URLs are left out.
 */
export function toLine(text: string): string {
  const [first = '', ...others] = text.split(lineBreaks);
  const parts = [first.trimEnd(), ...others.map((part) => part.trim())].filter((part) => part !== '');
  const line = others.length === 0 ? first : parts.join(' ');
  return escapeControlCharacters(withoutUrlPasswords(line));
}

function escapeControlCharacters(line: string): string {
  return line.replace(/[^\P{Cc}\t]|[\u202a-\u202e\u2066-\u2069]/gu, '\ufffd');
}

/** Returns a title with indented items below it. */
export function listBelow(title: string, items: readonly string[]): Lines {
  return new Lines(title, ...new Lines(...items).lines.map((line) => `  ${line}`));
}

/** Joins parts with an empty line between them. Leaves out empty parts. */
export function joinParagraphs(...parts: readonly (string | Lines)[]): Lines {
  const filled = parts.map((part) => new Lines(part)).filter(({ lines }) => lines.some((line) => line !== ''));
  return new Lines(...filled.flatMap((part, index) => (index === 0 ? [part] : ['', part])));
}

/**
 * Quotes a path as one word for a POSIX shell: nothing in it is expanded or run, and it is neither an option nor more
 * than one line. Escapes control characters, and characters that change the order of the text, as in `$'\033'`.
 */
export function shellWord(path: string): string {
  const word = path.startsWith('-') ? `./${path}` : path;
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (!/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(word)) return `'${word.replaceAll(`'`, `'\\''`)}'`;
  const escaped = word.replace(/[\\']/g, '\\$&').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    // Escapes bytes, because the meaning of `\u` depends on the locale.
    return [...Buffer.from(character)].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
  });
  return `$'${escaped}'`;
}

/**
 * Writes a command for a POSIX shell, in which each value is one word or a part of one: `shellCommand`podman stop
 * ${name}``. A command for another shell is a value too, as in `shellCommand`sudo sh -c ${inner}``, for ssh and `oc
 * debug` alike.
 */
export function shellCommand(texts: TemplateStringsArray, ...values: readonly string[]): string {
  return texts.map((text, index) => text + (index < values.length ? shellWord(values[index] ?? '') : '')).join('');
}

/** What stands in place of a secret. */
export const redacted = 'REDACTED';

/**
 * Replaces user names and passwords in the URLs of a text, also those with an `@`, a quote or a slash in the password.
 * `docker://host:5000/name@sha256:…` has none.
 */
export function withoutUrlPasswords(text: string): string {
  if (!text.includes('://')) return text;
  return text.replace(
    /(?<=:\/\/)(?:(?!:\/\/)[^\s/?#])*@|(?<=:\/\/)[^\s:/?#@]*:(?!\d{1,5}[/?#])(?:(?!:\/\/)\S)*@(?!sha\d+:)/g,
    `${redacted}@`,
  );
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Formats a number of bytes: `512 B`, `1.5 MiB`, `387 GiB`. */
export function formatBytes(bytes: number): string {
  const unit = unitOf(bytes);
  return `${formatIn(unit, bytes)} ${units[unit] ?? ''}`;
}

/** Formats a part of some bytes, in the unit of the whole: `0.3/1.5 MiB`. */
export function formatShare(part: number, whole: number): string {
  const unit = unitOf(whole);
  return `${formatIn(unit, part)}/${formatIn(unit, whole)} ${units[unit] ?? ''}`;
}

function unitOf(bytes: number): number {
  let unit = 0;
  // 1023.5 would be rounded to 1024.
  while (bytes / 1024 ** unit >= 1023.5 && unit < units.length - 1) unit += 1;
  return unit;
}

function formatIn(unit: number, bytes: number): string {
  const value = bytes / 1024 ** unit;
  return value.toFixed(unit === 0 || value >= 99.95 ? 0 : 1);
}

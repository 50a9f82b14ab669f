import { withoutUrlPasswords } from './urlPasswords.ts';

/**
 * Text of several lines that this program has laid out. Everything that is printed is a string or Lines, and a string is
 * one line. So names and messages of a cluster, a registry, a drive or a file cannot begin a line of their own.
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

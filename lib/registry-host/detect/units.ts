/**
 * A word of a setting, without quotes and escapes, and its position in the file: offsets in UTF-16 units, lines from 1.
 */
export interface Word {
  readonly text: string;
  readonly start: number;
  readonly end: number;
  readonly line: number;
}

/** One `Key=value` of a unit file. */
export interface Setting {
  readonly section: string;
  readonly key: string;
  readonly words: readonly Word[];
  readonly line: number;
}

/** A unit file or a drop-in of the host. */
export interface UnitFile {
  readonly path: string;
  readonly text: string;
  readonly settings: readonly Setting[];
}

/** A unit: its file and its drop-ins, in the order of systemd. */
export interface Unit {
  readonly name: string;
  readonly files: readonly UnitFile[];
}

/** A setting, and its file. */
export interface PlacedSetting extends Setting {
  readonly file: UnitFile;
}

/** A replacement in a file, from `start` to before `end`, in UTF-16 units. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Parses a unit file by the rules of systemd.syntax(7): continued lines, comments between them, quotes and C escapes.
 * Keeps specifiers.
 */
export function parseUnitFile(path: string, text: string): UnitFile {
  const settings: Setting[] = [];
  let section = '';
  let [position, line] = [0, 1];
  while (position < text.length) {
    const end = endOfLine(text, position);
    const content = text.slice(position, end).trim();
    const header = /^\[(.*)\]$/.exec(content);
    const assignment = /^([^=\s#;[][^=]*?)\s*=/.exec(content);
    let next = end + 1;
    if (header) {
      section = header[1] ?? '';
    } else if (assignment && !/^[#;]/.test(content)) {
      const value = readWords(text, text.indexOf('=', position) + 1, line);
      settings.push({ section, key: assignment[1] ?? '', words: value.words, line });
      next = value.end + 1;
    }
    line += countLines(text.slice(position, next));
    position = next;
  }
  return { path, text, settings };
}

/**
 * Returns the settings of a key in all files of a unit, in order. Starts after the last empty assignment, which resets
 * the key.
 */
export function settingsOf(unit: Unit, section: string, key: string): PlacedSetting[] {
  const settings = unit.files.flatMap((file) =>
    file.settings
      .filter((setting) => setting.section === section && setting.key === key)
      .map((setting) => ({ ...setting, file })),
  );
  return settings.slice(settings.findLastIndex(({ words }) => words.length === 0) + 1);
}

/** Replaces parts of a text, which must not overlap. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  return [...edits]
    .sort((a, b) => b.start - a.start)
    .reduce((spliced, edit) => spliced.slice(0, edit.start) + edit.text + spliced.slice(edit.end), text);
}

function endOfLine(text: string, position: number): number {
  const end = text.indexOf('\n', position);
  return end < 0 ? text.length : end;
}

function countLines(text: string): number {
  return text.split('\n').length - 1;
}

/** Reads the words from an offset to the end of the setting, over all its lines. Returns them, and the end. */
function readWords(text: string, from: number, firstLine: number): { words: Word[]; end: number } {
  const words: Word[] = [];
  let [position, line] = [from, firstLine];
  for (;;) {
    const char = text[position];
    if (char === undefined || char === '\n') return { words, end: position };
    if (isContinuation(text, position)) {
      const next = skipComments(text, endOfLine(text, position) + 1);
      line += countLines(text.slice(position, next));
      position = next;
    } else if (/\s/.test(char)) {
      position += 1;
    } else {
      const word = readWord(text, position);
      words.push({ text: word.text, start: position, end: word.end, line });
      line += countLines(text.slice(position, word.end));
      position = word.end;
    }
  }
}

function isContinuation(text: string, position: number): boolean {
  return /^\\\r?\n/.test(text.slice(position, position + 3));
}

/** Skips comments between continued lines, which are not part of the value. */
function skipComments(text: string, from: number): number {
  let position = from;
  while (/^[ \t]*[#;]/.test(text.slice(position, endOfLine(text, position)))) position = endOfLine(text, position) + 1;
  return Math.min(position, text.length);
}

function readWord(text: string, from: number): { text: string; end: number } {
  let [position, word, quote] = [from, '', ''];
  for (;;) {
    const char = text[position];
    if (char === undefined || char === '\n') return { text: word, end: position };
    if (isContinuation(text, position)) {
      if (quote === '') return { text: word, end: position };
      word += ' ';
      position = endOfLine(text, position) + 1;
    } else if (char === '\\') {
      const escape = unescape(text.slice(position));
      word += escape.text;
      position += escape.length;
    } else if (quote === '' && /\s/.test(char)) {
      return { text: word, end: position };
    } else if (char === quote) {
      quote = '';
      position += 1;
    } else if (quote === '' && (char === '"' || char === "'")) {
      quote = char;
      position += 1;
    } else {
      word += char;
      position += 1;
    }
  }
}

const letters: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  s: ' ',
  '\\': '\\',
  '"': '"',
  "'": "'",
};

function unescape(text: string): { text: string; length: number } {
  const code = /^\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))/i.exec(text);
  if (code) {
    return { text: String.fromCodePoint(parseInt(code[1] ?? code[2] ?? code[3] ?? '', 16)), length: code[0].length };
  }
  const octal = /^\\([0-7]{3})/.exec(text);
  if (octal) return { text: String.fromCharCode(parseInt(octal[1] ?? '', 8)), length: 4 };
  const letter = letters[text[1] ?? ''];
  // systemd keeps an unknown escape unchanged, with a warning.
  return letter === undefined ? { text: '\\', length: 1 } : { text: letter, length: 2 };
}

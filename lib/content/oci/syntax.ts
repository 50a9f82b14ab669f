/**
 * The deepest nesting of objects and lists. Manifests and metadata.json have less than 16 levels, and schemas of custom
 * resources less than 64. Code that visits a value level by level must not run out of stack.
 */
const depthLimit = 256;

/**
 * Parses untrusted JSON in linear time. Throws a SyntaxError with the position of the error, also for more than 256
 * levels of objects and lists. The messages of JSON.parse quote the text, which may be from any file of the machine.
 */
export function parseJson(text: string): unknown {
  const deep = findDeep(text);
  if (deep !== undefined)
    throw new SyntaxError(`nested more than ${depthLimit} levels at ${describePosition(text, deep)}`);
  try {
    return JSON.parse(text);
  } catch {
    throw new SyntaxError(`malformed at ${describePosition(text, findError(text))}`);
  }
}

/** Does the same as parseJson, but returns undefined for a text that is no JSON. */
export function parseJsonIfValid(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/** Converts the error of a YAML parser to one with the position, but without the quoted text. */
export function withoutText(error: unknown): SyntaxError {
  const [place] = (error as { linePos?: { line: number; col: number }[] } | null)?.linePos ?? [];
  return new SyntaxError(place ? `malformed at line ${place.line}, column ${place.col}` : 'malformed');
}

/** Returns the offset of the first bracket that is nested too deep; undefined if there is none. */
function findDeep(text: string): number | undefined {
  // Most texts are too short or have too few brackets to be nested that deep.
  if (text.length <= depthLimit) return undefined;
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === codes.quote) at = skipString(text, at);
    else if (char === codes.openList || char === codes.openObject) {
      if ((depth += 1) > depthLimit) return at;
    } else if (char === codes.closeList || char === codes.closeObject) depth -= 1;
  }
  return undefined;
}

const codes = {
  quote: 0x22,
  backslash: 0x5c,
  openList: 0x5b,
  closeList: 0x5d,
  openObject: 0x7b,
  closeObject: 0x7d,
} as const;

/** Returns the offset of the quote that ends the string at an offset, or of the end of the text. */
function skipString(text: string, start: number): number {
  for (let from = start + 1; ;) {
    const end = text.indexOf('"', from);
    if (end < 0) return text.length;
    let escapes = 0;
    while (text.charCodeAt(end - 1 - escapes) === codes.backslash) escapes += 1;
    if (escapes % 2 === 0) return end;
    from = end + 1;
  }
}

/** What may come next in a JSON text. */
type Expected = 'value' | 'value or end' | 'name' | 'name or end' | 'colon' | 'next';

/** The end of a valid token, or the offset of the first invalid character in it. */
interface Token {
  readonly end: number;
  readonly isValid: boolean;
}

/** Returns the length of the longest prefix of valid JSON. V8 does not report it in all cases. */
function findError(text: string): number {
  const closers: string[] = [];
  let expected: Expected = 'value';
  for (let at = skipSpace(text, 0); at < text.length; at = skipSpace(text, at)) {
    const char = text.charAt(at);
    let token: Token = { end: at + 1, isValid: true };
    if (expected === 'colon') {
      if (char !== ':') return at;
      expected = 'value';
    } else if (char === closers.at(-1) && (expected === 'next' || expected.endsWith('or end'))) {
      closers.pop();
      expected = 'next';
    } else if (expected === 'next') {
      if (char !== ',' || closers.length === 0) return at;
      expected = closers.at(-1) === ']' ? 'value' : 'name';
    } else if (expected.startsWith('name')) {
      if (char !== '"') return at;
      token = scanString(text, at);
      expected = 'colon';
    } else if (char === '[' || char === '{') {
      closers.push(char === '[' ? ']' : '}');
      expected = char === '[' ? 'value or end' : 'name or end';
    } else {
      token =
        char === '"'
          ? scanString(text, at)
          : char === '-' || isDigit(text.charCodeAt(at))
            ? scanNumber(text, at)
            : scanWord(text, at);
      expected = 'next';
    }
    if (!token.isValid) return token.end;
    at = token.end;
  }
  return text.length;
}

function scanString(text: string, start: number): Token {
  for (let at = start + 1; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === codes.quote) return { end: at + 1, isValid: true };
    if (char < 0x20) return { end: at, isValid: false };
    if (char !== codes.backslash) continue;
    at += 1;
    const hexDigits = text.charAt(at) === 'u' ? 4 : 0;
    if (hexDigits === 0 && !/^["\\/bfnrt]/.test(text.charAt(at))) return { end: at, isValid: false };
    for (const end = at + hexDigits; at < end; at++)
      if (!/^[0-9A-Fa-f]/.test(text.charAt(at + 1))) return { end: Math.min(at + 1, text.length), isValid: false };
  }
  return { end: text.length, isValid: false };
}

function scanNumber(text: string, start: number): Token {
  let at = text.charAt(start) === '-' ? start + 1 : start;
  const skipDigits = (): boolean => {
    const from = at;
    while (isDigit(text.charCodeAt(at))) at += 1;
    return at > from;
  };
  if (text.charAt(at) === '0') at += 1;
  else if (!skipDigits()) return { end: at, isValid: false };
  if (text.charAt(at) === '.') {
    at += 1;
    if (!skipDigits()) return { end: at, isValid: false };
  }
  if ('eE'.includes(text.charAt(at) || ' ')) {
    at += '+-'.includes(text.charAt(at + 1) || ' ') ? 2 : 1;
    if (!skipDigits()) return { end: at, isValid: false };
  }
  return { end: at, isValid: true };
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

function scanWord(text: string, start: number): Token {
  const word = ['true', 'false', 'null'].find((each) => each.startsWith(text.charAt(start))) ?? '';
  let length = 0;
  while (length < word.length && text.charAt(start + length) === word.charAt(length)) length += 1;
  return { end: start + length, isValid: word !== '' && length === word.length };
}

function skipSpace(text: string, start: number): number {
  let at = start;
  for (let char = text.charCodeAt(at); char <= 0x20; char = text.charCodeAt(at)) {
    if (!' \t\n\r'.includes(text.charAt(at))) return at;
    at += 1;
  }
  return at;
}

function describePosition(text: string, position: number): string {
  let line = 1;
  let start = 0;
  for (let end = text.indexOf('\n'); end >= 0 && end < position; end = text.indexOf('\n', start)) {
    line += 1;
    start = end + 1;
  }
  return `line ${line}, column ${position - start + 1}`;
}

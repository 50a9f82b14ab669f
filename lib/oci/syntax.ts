/**
 * Parses untrusted JSON. Throws a SyntaxError with the position of the error. The messages of JSON.parse quote the
 * text, which may be from any file of the machine.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SyntaxError(`malformed at ${describePosition(text, findError(text))}`);
  }
}

/** Converts the error of a YAML parser to one with the position, but without the quoted text. */
export function withoutText(error: unknown): SyntaxError {
  const [place] = (error as { linePos?: { line: number; col: number }[] } | null)?.linePos ?? [];
  return new SyntaxError(place ? `malformed at line ${place.line}, column ${place.col}` : 'malformed');
}

/** Returns the length of the longest prefix of valid JSON. V8 does not report it in all cases. */
function findError(text: string): number {
  // Of a large text that is cut short, each step of the search would take as long as this one.
  if (isBeginning(text)) return text.length;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (isBeginning(text.slice(0, middle + 1))) low = middle + 1;
    else high = middle;
  }
  return low;
}

function isBeginning(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const message = String(error);
    if (message.includes('Unexpected end of JSON')) return true;
    const [, position] = / at position (\d+)/.exec(message) ?? [];
    return position !== undefined && Number(position) >= text.length;
  }
}

function describePosition(text: string, position: number): string {
  const lines = text.slice(0, position).split('\n');
  return `line ${lines.length}, column ${(lines.at(-1)?.length ?? 0) + 1}`;
}

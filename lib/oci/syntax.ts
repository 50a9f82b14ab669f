/**
 * Parses JSON that nothing vouches for. Throws a SyntaxError that says where it is malformed. The messages of JSON.parse quote the text, which may be
 * that of any file of the machine.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SyntaxError(`malformed at ${describePosition(text, findError(text))}`);
  }
}

/** An error of a YAML parser without the text that its message quotes: where it is malformed, as far as the parser says. */
export function withoutText(error: unknown): SyntaxError {
  const [place] = (error as { linePos?: { line: number; col: number }[] } | null)?.linePos ?? [];
  return new SyntaxError(place ? `malformed at line ${place.line}, column ${place.col}` : 'malformed');
}

/** The length of the longest beginning that could go on as JSON. V8 does not tell it in every case. */
function findError(text: string): number {
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

import type { LintFinding } from './lintFinding.ts';

/**
 * Returns a function that finds the line of a finding in a file, from 1. It is the line of the field if that is unique
 * in the document, else of the name of the object, else the first.
 */
export function indexLines(text: string): (finding: Pick<LintFinding, 'object' | 'field' | 'value'>) => number {
  const numbers = new Map<string, number[]>();
  const starts = [0];
  for (const [index, line] of text.split('\n').entries()) {
    if (/^---(?:\s|$)/.test(line)) starts.push(index);
    const plain = normalizeLine(line);
    const known = numbers.get(plain);
    if (known) known.push(index);
    else numbers.set(plain, [index]);
  }
  return ({ object, field, value }) => {
    const [named = 0] = numbers.get(`name:${object.name}`) ?? [];
    const document = starts.findLastIndex((start) => start <= named);
    const [start = 0, end = Infinity] = starts.slice(document, document + 2);
    const key = /(\w+)$/.exec(field)?.[1] ?? '';
    const found = (numbers.get(`${key}:${value}`) ?? []).filter((line) => line >= start && line < end);
    return 1 + (found.length === 1 ? (found[0] ?? 0) : named);
  };
}

/** Drops indentation, dashes of lists, quotes and commas, so that a field of YAML or JSON is `key:value`. */
function normalizeLine(line: string): string {
  return line.replace(/^[\s-]+|["',\s]/g, '');
}

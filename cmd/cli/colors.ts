import type { ChalkInstance } from 'chalk';

/** When to use colors; `auto` is for terminals, unless `NO_COLOR` is set. */
export type ColorMode = 'auto' | 'always' | 'never';

/** The meaning of a word, which decides its color. */
export type Accent = 'good' | 'bad' | 'doubtful' | 'busy';

/** The words of a result that have a color, such as `{ FAILED: 'bad' }`. */
export type Accents = Readonly<Record<string, Accent>>;

const colorOf = { good: 'green', bad: 'red', doubtful: 'yellow', busy: 'cyan' } as const;

/**
 * Returns whether a stream gets colors: by `--color`, else if it is a terminal and neither TERM nor NO_COLOR forbids
 * them.
 */
export function hasColors(
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

/**
 * Writes a path as one word of a command line that a person pastes into a POSIX shell: nothing in it is expanded or run, it is on one
 * line, and it is no option. Control characters, and those that show a text in another order, are written as in `$'\033'`.
 */
export function shellWord(path: string): string {
  const word = path.startsWith('-') ? `./${path}` : path;
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (!/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(word)) return `'${word.replaceAll(`'`, `'\\''`)}'`;
  const escaped = word.replace(/[\\']/g, '\\$&').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    // Byte by byte: what `\u` stands for depends on the locale.
    return [...Buffer.from(character)].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
  });
  return `$'${escaped}'`;
}

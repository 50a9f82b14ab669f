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

/**
 * Flags of oc and kubectl that change nothing here, with a value and without one. Scripts give them to every command.
 */
export const ignoredFlags = {
  valued: ['cache-dir', 'log-flush-frequency', 'profile', 'profile-output', 'vmodule'],
  plain: ['disable-compression', 'match-server-version', 'warnings-as-errors'],
} as const;

/** The flags that set how much oc and kubectl log. */
export const logLevels = ['loglevel', 'v'] as const;

/** The level from which on kubectl logs requests. */
const requestLevel = 6;

/** A short option with a value directly after it, as oc and kubectl take it: `-ojson`, `-nweb`, `-v6`. */
const joined = /^-([afnos](?!=)|v(?=\d))(.+)$/s;

/**
 * Reads the flags of oc and kubectl that no command here has: `-v=6`, `-v 6` and `--loglevel=6` become `--verbose`,
 * lower levels and flags that change nothing are left out. `-ojson` becomes `-o=json`. Words after `--` stay.
 */
export function readKubectlFlags(words: readonly string[]): string[] {
  const read: string[] = [];
  for (let index = 0; index < words.length; index += 1) {
    const word = (words[index] ?? '').replace(joined, '-$1=$2');
    if (word === '--') return [...read, ...words.slice(index)];
    const [, name = '', own] = /^--?([a-z-]+)(?:=(.*))?$/s.exec(word) ?? [];
    const isLevel = logLevels.some((each) => each === name) && /^\d+$/.test(own ?? words[index + 1] ?? '');
    const isValued = isLevel || ignoredFlags.valued.some((each) => each === name);
    if (isLevel && Number(own ?? words[index + 1]) >= requestLevel) read.push('--verbose');
    if (isValued && own === undefined) index += 1;
    if (!isValued && !ignoredFlags.plain.some((each) => each === name)) read.push(word);
  }
  return read;
}

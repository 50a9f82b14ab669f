import { clusterOptions } from './options.ts';

/** Flags of oc and kubectl that change nothing here, with a value and without one. Scripts give them to every command. */
const ignored = {
  valued: ['cache-dir', 'log-flush-frequency', 'profile', 'profile-output', 'vmodule'],
  plain: ['disable-compression', 'match-server-version', 'warnings-as-errors'],
} as const;

/** The flags that set how much oc and kubectl log. */
const logLevels = ['loglevel', 'v'] as const;

/** The level from which on kubectl logs requests. */
const requestLevel = 6;

/** Returns the flags that may come before the verb of a command line of oc, with a value (`valued`) and without one. */
export function globalFlags(): { readonly valued: readonly string[]; readonly plain: readonly string[] } {
  const own = Object.entries(clusterOptions).flatMap(([name, option]) =>
    [name, ...('alias' in option ? [option.alias] : [])].map((each) => ({ name: each, type: option.type })),
  );
  const dashed = (names: readonly string[]): string[] =>
    names.map((name) => (name.length === 1 ? `-${name}` : `--${name}`));
  const namesOf = (isBoolean: boolean): string[] =>
    own.filter(({ type }) => (type === 'boolean') === isBoolean).map(({ name }) => name);
  return {
    valued: [...dashed([...namesOf(false), 'certificate-authority', ...ignored.valued, ...logLevels]), '--v'],
    plain: dashed([...namesOf(true), ...ignored.plain]),
  };
}

/**
 * Reads the flags of oc and kubectl that no command here has: `-v=6`, `-v 6` and `--loglevel=6` become `--verbose`, lower levels and
 * flags that change nothing are left out. Words after `--` stay.
 */
export function readKubectlFlags(words: readonly string[]): string[] {
  const read: string[] = [];
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index] ?? '';
    if (word === '--') return [...read, ...words.slice(index)];
    const [, name = '', own] = /^--?([a-z-]+)(?:=(.*))?$/s.exec(word) ?? [];
    const isLevel = logLevels.some((each) => each === name) && /^\d+$/.test(own ?? words[index + 1] ?? '');
    const isValued = isLevel || ignored.valued.some((each) => each === name);
    if (isLevel && Number(own ?? words[index + 1]) >= requestLevel) read.push('--verbose');
    if (isValued && own === undefined) index += 1;
    if (!isValued && !ignored.plain.some((each) => each === name)) read.push(word);
  }
  return read;
}

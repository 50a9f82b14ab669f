import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { readDuration } from '#context';
import { isPluginError, PluginError } from '#errors';
import { namesOf, type Command, type Option, type OptionRecord, type Suggestion } from './command.ts';
import { commonOptions } from './commonOptions.ts';
import { findSimilar } from './similar.ts';

/** The most choices that an error lists beside a similar one. */
const mostChoices = 12;

/** A command line after parsing. */
export interface ParsedLine {
  /** The words of the command line. */
  readonly words: readonly string[];
  /** Options and positional arguments by their names; each option also by its other names. */
  readonly values: Readonly<Record<string, unknown>>;
  /** Words that are neither an option nor a positional argument. */
  readonly rest: readonly (string | number)[];
}

/**
 * Checks a command line against the records of a command. Returns the arguments of the command by their camel-case
 * names. Throws `usage` for unknown, missing, unexpected or invalid arguments.
 */
export async function readArguments(
  { words, values, rest }: ParsedLine,
  { options: own, positionals = {} }: Pick<Command, 'options' | 'positionals'>,
): Promise<Record<string, unknown>> {
  const options: OptionRecord = { ...commonOptions, ...own };
  const [unexpected] = rest;
  // First, because the parser reads `-o=` as an option with the name “=”.
  checkWords(words, options);
  checkNames(values, options, positionals);
  if (unexpected !== undefined) throw tooMany(String(unexpected), values, positionals);
  const args: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(options)) {
    const hidden = option.hiddenAlias === undefined ? [] : values[option.hiddenAlias];
    args[camelCase(name)] = await readValue(`--${name}`, option, [values[name], hidden]);
  }
  checkNeeds(values, options);
  for (const [name, positional] of Object.entries(positionals)) {
    // The parser drops the usual name of the standard input.
    const value = values[name] === '' && words.includes('-') ? '-' : values[name];
    args[name] = await readValue(`<${name}>`, positional, [value]);
  }
  return args;
}

/** Returns the error for a word after the last positional argument. Releases are one argument, with commas. */
function tooMany(word: string, values: ParsedLine['values'], positionals: OptionRecord): PluginError {
  const given = Object.keys(positionals).map((name) => values[name]);
  if (given.includes(word)) return new PluginError('usage', `“${word}” is given twice`);
  const releases = [String(values['release']), word];
  const isList = 'release' in positionals && releases.every((each) => /^\d/.test(each));
  return new PluginError('usage', `“${word}” is one argument too many`, {
    hint: isList ? `Several releases are one argument: ${releases.join(',')}.` : undefined,
  });
}

function checkNames(values: ParsedLine['values'], options: OptionRecord, positionals: OptionRecord): void {
  const shown = Object.entries(options).flatMap(namesOf);
  const validNames = [...shown, ...Object.values(options).map(({ hiddenAlias }) => hiddenAlias)];
  for (const [key, value] of Object.entries(values)) {
    const name = kebabCase(key);
    if (name === '_' || name === '$0' || name in positionals || validNames.includes(name)) continue;
    // A short option is no spelling of a long one.
    const similar = findSimilar(name, name.length > 1 ? shown.filter((each) => each.length > 1) : shown);
    // The parser reads `--no-restart` as `restart`.
    const given = value === false ? `no-${name}` : name;
    throw new PluginError('usage', `unknown option ${dashed(given)}`, {
      hint: similar && `Did you mean ${dashed(similar)}?`,
    });
  }
}

/**
 * Throws `usage` for an option without a value, and for a boolean with a value except `true` and `false`. The parser
 * drops or misreads both: the words `--extra-image=` at the end of a line would leave out the option.
 */
function checkWords(words: readonly string[], options: OptionRecord): void {
  for (const [index, word] of words.entries()) {
    if (word === '--') return;
    const [, spelled = '', value] = /^--?([^-=][^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    const [name, option] = findOption(kebabCase(spelled), options);
    if (name === undefined || option === undefined) continue;
    if (option.type === 'boolean' && value !== undefined && value !== 'true' && value !== 'false') {
      throw new PluginError('usage', `--${name} cannot be “${value}”`, {
        hint: `--${name} alone switches it on, --no-${name} off.`,
      });
    }
    if (option.type === 'boolean') continue;
    const takesDash = value !== undefined || (option.type === 'string' && !option.repeatable);
    const given = value ?? words[index + 1] ?? '';
    if (given === '' || (!takesDash && given.startsWith('-')))
      throw new PluginError('usage', `--${name} needs a value`);
  }
}

/** Throws `usage` for an option that acts only with another one, which is not given. */
function checkNeeds(values: ParsedLine['values'], options: OptionRecord): void {
  const isGiven = (name: string): boolean => ![undefined, false].includes(values[name] as undefined | false);
  for (const [name, { needs }] of Object.entries(options)) {
    if (!needs || !isGiven(name) || needs.some(isGiven)) continue;
    throw new PluginError('usage', `--${name} needs ${needs.map((each) => `--${each}`).join(' or ')}`);
  }
}

/** Returns the option with a name, an alias or a hidden alias. */
function findOption(given: string, options: OptionRecord): [string, Option] | [] {
  return Object.entries(options).find((each) => namesOf(each).includes(given) || each[1].hiddenAlias === given) ?? [];
}

async function readValue(name: string, option: Option, given: readonly unknown[]): Promise<unknown> {
  const values = given
    .flat()
    .filter((value) => value !== undefined)
    .map((value) => (option.anyCase && typeof value === 'string' ? value.toLowerCase() : value))
    .map((value) => (typeof value === 'string' ? withoutKind(synonymOf(value, option), option) : value))
    .map((value) => (option.isTime ? readSeconds(value) : value))
    .map((value) => (option.type === 'number' && typeof value === 'string' ? readNumber(value) : value));
  if (values.length > 1 && !option.repeatable) throw new PluginError('usage', `${name} is given more than once`);
  if (values.length === 0 && option.required) throw new PluginError('usage', `${name} is missing`);
  for (const each of values) await checkValue(name, option, each);
  if (option.repeatable) return values;
  return values[0] ?? option.default ?? (option.type === 'boolean' ? false : undefined);
}

/** Checks a value of an option. Throws `usage`, and `not-found` and `not-readable` for a file that cannot be read. */
export async function checkValue(
  name: string,
  { type, choices, range, check, isTime, suggest, alsoTakes }: Option,
  value: unknown,
): Promise<void> {
  if (type === 'number') {
    const [least, most] = range ?? [-Infinity, Infinity];
    if (Number.isInteger(value) && Number(value) >= least && Number(value) <= most) return;
    if (isTime)
      throw new PluginError('usage', `${name} must be a time from ${least}s to ${most}s, such as 90s, 10m or 1m30s`);
    throw new PluginError('usage', `${name} must be a whole number from ${least} to ${most}`);
  }
  if (type === 'boolean') return;
  // The parser reads `--no-output` as false, and takes `--` as the value of a short option.
  if (typeof value !== 'string' || value === '' || value === '--')
    throw new PluginError('usage', `${name} needs a value`);
  try {
    await check?.(value);
    const isFile = alsoTakes === 'url' ? !value.includes('://') : alsoTakes === undefined || value !== '-';
    if (suggest === 'files' && isFile) await checkFile(value);
  } catch (error) {
    if (!isPluginError(error)) throw error;
    const code = error.code === 'not-found' || error.code === 'not-readable' ? error.code : 'usage';
    throw new PluginError(code, `${name}: ${error.message}`, { hint: error.hint, cause: error.cause });
  }
  if (choices && !choices.some((choice) => choice === value || (choice.endsWith('=') && value.startsWith(choice)))) {
    const similar = findSimilar(value, choices);
    const isShort = similar === undefined || choices.length <= mostChoices;
    const list = isShort ? `: it is one of ${choices.join(', ')}` : '';
    throw new PluginError('usage', `${name} cannot be “${value}”${list}`, {
      hint: similar && `Did you mean ${similar}?`,
    });
  }
}

function synonymOf(value: string, { synonyms = {} }: Option): string {
  return Object.hasOwn(synonyms, value) ? (synonyms[value] ?? value) : value;
}

/** The kinds that oc prints before names, as it takes them: `node/worker-0`. */
const kindsOf: Partial<Record<Suggestion, RegExp>> = {
  nodes: /^(?:no|nodes?)\//,
  'upgrade-bundles': /^upgradebundles?(?:\.upgrade-bundle\.openshift\.io)?\//,
};

function withoutKind(value: string, { suggest }: Option): string {
  const kind = suggest && kindsOf[suggest];
  return kind ? value.replace(kind, '') : value;
}

/** Returns a whole number of the command line; NaN if it is another text, such as a blank or `0x50`. */
function readNumber(text: string): number {
  return /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
}

/** Returns a time of the command line in seconds; NaN if it is malformed. */
function readSeconds(value: unknown): number {
  return (readDuration(String(value)) ?? Number.NaN) / 1000;
}

function dashed(name: string): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}

/** Returns the camel-case name of an argument for the name of its option. */
export function camelCase(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Returns the name of an option for the camel-case name of its argument. */
export function kebabCase(name: string): string {
  return name.replace(/(?<=[a-z0-9])[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/**
 * Checks that a file exists and is readable. Throws `not-found`, `not-readable`, and
 * `usage` for a folder.
 */
async function checkFile(path: string): Promise<void> {
  const stats = await stat(path).catch(() => undefined);
  if (!stats) throw new PluginError('not-found', `there is no file ${path}`, { hint: 'Check the path.' });
  if (stats.isDirectory()) throw new PluginError('usage', `${path} is a folder`, { hint: 'Name a file.' });
  await access(path, constants.R_OK).catch((cause: unknown) => {
    throw new PluginError('not-readable', `cannot read ${path}: permission denied`, {
      hint: 'Check its permissions.',
      cause,
    });
  });
}

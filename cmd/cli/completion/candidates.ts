import {
  defaultName,
  commandNameOf,
  type Option,
  type Program,
  type Suggestion,
  defaultOf,
  namesOf,
  type Command,
  type CommandEntry,
  type OptionRecord,
} from '../command.ts';
import { commonOptions, normalizeWord, withVersion } from '../commonOptions.ts';

/** A value that a shell suggests for a word, without the `--name=` before the value, and its description. */
interface Candidate {
  readonly word: string;
  readonly describe: string;
}

/** The suggestions for the word that is being typed. */
export interface Completion {
  readonly candidates: readonly Candidate[];
  /** The fallback of the shell if there is no candidate. */
  readonly otherwise: 'files' | 'folders' | 'nothing';
}

/** Values that are neither choices nor files. */
type FoundSuggestion = Exclude<Suggestion, 'files' | 'paths' | 'folders'>;

/**
 * Finds values of options that are neither in their records nor files: names in a kubeconfig or a cluster, versions,
 * components.
 */
export type FindValues = (
  kind: FoundSuggestion,
  values: TypedLine['values'],
  typed: string,
) => Promise<readonly string[]>;

/** Names in a kubeconfig (`default/api-site:6443/kube:admin`), and of objects in a cluster. */
const configName = /^[\w./][\w@%+=:./-]{0,1000}$/;
const objectName = /^[a-z\d][a-z\d.-]{0,252}$/;

/**
 * The values that are offered, of each kind. Names come from drives, folders, kubeconfigs and clusters. The bash
 * completion of oc 4.15 to 4.20 (cobra 1.8 and older, `compgen -W`) expands each value like a word of a script. So a
 * value has only characters that no shell expands, has a limited length, and does not begin like an option.
 */
const offeredValues: Readonly<Record<FoundSuggestion, RegExp>> = {
  bundles: /^(?:~\/)?[\w./][\w@%+=:./-]{0,1000}$/,
  contexts: configName,
  clusters: configName,
  users: configName,
  versions: /^\d[\w.-]{0,100}$/,
  'registry-versions': /^\d[\w.-]{0,100}$/,
  components: /^[a-z\d][\w.-]{0,252}$/,
  topics: /^[\w-]+$/,
  nodes: objectName,
  'upgrade-bundles': objectName,
};

/** Finds the candidates for the last of the words after the program’s name. Throws the errors of `find`. */
export async function findCandidates(
  program: Program,
  words: readonly string[],
  find: FindValues,
): Promise<Completion> {
  const typed = words.at(-1) ?? '';
  const before = words.slice(0, -1);
  const commands = program.commands
    .filter((entry) => commandNameOf(entry) !== defaultName && !entry.isInternal)
    .map((entry) => ({ word: commandNameOf(entry), describe: entry.describe }));
  const fitting = (candidates: readonly Candidate[]): Candidate[] =>
    candidates.filter(({ word }) => word.startsWith(typed));
  if (before[0] === 'help') return { candidates: before.length === 1 ? fitting(commands) : [], otherwise: 'nothing' };

  const line = await readLine(program, before);
  const [, name] = (line.ended ? null : /^--([^=]+)=/.exec(typed)) ?? [];
  if (line.awaiting) return findValues(line.awaiting[1], line, typed, find);
  if (name !== undefined) return findValues(line.options[name], line, typed.slice(name.length + 3), find);
  const options = listOptions(line);
  if (!line.ended && typed.startsWith('-')) return { candidates: fitting(options), otherwise: 'nothing' };

  const [positional] = line.positionals;
  const values = positional ? await findValues(positional, line, typed, find) : undefined;
  const verbs = line.open && !line.ended ? fitting(commands) : [];
  // Suggest options if only an option can follow.
  const only = verbs.length === 0 && !positional && line.entry && typed === '' && !line.ended ? options : [];
  return {
    candidates: [...verbs, ...(values?.candidates ?? []), ...only],
    otherwise: values?.otherwise ?? 'nothing',
  };
}

/** Lists options that are not given yet or may be repeated. */
function listOptions({ options, values }: TypedLine): Candidate[] {
  return Object.entries(options)
    .filter(([name, { repeatable }]) => repeatable ?? values[name] === undefined)
    .map(([name, { describe }]) => ({ word: `--${name}`, describe }));
}

async function findValues(
  option: Option | undefined,
  { values }: TypedLine,
  typed: string,
  find: FindValues,
): Promise<Completion> {
  const { suggest, anyCase } = option ?? {};
  if (suggest === 'folders') return { candidates: [], otherwise: suggest };
  if (suggest === 'files' || suggest === 'paths') return { candidates: [], otherwise: 'files' };
  const offered = option?.choices ?? (suggest === undefined ? [] : await findOffered(suggest, values, typed, find));
  const begun = anyCase ? typed.toLowerCase() : typed;
  const candidates = [...new Set(offered)]
    .filter((value) => value.startsWith(begun))
    .map((value) => ({ word: value, describe: value === String(option?.default ?? '') ? 'the default' : '' }));
  return { candidates, otherwise: suggest === 'bundles' ? 'files' : 'nothing' };
}

async function findOffered(
  kind: FoundSuggestion,
  values: TypedLine['values'],
  typed: string,
  find: FindValues,
): Promise<string[]> {
  return (await find(kind, values, typed)).filter((value) => offeredValues[kind].test(value));
}

/** The part of a command line before the word that is being typed. */
export interface TypedLine {
  /** The command that the words name; undefined if they name none yet. */
  readonly entry: CommandEntry | undefined;
  /** The options of the command, and the common options. */
  readonly options: OptionRecord;
  /** The remaining positional arguments, in order. */
  readonly positionals: readonly Option[];
  /** The values of options and positional arguments, by their names. */
  readonly values: Readonly<Record<string, readonly string[]>>;
  /** The option whose value is the next word, and its name. */
  readonly awaiting: readonly [name: string, option: Option] | undefined;
  /** Whether a `--` came before, so that no option follows. */
  readonly ended: boolean;
  /** Whether the first word may still become a command. */
  readonly open: boolean;
}

/** Parses the words before the current one, and ignores invalid words. Throws no errors of its own. */
async function readLine(program: Program, words: readonly string[]): Promise<TypedLine> {
  let entry = defaultOf(program);
  let command = await entry?.load().then((loaded) => loaded.command);
  const values: Record<string, string[]> = {};
  const rest: string[] = [];
  let awaiting: TypedLine['awaiting'];
  let [ended, open] = [false, true];
  for (const word of words.map(normalizeWord)) {
    const named = open && !ended ? program.commands.find((each) => commandNameOf(each) === word) : undefined;
    if (awaiting) {
      (values[awaiting[0]] ??= []).push(word);
      awaiting = undefined;
    } else if (!ended && word === '--') {
      ended = true;
    } else if (!ended && /^-./.test(word)) {
      const [spelled = '', value] = /^--?([^=]*)(?:=(.*))?$/s.exec(word)?.slice(1) ?? [];
      const optionEntry = findOption(spelled, optionsOf(command));
      if (optionEntry && value === undefined && optionEntry[1].type !== 'boolean') awaiting = optionEntry;
      else if (optionEntry) (values[optionEntry[0]] ??= []).push(value ?? 'true');
    } else if (named) {
      [entry, command, open] = [named, (await named.load()).command, false];
    } else {
      open = false;
      rest.push(word);
    }
  }
  const names = entry?.usage.match(/(?<=[<[])[\w-]+/g) ?? [];
  for (const [index, name] of names.slice(0, rest.length).entries()) values[name] = rest.slice(index, index + 1);
  const positionals = names.slice(rest.length).flatMap((name) => command?.positionals?.[name] ?? []);
  const options = open ? withVersion(optionsOf(command)) : optionsOf(command);
  return { entry, options, positionals, values, awaiting, ended, open };
}

function optionsOf(command: Command | undefined): OptionRecord {
  return { ...command?.options, ...commonOptions };
}

function findOption(spelled: string, options: OptionRecord): [name: string, option: Option] | undefined {
  return Object.entries(options).find((each) => namesOf(each).includes(spelled) || each[1].hiddenAlias === spelled);
}

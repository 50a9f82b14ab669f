import {
  defaultOf,
  commandNameOf,
  namesOf,
  type Command,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from '../command.ts';
import { commonOptions, normalizeWord, withVersion } from '../commonOptions.ts';

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
export async function readLine(program: Program, words: readonly string[]): Promise<TypedLine> {
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

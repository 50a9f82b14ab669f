import type { Context } from '#context';
import type { Terminal } from './terminal.ts';

/**
 * The kind of values that a shell suggests. Files exist already: an option with the name of another one is refused.
 * Paths may also be new, or of a file system that is not that of this process. Bundles are the tars in the typed
 * folder, and otherwise files. Versions are those of local bundles and mirror directories; components are those of the
 * bundle on the command line. Nodes and UpgradeBundles are read from the cluster.
 */
export type Suggestion =
  | 'files'
  | 'paths'
  | 'folders'
  | 'bundles'
  | 'contexts'
  | 'clusters'
  | 'users'
  | 'versions'
  | 'registry-versions'
  | 'components'
  | 'topics'
  | 'nodes'
  | 'upgrade-bundles';

/** One option or positional argument. The parser, the help text and docs/reference.md use this record. */
export interface Option {
  readonly type: 'string' | 'number' | 'boolean';
  /** A phrase for the help. It begins with a capital letter, and has no full stop. */
  readonly describe: string;
  readonly alias?: string | readonly string[];
  /** A name of another program for it, such as `--filename` of oc. It is accepted but not shown. */
  readonly hiddenAlias?: string;
  /** May be given several times. The values are then an array, which is empty by default. */
  readonly repeatable?: true;
  readonly required?: true;
  /** Names of options of which one must be given too, because this one acts only with it. */
  readonly needs?: readonly string[];
  readonly default?: string | number | boolean;
  /** The accepted values. After a choice that ends with `=`, such as `jsonpath=`, any text may follow. */
  readonly choices?: readonly string[];
  /** The values that a shell suggests if there are no choices; undefined for none. */
  readonly suggest?: Suggestion;
  /** Other words for choices, which people try: `show` for `status`. */
  readonly synonyms?: Readonly<Record<string, string>>;
  /** The choices are in lower case, and accepted in any case. */
  readonly anyCase?: true;
  /** The number is a time in seconds: `90s`, `1m30s` and `2h` are accepted too. */
  readonly isTime?: true;
  /** The smallest and the largest accepted number. */
  readonly range?: readonly [number, number];
  /** In place of the name of a file: a URL, or `-` for the standard input. */
  readonly alsoTakes?: 'url' | 'stdin';
  /**
   * Throws a PluginError for an invalid value, before the choices are checked. The name of the option is added to the
   * message.
   */
  readonly check?: (value: string) => Promise<void> | void;
  /** The heading in the help. */
  readonly group?: string;
}

/** Options by their name on the command line (`pull-secret`). */
export type OptionRecord = Readonly<Record<string, Option>>;

type Value<O> = O extends { choices: readonly (infer Choice)[] }
  ? Choice extends `${infer Name}=`
    ? `${Name}=${string}`
    : Choice
  : O extends { type: 'string' }
    ? string
    : O extends { type: 'number' }
      ? number
      : boolean;

type Argument<O extends Option> = O extends { repeatable: true }
  ? Value<O>[]
  : O extends { required: true } | { default: unknown } | { type: 'boolean' }
    ? Value<O>
    : Value<O> | undefined;

type CamelCase<S> = S extends `${infer Head}-${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;

/** The arguments of a command by its option records: values by camel-case name (`pullSecret`). */
export type Arguments<O extends OptionRecord> = { readonly [K in keyof O as CamelCase<K>]: Argument<O[K]> };

/** The environment of a command, in addition to its arguments. */
export interface CommandSession {
  /** The signal of Ctrl-C, the log, and a progress line with the label `Transferring`. */
  readonly context: Context;
  /** Prints results on stdout, and progress lines with other labels. */
  readonly terminal: Terminal;
  readonly environment: NodeJS.ProcessEnv;
  /** The standard input; nothing is read of it unless a command does. */
  readonly stdin: AsyncIterable<Buffer>;
  /** The path with which the program was started. */
  readonly executable: string;
  /** Sets the exit code for success, if it is not 0. */
  readonly setExitCode: (code: number) => void;
}

/** An example of a command line, and its description: `['--version=4.20.3 --arch=x86_64', 'Bundle 4.20.3']`. */
export type Example = readonly [args: string, what: string];

/** The file in which the options of a command can be kept. */
export interface ConfigFormat {
  /** The kind of its object. Files of oc-mirror are read too, and only these without a kind. */
  readonly kind?: string;
  /** The name of the object in a file that the command prints. */
  readonly name?: string;
  /** The option that names the file. */
  readonly option: string;
  /** Options that a file cannot have. */
  readonly without: readonly string[];
  /** Arguments that exclude each other: if one is on the command line, those in the file are ignored. */
  readonly alternatives: readonly string[];
}

interface Description<O extends OptionRecord, P extends OptionRecord> {
  /** A paragraph or two for the help of the command, below its one-line description. */
  readonly details?: string;
  /** The positional arguments by their names in the entry's `usage`. */
  readonly positionals?: P;
  readonly options: O;
  readonly examples: readonly Example[];
  /** The file with options. Options on the command line replace those in the file. */
  readonly config?: ConfigFormat;
  /** Works on the machine as root: an error of access says so. */
  readonly needsRoot?: true;
  /** Runs until it is stopped: each line of its log has the time and the level. */
  readonly isService?: true;
  /** The same command line resumes an interrupted run, which keeps all bytes that arrived, or all complete images. */
  readonly resumes?: 'bytes' | 'images';
}

interface CommandSpecification<O extends OptionRecord, P extends OptionRecord> extends Description<O, P> {
  /** Runs the command. Throws PluginError. Prints results with `session.terminal.print`. */
  run(args: Arguments<O & P>, session: CommandSession): Promise<void>;
}

/** A command without the types of its arguments, which are checked before. */
export interface Command extends Description<OptionRecord, OptionRecord> {
  run(args: Readonly<Record<string, unknown>>, session: CommandSession): Promise<void>;
}

/** Defines a command. The type of the arguments of `run` is inferred from the option records. */
export function defineCommand<const O extends OptionRecord, const P extends OptionRecord = O>(
  specification: CommandSpecification<O, P>,
): Command {
  return specification;
}

/** An entry in the list of commands of a program. Its command is loaded when it is used. */
export interface CommandEntry {
  /** The name and the positional arguments: `create`, `inspect <bundle>`; `$0 [release]` for the default command. */
  readonly usage: string;
  /** A phrase for the list of commands, without a full stop. */
  readonly describe: string;
  /** The heading of its group in the help of the program; `Commands:` by default. */
  readonly group?: string;
  /** Words that people try in its place, which an error answers with its name. */
  readonly reflexes?: readonly string[];
  /** A DaemonSet or another command runs it, so only `help --all` lists it. */
  readonly isInternal?: true;
  load(): Promise<{ readonly command: Command }>;
}

/** One program: its name on the command line, its description, and its commands. */
export interface Program {
  readonly name: string;
  readonly describe: string;
  readonly commands: readonly CommandEntry[];
}

/** The word in a `usage` for the command that runs if the command line names none. */
export const defaultName = '$0';

/** Returns the first word of the usage of a command; `$0` for the default command. */
export function commandNameOf(entry: CommandEntry): string {
  return entry.usage.split(' ', 1)[0] ?? entry.usage;
}

/** Returns the default command of a program; undefined if it has none. */
export function defaultOf(program: Program): CommandEntry | undefined {
  return program.commands.find((entry) => commandNameOf(entry) === defaultName);
}

/** Returns the words that call a command: `oc adm-upgrade-bundle create`. */
export function callOf(program: Program, entry: CommandEntry): string {
  return [program.name, commandNameOf(entry)].filter((word) => word !== defaultName).join(' ');
}

/** Returns the names of an option, without dashes and hidden names. */
export function namesOf([name, { alias = [] }]: readonly [name: string, option: Option]): string[] {
  return [name, ...[alias].flat()];
}

/** Returns options with the heading of a group. An option with a group keeps it. */
export function inGroup<const O extends OptionRecord>(group: string, options: O): O {
  const entries = Object.entries(options).map(([name, option]) => [name, { group, ...option }]);
  return Object.fromEntries(entries) as O;
}

/** Returns the usage of a command, with its positional arguments: `oc adm-upgrade-bundle inspect <bundle>`. */
export function usageOf(program: Program, entry: CommandEntry): string {
  return callOf(program, entry) + entry.usage.slice(commandNameOf(entry).length);
}

import type { Context } from '../../lib/context.ts';
import type { Terminal } from './terminal.ts';

/**
 * What a shell offers for a value: files or folders, names in the kubeconfig, versions of bundles and mirror directories that are at hand,
 * releases of the mirror registry that are known, components of the bundle that the command line names, or nodes and UpgradeBundles of
 * the cluster.
 */
export type Suggestion =
  | 'files'
  | 'folders'
  | 'contexts'
  | 'clusters'
  | 'users'
  | 'versions'
  | 'registry-versions'
  | 'components'
  | 'nodes'
  | 'upgrade-bundles';

/** One option or positional argument: the parser, the help text and docs/reference.md all come from it. */
export interface Option {
  readonly type: 'string' | 'number' | 'boolean';
  /** A phrase for the help, beginning with a capital letter and without a full stop. */
  readonly describe: string;
  readonly alias?: string | readonly string[];
  /** A name of earlier versions: accepted, and shown nowhere. */
  readonly hiddenAlias?: string;
  /** May be given several times; the values are then an array, empty where it is not given. */
  readonly repeatable?: true;
  readonly required?: true;
  readonly default?: string | number | boolean;
  readonly choices?: readonly string[];
  /** What a shell offers for its value where there are no choices; nothing where this is absent. */
  readonly suggest?: Suggestion;
  /** The choices are in small letters, and may be given in capitals. */
  readonly anyCase?: true;
  /** The smallest and the largest number that is accepted. */
  readonly range?: readonly [number, number];
  /** Throws PluginError for a value that cannot be right, whatever else is asked for; the option's name is put before the message. */
  readonly check?: (value: string) => Promise<void> | void;
  /** Which headline of the help it stands under. */
  readonly group?: string;
}

/** Options by their name on the command line (`pull-secret`). */
export type OptionRecord = Readonly<Record<string, Option>>;

type Value<O> = O extends { choices: readonly (infer Choice)[] }
  ? Choice
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

/** What a command is given for its option records: values by camel-case name (`pullSecret`). */
export type Arguments<O extends OptionRecord> = { readonly [K in keyof O as CamelCase<K>]: Argument<O[K]> };

/** What a command has besides its arguments. */
export interface CommandSession {
  /** The signal of Ctrl-C, the log, and a progress line called `Transferring`. */
  readonly context: Context;
  /** Results on stdout, and progress lines with a name of their own. */
  readonly terminal: Terminal;
  readonly environment: NodeJS.ProcessEnv;
  /** The standard input; nothing is read of it unless a command does. */
  readonly stdin: AsyncIterable<Buffer>;
  /** The path that the program was started by. */
  readonly executable: string;
  /** What the program ends with when the command succeeds, where that is not 0. */
  readonly setExitCode: (code: number) => void;
}

/** A command line and what it does, e.g. `['--version=4.20.3 --arch=x86_64', 'Bundle 4.20.3']`. */
export type Example = readonly [args: string, what: string];

interface Description<O extends OptionRecord, P extends OptionRecord> {
  /** A paragraph or two for the command's own help, below the one-line description. */
  readonly details?: string;
  /** The positional arguments by the names they have in the entry's `usage`. */
  readonly positionals?: P;
  readonly options: O;
  readonly examples: readonly Example[];
  /** Runs until it is stopped: each line of its log has the time and the level. */
  readonly isService?: true;
}

interface CommandSpecification<O extends OptionRecord, P extends OptionRecord> extends Description<O, P> {
  /** Does the work; throws PluginError. Results go to `session.terminal.print`. */
  run(args: Arguments<O & P>, session: CommandSession): Promise<void>;
}

/** A command whose argument types have been checked and forgotten. */
export interface Command extends Description<OptionRecord, OptionRecord> {
  run(args: Readonly<Record<string, unknown>>, session: CommandSession): Promise<void>;
}

/** Makes a command; what `run` gets is inferred from the option records. */
export function defineCommand<const O extends OptionRecord, const P extends OptionRecord = O>(
  specification: CommandSpecification<O, P>,
): Command {
  return specification;
}

/** A line in a program's list of commands. The command itself is loaded when it is used. */
export interface CommandEntry {
  /** The name and the positional arguments: `create`, `inspect <bundle>`; `$0 [release]` for the command without a name. */
  readonly usage: string;
  /** One sentence for the list of commands, without a full stop. */
  readonly describe: string;
  /** The heading of its group in the help of the program; `Commands:` by default. */
  readonly group?: string;
  /** As those of a program, for this command. */
  readonly spellings?: Readonly<Record<string, string>>;
  load(): Promise<{ readonly command: Command }>;
}

/** One executable: its name as it is typed, what it is for, and its commands. */
export interface Program {
  readonly name: string;
  readonly describe: string;
  readonly commands: readonly CommandEntry[];
  /** Words of the command line that stand for others: `--dry-run` for `--dry-run=client`. */
  readonly spellings?: Readonly<Record<string, string>>;
}

/** What stands in a `usage` in place of a word, where none is needed. */
export const defaultName = '$0';

/** The word that calls a command; `$0` where none does. */
export function commandNameOf(entry: CommandEntry): string {
  return entry.usage.split(' ', 1)[0] ?? entry.usage;
}

/** The command that a program is without the word of one. */
export function defaultOf(program: Program): CommandEntry | undefined {
  return program.commands.find((entry) => commandNameOf(entry) === defaultName);
}

/** What is typed to call a command: `oc adm-upgrade-bundle create`. */
export function callOf(program: Program, entry: CommandEntry): string {
  return [program.name, commandNameOf(entry)].filter((word) => word !== defaultName).join(' ');
}

/** Returns the names of an option, without dashes and hidden names. */
export function namesOf([name, { alias = [] }]: readonly [name: string, option: Option]): string[] {
  return [name, ...[alias].flat()];
}

/** How a command is called, with its positional arguments: `oc adm-upgrade-bundle inspect <bundle>`. */
export function usageOf(program: Program, entry: CommandEntry): string {
  return callOf(program, entry) + entry.usage.slice(commandNameOf(entry).length);
}

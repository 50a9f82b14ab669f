import {
  callOf,
  commandNameOf,
  defaultName,
  defaultOf,
  namesOf,
  usageOf,
  type Command,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from './command.ts';
import { commonOptions, withVersion } from './commonOptions.ts';
import { breakLine, defaultWidth } from './format.ts';

/** The group of options that only the command `options` lists. */
export const clusterGroup = 'Cluster:';

/** The group of the options that a beginner needs. */
const usualGroup = 'Usual:';

/** The widest column of names, in characters. A longer name gets a line of its own. */
const widestName = 40;

/** The layout of a help: its width in characters, and whether it lists commands that DaemonSets run. */
interface HelpLayout {
  readonly width?: number;
  readonly isWhole?: boolean;
}

/** Returns the help of a program, or of one of its commands, without a line end. */
export async function formatHelp(
  program: Program,
  entry?: CommandEntry,
  { width = defaultWidth, isWhole = false }: HelpLayout = {},
): Promise<string> {
  const shown = entry ?? defaultOf(program);
  const isRoot = shown === defaultOf(program);
  const command = await shown?.load().then((loaded) => loaded.command);
  const options = { ...(isRoot ? withVersion(command?.options) : command?.options), ...commonOptions };
  const groups = formatOptions({ options, examples: command?.examples ?? [] }, program, width);
  // A beginner reads the first screen.
  const usual = groups.filter((text) => text.startsWith(usualGroup));
  const sections = [
    ...(shown ? [`${shown.describe}.`, command?.details ?? ''] : [program.describe]).map((text) => wrap(text, width)),
    `Usage:\n  ${shown ? usageOf(program, shown) : `${program.name} <command>`} [options]`,
    ...usual,
    shown && command ? formatExamples(callOf(program, shown), command) : '',
    ...(isRoot ? formatCommands(program, width, isWhole) : []),
    formatRows('Arguments:', Object.entries(command?.positionals ?? {}).map(describeArgument), width),
    ...groups.filter((text) => !usual.includes(text)),
    isRoot ? wrap(`Use "${program.name} <command> --help" for more information about a command.`, width) : '',
    isRoot && !isWhole && program.commands.some(({ isInternal }) => isInternal)
      ? wrap(`Use "${program.name} help --all" to list also the commands that DaemonSets run.`, width)
      : '',
  ];
  return sections.filter((section) => section !== '').join('\n\n');
}

/** Returns a list of options under a heading, as a help text shows them. */
export function formatOptionList(heading: string, options: OptionRecord, width = defaultWidth): string {
  return formatRows(heading, Object.entries(options).map(describeOption), width);
}

function formatCommands({ commands }: Program, width: number, all: boolean): string[] {
  const named = commands.filter((entry) => commandNameOf(entry) !== defaultName && (all || !entry.isInternal));
  const column = Math.max(...named.map((entry) => commandNameOf(entry).length));
  return [...Map.groupBy(named, ({ group = 'Commands:' }) => group)].map(([heading, entries]) =>
    formatRows(
      heading,
      entries.map((entry) => [commandNameOf(entry).padEnd(column), entry.describe]),
      width,
    ),
  );
}

/**
 * Returns options by the headings of their groups, in the order of the records. First come the options of the first
 * example, in its order, because a beginner needs them.
 */
export function groupOptions({
  options,
  examples,
}: Pick<Command, 'options' | 'examples'>): [heading: string, options: OptionRecord][] {
  const given = [...(examples[0]?.[0] ?? '').matchAll(/(?<= |^)--?([a-z][a-z-]*)/g)].map(([, name]) => name);
  const entries = Object.entries(options);
  const usual = given.flatMap((name) => entries.filter((each) => namesOf(each).some((own) => own === name)));
  const others = entries.filter((each) => !usual.includes(each));
  const groups = new Map([
    ...(usual.length > 0 ? [[usualGroup, usual] as const] : []),
    ...Map.groupBy(others, ([, { group = 'Options:' }]) => group),
  ]);
  return [...groups].map(([group, own]) => [group, Object.fromEntries(own)]);
}

function formatOptions(command: Pick<Command, 'options' | 'examples'>, program: Program, width: number): string[] {
  const hasList = program.commands.some((entry) => commandNameOf(entry) === 'options');
  return groupOptions(command).map(([group, own]) => {
    if (group !== clusterGroup || !hasList) return formatOptionList(group, own, width);
    return wrap(
      `Use "${program.name} options" for a list of options that choose the cluster, such as --kubeconfig.`,
      width,
    );
  });
}

/** Examples are never wrapped, so that they can be copied. */
function formatExamples(call: string, { examples }: Command): string {
  const lines = examples.flatMap(([args, what]) => [`  # ${what}`, `  ${call} ${args}`.trimEnd(), '']);
  return ['Examples:', ...lines].join('\n').trimEnd();
}

type Row = readonly [name: string, text: string];

/** Returns the names of an option with its kind of value, and its description with its notes. */
export function describeOption([name, option]: [string, Option]): Row {
  const [short, ...long] = namesOf([name, option]).sort((a, b) => Number(a.length > 1) - Number(b.length > 1));
  const names = short?.length === 1 ? [`-${short}`, ...long.map((each) => `--${each}`)] : [`    --${short ?? ''}`];
  const others = short?.length === 1 ? [] : long.map((each) => `--${each}`);
  const value = option.isTime ? ' duration' : { string: ' string', number: ' int', boolean: '' }[option.type];
  return [[...names, ...others].join(', ') + value, phraseOf(option)];
}

/** Returns the name of a positional argument, and its description with its notes. */
export function describeArgument([name, { required: _, ...option }]: [string, Option]): Row {
  return [name, phraseOf(option)];
}

function phraseOf({ describe: text, choices = [], required, repeatable, default: value, isTime }: Option): string {
  const notes = [
    choices.join(', '),
    required ? 'required' : '',
    repeatable ? 'repeatable' : '',
    value === undefined || value === false ? '' : `default: ${value}${isTime ? 's' : ''}`,
  ];
  return [text, ...notes.filter((note) => note !== '').map((note) => `(${note})`)].join(' ');
}

function formatRows(heading: string, rows: readonly Row[], width: number): string {
  if (rows.length === 0) return '';
  const column = Math.min(widestName, Math.max(...rows.map(([name]) => name.length)));
  const indent = ' '.repeat(column + 4);
  const lines = rows.map(([name, text]) => {
    const block = wrap(text, Math.max(20, width - indent.length)).replaceAll('\n', `\n${indent}`);
    return name.length > column ? `  ${name}\n${indent}${block}` : `  ${name.padEnd(column)}  ${block}`;
  });
  return [heading, ...lines].join('\n');
}

/** Breaks text into lines of a width. Keeps an indented line unchanged. */
function wrap(text: string, width: number): string {
  return text
    .split('\n')
    .flatMap((line) => (line.startsWith(' ') ? [line] : breakLine(line, width)))
    .join('\n');
}

/** The man pages of the programs and their commands, from the records that the parser and the help use. */
import {
  callOf,
  commandNameOf,
  defaultOf,
  usageOf,
  type CommandEntry,
  type OptionRecord,
  type Program,
} from '../cmd/cli/command.ts';
import { commonOptions, versionOption } from '../cmd/cli/commonOptions.ts';
import { formatSection, listTopics } from '../cmd/cli/explanations.ts';
import { exitMeanings } from '../cmd/cli/failure.ts';
import { describeArgument, describeOption, groupOptions } from '../cmd/cli/help.ts';
import manifest from '../package.json' with { type: 'json' };

/** Returns the man pages of programs by their file names, such as `oc-adm-upgrade-bundle-create.1`. */
export async function manPages(programs: readonly Program[]): Promise<Map<string, string>> {
  const pages = new Map<string, string>();
  for (const program of programs) {
    pages.set(`${nameOf(program)}.1`, await formatPage(program, defaultOf(program)));
    for (const entry of namedCommands(program))
      pages.set(`${nameOf(program, entry)}.1`, await formatPage(program, entry));
  }
  return pages;
}

async function formatPage(program: Program, entry: CommandEntry | undefined): Promise<string> {
  const isProgram = entry === defaultOf(program);
  const summary = entry?.describe ?? program.describe;
  const { command } = (await entry?.load()) ?? {};
  const options: OptionRecord = { ...command?.options, ...(isProgram && versionOption), ...commonOptions };
  const name = nameOf(program, isProgram ? undefined : entry);
  const [first = '', ...positionals] = (entry ? usageOf(program, entry) : `${program.name} <command>`)
    .split(/ (?=[<[])/)
    .map(escape);
  const others = isProgram ? namedCommands(program).map((each) => nameOf(program, each)) : [nameOf(program)];
  const lines = [
    // No date, so that the same commit gives the same bytes.
    `.TH ${name.toUpperCase()} 1 "" "${manifest.name} ${manifest.version}" "${manifest.name}"`,
    '.nh',
    '.ad l',
    '.SH NAME',
    `${escape(name)} \\- ${escape(summary.replace(/\.$/, ''))}`,
    '.SH SYNOPSIS',
    `.B ${first}`,
    ...positionals,
    '[options]',
    '.SH DESCRIPTION',
    escape(summary.replace(/\.?$/, '.')),
    ...formatDetails(command?.details ?? ''),
    ...(isProgram ? listCommands(program) : []),
    ...formatList('ARGUMENTS', Object.entries(command?.positionals ?? {}).map(describeArgument)),
    '.SH OPTIONS',
    ...groupOptions({ options, examples: command?.examples ?? [] }).flatMap(([group, own]) => [
      ...(group === 'Options:' ? [] : [`.SS ${escape(group.replace(/:$/, ''))}`]),
      ...formatTerms(Object.entries(own).map(describeOption)),
    ]),
    ...(command ? ['.SH EXAMPLES'] : []),
    ...(command?.examples ?? []).flatMap(([args, what]) => [
      '.PP',
      `${escape(what)}:`,
      '.PP',
      '.RS 4',
      '.nf',
      escape(`${entry ? callOf(program, entry) : program.name} ${args}`),
      '.fi',
      '.RE',
    ]),
    ...(entry && commandNameOf(entry) === 'explain' ? explainErrors() : []),
    ...formatList('EXIT STATUS', Object.entries(exitMeanings)),
    '.SH SEE ALSO',
    ...others.map((each, index) => `.BR ${escape(each)} (1)${index < others.length - 1 ? ',' : ''}`),
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns docs/troubleshooting.md as a section. */
function explainErrors(): string[] {
  const codes = listTopics().filter(({ kind }) => kind === 'code');
  const sections = codes.map(({ name, text }) => [
    `.SS ${escape(name)}`,
    ...formatLines(formatSection(text, Infinity)),
  ]);
  return ['.SH ERRORS', ...sections.flat()];
}

/** Formats paragraphs and items, each of which is one line. */
function formatLines(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [, item] = /^ +- (.*)$/.exec(line) ?? [];
    if (item !== undefined) return ['.IP \\(bu 2', breakable(item)];
    return line === '' ? ['.PP'] : [breakable(line)];
  });
}

/** Escapes a line, and lets long paths in it be broken. */
function breakable(line: string): string {
  return escape(line).replaceAll('/', '/\\:');
}

function listCommands(program: Program): string[] {
  return [...Map.groupBy(namedCommands(program), ({ group = 'Commands:' }) => group)].flatMap(([group, entries]) =>
    formatList(
      group.replace(/:$/, '').toUpperCase(),
      entries.map((entry) => [commandNameOf(entry), `${entry.describe}.`]),
    ),
  );
}

type Row = readonly [term: string, text: string];

function formatList(heading: string, rows: readonly Row[]): string[] {
  return rows.length === 0 ? [] : [`.SH ${escape(heading)}`, ...formatTerms(rows)];
}

function formatTerms(rows: readonly Row[]): string[] {
  return rows.flatMap(([term, text]) => ['.TP', `.B ${escape(term.trim())}`, escape(text)]);
}

/** Formats paragraphs, and keeps the lines of indented ones. */
function formatDetails(details: string): string[] {
  return details.split('\n\n').flatMap((paragraph) => {
    if (paragraph === '') return [];
    const lines = paragraph.split('\n').map((line) => escape(line.trim()));
    return paragraph.startsWith(' ') ? ['.PP', '.RS 4', '.nf', ...lines, '.fi', '.RE'] : ['.PP', ...lines];
  });
}

/** Returns the commands of a program that have a name. */
function namedCommands(program: Program): CommandEntry[] {
  return program.commands.filter((entry) => entry !== defaultOf(program));
}

/** Returns the name of a page: the words of a command line, joined by dashes. */
function nameOf(program: Program, entry?: CommandEntry): string {
  return (entry ? callOf(program, entry) : program.name).replaceAll(' ', '-');
}

/** Escapes a line for roff: in ASCII, with dashes that can be copied, and without requests. */
function escape(text: string): string {
  return text
    .replaceAll('…', '...')
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('"', '\\(dq')
    .replaceAll(
      /[^ -~]/gu,
      (character) => `\\[u${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}]`,
    )
    .replace(/^(?=[.'])/, '\\&');
}

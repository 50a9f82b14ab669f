import { readFileSync } from 'node:fs';
import { PluginError, errorCodes } from '#errors';
import { Lines } from '#text';
import { isMisread } from '#update/screen';
import { defineCommand } from './command.ts';
import { breakHanging, breakLine, formatTable } from './format.ts';
import { findSimilar } from './similar.ts';

/** The pages of docs that explain names. */
export const explainingPages = [
  'troubleshooting.md',
  'lint-rules.md',
  'how-to/update-without-a-registry.md',
  'how-to/update-stands-still.md',
  'screen-codes.md',
] as const;

/**
 * The texts of these pages in a built executable, in their order, as JSON, which the build defines. It is undefined in
 * the sources.
 */
declare const __EXPLAINING_PAGES__: string | undefined;

/** A name that a page explains. */
interface Topic {
  readonly name: string;
  readonly kind: 'code' | 'rule' | 'phase' | 'condition' | 'reason' | 'screen';
  /** The condition of a reason. */
  readonly of?: string;
  /** The explanation in Markdown: the section of a code or a rule, or the cell of a table. */
  readonly text: string;
}

/**
 * The code in a line that this program printed: `error (tls): …`, `"code":"tls"`, or the advice `… explain tls`; or on
 * the screen of a node: `… read the code: 7392`, `(code 5287)`.
 */
const pastedCode = /\(([a-z-]+)\)(?=:?(?:\s|$))|"code": ?"([a-z-]+)"|\bexplain ([a-z-]+)$|\bcode:? (\d{4})\b/i;

let topics: readonly Topic[] | undefined;

/** Returns all names that the pages explain. A reason is there for each condition that may have it. */
export function listTopics(): readonly Topic[] {
  topics ??= readPages().flatMap((page, index) => {
    if (index === 0) return readSections(page, 'code');
    if (index === explainingPages.indexOf('screen-codes.md')) return readSections(page, 'screen');
    return index === 1 ? readSections(page, 'rule') : readTables(page);
  });
  return topics;
}

/**
 * Finds what a text names, in any case: a name, the whole line of an error, or a line of `status` or `lint`. Throws
 * `usage` with a similar name if it names nothing.
 */
export function findTopics(text: string): readonly Topic[] {
  const named = (word: string): Topic[] => listTopics().filter(({ name }) => name.toLowerCase() === word.toLowerCase());
  const [, code = text.replace(/^[^\w]+|[^\w]+$/g, '')] = pastedCode.exec(text)?.filter(Boolean) ?? [];
  const whole = named(code);
  if (whole.length > 0) return whole;
  // A word of a sentence may be the name of a code, such as “conflict”; none has a hyphen there.
  const words = [...new Set(text.split(/[^\w-]+/))];
  const isName = (word: string, { name, kind }: Topic): boolean =>
    name === word && (kind !== 'code' || name.includes('-'));
  const inside = words.flatMap((word) => named(word).filter((topic) => isName(word, topic)));
  if (inside.length > 0) return inside;
  if (isMisread(code))
    throw new PluginError('usage', `no screen shows the code ${code}: one of its digits is wrong`, {
      hint: 'Have the code read out again, digit by digit.',
    });
  const similar = findSimilar(
    text.toLowerCase(),
    listTopics().map(({ name }) => name.toLowerCase()),
  );
  const meant = listTopics().find(({ name }) => name.toLowerCase() === similar)?.name;
  throw new PluginError('usage', `nothing explains “${text}”`, {
    hint: meant === undefined ? 'Without an argument, explain lists all that it explains.' : `Did you mean ${meant}?`,
  });
}

function readPages(): readonly string[] {
  if (typeof __EXPLAINING_PAGES__ === 'string') return JSON.parse(__EXPLAINING_PAGES__) as string[];
  return explainingPages.map((path) => readFileSync(new URL(`../../docs/${path}`, import.meta.url), 'utf8'));
}

/** Reads the sections whose title is a name, such as `tls`, `pull-always` or `7392`. */
function readSections(page: string, kind: 'code' | 'rule' | 'screen'): Topic[] {
  return page.split('\n## ').flatMap((section) => {
    const [, name, text] = /^([a-z]+(?:-[a-z]+)*|\d{4})\n(.*)$/s.exec(section) ?? [];
    return name === undefined || text === undefined ? [] : [{ name, kind, text: text.trim() }];
  });
}

/**
 * Reads the tables of phases, conditions and reasons. The title above a table of reasons is that of their condition.
 */
function readTables(page: string): Topic[] {
  const found: Topic[] = [];
  let [title, columns]: [string, string[]] = ['', []];
  for (const line of page.split('\n')) {
    title = /^## (.*)$/.exec(line)?.[1] ?? title;
    if (!line.startsWith('| ')) {
      columns = [];
      continue;
    }
    const cells = line
      .slice(1, -1)
      .split(' | ')
      .map((cell) => cell.trim());
    if (columns.length === 0) columns = cells;
    else found.push(...readRow(columns, cells, title));
  }
  return found;
}

function readRow([head = '', ...columns]: readonly string[], [first = '', ...cells]: readonly string[], title: string) {
  const names = [...first.matchAll(/`(\w+)`/g)].map(([, name = '']) => name);
  const isPlain = columns.length === 1 && !columns[0]?.includes('`');
  const text = cells
    .map((cell, index) => (isPlain ? cell : `${columns[index]?.replace('meaning ', '') ?? ''}: ${cell}`))
    .join('; ');
  const [condition = '', ...reasons] = names;
  const kinds: Readonly<Record<string, () => Topic[]>> = {
    phase: () => names.map((name) => ({ name, kind: 'phase', text })),
    condition: () => names.map((name) => ({ name, kind: 'condition', text })),
    reason: () => names.map((name) => ({ name, kind: 'reason', of: title, text })),
    'condition and reason': () => reasons.map((name) => ({ name, kind: 'reason', of: condition, text })),
  };
  return kinds[head]?.() ?? [];
}

const kinds = {
  screen: 'Codes on the screens of nodes',
  phase: 'Phases',
  condition: 'Conditions',
  reason: 'Reasons',
  rule: 'Rules of lint',
} as const;

/** `explain`: prints what an error or a state of an update means, and what to do. */
export const command = defineCommand({
  details:
    'Prints the usual causes of an error and what to do, without a network. Also explains phases, conditions and ' +
    'reasons of an update, the codes on the screens of nodes, and the rules of lint. Without an argument, lists all ' +
    'names.',
  positionals: {
    code: {
      type: 'string',
      suggest: 'topics',
      check: (text: string) => void findTopics(text),
      describe: 'The code of an error, such as tls in “error (tls): …”, another name, or the whole line in quotes',
    },
  },
  options: {},
  examples: [
    ['tls', 'Explain errors with a certificate'],
    ['WaitingForNodes', 'Explain the reason of a condition that status shows'],
    ['7392', 'Explain a code that a technician reads out from the screen of a node'],
    ['', 'List all names'],
  ],
  run({ code }, { terminal }) {
    const width = terminal.textWidth;
    if (code === undefined) terminal.print(formatList(width));
    else
      terminal.print(
        Lines.split(
          findTopics(code)
            .map((topic) => formatTopic(topic, width))
            .join('\n'),
        ),
      );
    return Promise.resolve();
  },
});

function formatList(width: number): Lines {
  const others = Object.entries(kinds).flatMap(([kind, title]) => {
    const names = new Set(listTopics().flatMap((topic) => (topic.kind === kind ? [topic.name] : [])));
    return ['', ...breakHanging(`${title}: ${[...names].sort().join(', ')}`, width)];
  });
  return new Lines(formatTable([['CODE', 'MEANING'], ...Object.entries(errorCodes)], [], width), ...others);
}

/** Returns an explanation as plain text, in lines of at most `width` characters. */
export function formatTopic({ name, kind, of, text }: Topic, width: number): string {
  if (kind === 'code' || kind === 'rule' || kind === 'screen') return formatSection(`${name}: ${text}`, width);
  const place = of === undefined ? kind : `${kind} of ${of}`;
  return breakHanging(`${name} (${place}): ${toPlainText(text)}`, width).join('\n');
}

/** Returns the section of a page as plain text, in lines of at most `width` characters. */
export function formatSection(section: string, width: number): string {
  // A line that continues a paragraph or an item belongs to it.
  const text = section.replace(/\n *(?=[^\s|-])(?<!\n\n *)/g, ' ');
  return toPlainText(text)
    .split('\n')
    .flatMap((part) => wrapItem(part, width))
    .join('\n');
}

/** Removes the marks of Markdown, and makes each row of a table an item. */
function toPlainText(text: string): string {
  return text
    .replace(/^\|.*\n\|[ |-]*\|\n/gm, '')
    .replace(/^\| *(.*?) *\| *(.*?) *\| *(.*?) *\|$/gm, '  - $1: $2 - $3')
    .replace(/^- \*\*(.*?)\.\*\*/gm, '\n$1:')
    .replace(/\n{3,}/g, '\n\n')
    .replace(/\[([^\]]*)\]\((?:#.*?|(.*?))\)/g, (_, words: string, file?: string) =>
      file === undefined ? words : /^https?:/.test(file) ? `${words} (${file})` : `docs/${file}`,
    );
}

function wrapItem(item: string, width: number): string[] {
  const [indent = ''] = /^ *(?:- )?/.exec(item) ?? [];
  const [first = '', ...others] = breakLine(item.slice(indent.length), width - indent.length);
  return [indent + first, ...others.map((line) => ' '.repeat(indent.length) + line)];
}

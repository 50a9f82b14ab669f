import { errorCodes } from '../../../lib/errors.ts';
import { Lines } from '../../../lib/lines.ts';
import { defineCommand } from '../command.ts';
import { breakHanging, breakLine, formatTable } from '../format.ts';
import { findTopics, listTopics, type Topic } from '../explanations.ts';

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
    'Prints the usual causes of an error and what to do, without a network. Also explains phases, conditions and reasons of an ' +
    'update, the codes on the screens of nodes, and the rules of lint. Without an argument, lists all names.',
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

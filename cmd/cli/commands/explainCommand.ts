import { errorCodes, type ErrorCode } from '../../../lib/errors.ts';
import { defineCommand } from '../command.ts';
import { formatTable, breakLine } from '../format.ts';
import { readFile } from 'node:fs/promises';
import { Lines } from '../../../lib/lines.ts';

/** `explain`: prints what causes an error, and what to do. */
export const command = defineCommand({
  details: 'Prints the usual causes of an error and what to do, without a network. Without a code, lists all codes.',
  positionals: {
    code: {
      type: 'string',
      choices: Object.keys(errorCodes) as ErrorCode[],
      anyCase: true,
      within: /\berror \(([a-z-]+)\):/i,
      describe: 'The code of an error, such as tls in “error (tls): …”, or the whole line',
    },
  },
  options: {},
  examples: [
    ['tls', 'Explain errors with a certificate'],
    ['', 'List all codes'],
  ],
  async run({ code }, { terminal }) {
    const width = terminal.textWidth;
    if (code === undefined)
      terminal.print(formatTable([['CODE', 'MEANING'], ...Object.entries(errorCodes)], [], width));
    else terminal.print(Lines.split(`${code}: ${formatErrorPage(await readErrorPages(), code, width)}`));
  },
});

/** The text of docs/troubleshooting.md in a built executable, which the build defines. It is undefined in the sources. */
declare const __TROUBLESHOOTING__: string | undefined;

/** Returns docs/troubleshooting.md, which explains every error code. */
export async function readErrorPages(): Promise<string> {
  if (typeof __TROUBLESHOOTING__ === 'string') return __TROUBLESHOOTING__;
  return readFile(new URL('../../../docs/troubleshooting.md', import.meta.url), 'utf8');
}

/** Returns the section of an error code as plain text, in lines of at most `width` characters. */
export function formatErrorPage(pages: string, code: ErrorCode, width: number): string {
  const [, rest = ''] = pages.split(`\n## ${code}\n`);
  const [section = ''] = rest.split('\n## ');
  // A line that continues a paragraph or an item belongs to it.
  const text = section.trim().replace(/\n *(?=[^\s|-])(?<!\n\n *)/g, ' ');
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
      file === undefined ? words : `docs/${file}`,
    );
}

function wrapItem(item: string, width: number): string[] {
  const [indent = ''] = /^ *(?:- )?/.exec(item) ?? [];
  const [first = '', ...others] = breakLine(item.slice(indent.length), width - indent.length);
  return [indent + first, ...others.map((line) => ' '.repeat(indent.length) + line)];
}

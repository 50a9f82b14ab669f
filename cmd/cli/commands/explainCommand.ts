import { errorCodes, type ErrorCode } from '../../../lib/errors.ts';
import { defineCommand } from '../command.ts';
import { formatErrorPage, readErrorPages } from './errorPages.ts';
import { formatTable } from '../format.ts';

/** `explain`: prints what causes an error, and what to do. */
export const command = defineCommand({
  details: 'Prints the usual causes of an error and what to do, without a network. Without a code, lists all codes.',
  positionals: {
    code: {
      type: 'string',
      choices: Object.keys(errorCodes) as ErrorCode[],
      describe: 'The code of an error, such as tls in “error (tls): …”',
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
    else terminal.print(`${code}: ${formatErrorPage(await readErrorPages(), code, width)}`);
  },
});

import { defineCommand } from '../command.ts';
import { formatResult } from '../format.ts';
import { outputOption } from '../options.ts';
import { commit, version, versionText } from '../version.ts';

/** `version`: prints the version of this program. */
export const command = defineCommand({
  options: outputOption(),
  examples: [
    ['', 'Print the version'],
    ['-o json', 'Print version and commit as JSON'],
  ],
  async run({ output }, { terminal }) {
    const result = { version, commit };
    terminal.print(await formatResult(output, result, versionText));
  },
});

import { defineCommand } from '../command.ts';
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
    await terminal.printResult(output, { version, commit }, versionText);
  },
});

import type { OptionRecord } from './command.ts';

const general = 'General:';

/** Options of every command. */
export const commonOptions = {
  verbose: {
    type: 'boolean',
    alias: 'v',
    describe: 'Print every request, and the full cause of an error',
    group: general,
  },
  quiet: {
    type: 'boolean',
    alias: 'q',
    describe: 'Print only results, warnings and errors',
    group: general,
  },
  color: {
    type: 'string',
    choices: ['auto', 'always', 'never'],
    default: 'auto',
    describe: 'When to use colors; also --color and --no-color',
    group: general,
  },
  'log-format': {
    type: 'string',
    choices: ['text', 'json'],
    default: 'text',
    describe: 'Format of messages on stderr',
    group: general,
  },
  help: { type: 'boolean', alias: 'h', describe: 'Print this help', group: general },
} as const satisfies OptionRecord;

/** The option of a program, but not of its commands. */
export const versionOption = {
  version: { type: 'boolean', describe: 'Print the version of this program', group: general },
} as const satisfies OptionRecord;

/** Returns the options of the default command of a program, which may have its own option `version` with a value. */
export function withVersion(options: OptionRecord = {}): OptionRecord {
  return { ...(options['version'] === undefined && versionOption), ...options };
}

const spellings = new Map([
  ['--color', '--color=always'],
  ['--no-color', '--color=never'],
  ['--dry-run', '--dry-run=client'],
  ['--dry-run=true', '--dry-run=client'],
  ['--dry-run=false', '--dry-run=none'],
]);

/** Returns the usual spelling of a word: `--dry-run` and `--color` have no separate value. */
export function normalizeWord(word: string): string {
  return spellings.get(word) ?? word;
}

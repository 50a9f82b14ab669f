import type { OptionRecord } from './command.ts';

const general = 'General:';

/** Options of every command. */
export const commonOptions = {
  verbose: {
    type: 'boolean',
    alias: 'v',
    describe: 'Tell more: every request, and what was underneath an error',
    group: general,
  },
  quiet: {
    type: 'boolean',
    alias: 'q',
    describe: 'Show no progress, only warnings, errors and results',
    group: general,
  },
} as const satisfies OptionRecord;

/** How else `--dry-run` is written, as kubectl and oc have it; its value never is a word of its own. */
export const dryRunSpellings = {
  '--dry-run': '--dry-run=client',
  '--dry-run=true': '--dry-run=client',
  '--dry-run=false': '--dry-run=none',
} as const;

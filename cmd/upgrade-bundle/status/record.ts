import type { Accents } from '../../cli/colors.ts';
import type { OptionRecord } from '../../cli/command.ts';

/** The argument of every command about an UpgradeBundle of the cluster. */
export const recordArgument = {
  name: {
    type: 'string',
    describe: 'Name of an UpgradeBundle (default: the one in progress)',
    suggest: 'upgrade-bundles',
  },
} as const satisfies OptionRecord;

/** The colors of the phases of an UpgradeBundle and of its nodes. */
export const phaseAccents = {
  ...{ Verified: 'busy', Loading: 'busy', Loaded: 'busy', Pinned: 'busy', Upgrading: 'busy' },
  ...{ Held: 'doubtful', Completed: 'good', Failed: 'bad' },
} as const satisfies Accents;

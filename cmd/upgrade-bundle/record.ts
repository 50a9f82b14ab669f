import type { OptionRecord } from '../cli/command.ts';

/** The argument of every command about an UpgradeBundle of the cluster. */
export const recordArgument = {
  name: {
    type: 'string',
    describe: 'Name of an UpgradeBundle; the one that the cluster is at work on if not given',
    suggest: 'upgrade-bundles',
  },
} as const satisfies OptionRecord;

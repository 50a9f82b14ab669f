import type { OptionRecord } from '../cli/command.ts';

/** The argument of every command about an UpgradeBundle of the cluster. */
export const recordArgument = {
  name: {
    type: 'string',
    describe: 'Name of an UpgradeBundle; by default the one in progress',
    suggest: 'upgrade-bundles',
  },
} as const satisfies OptionRecord;

import type { OptionRecord } from '../../cli/command.ts';

/** The options of every command that uses the image store or the configuration of a machine. */
export const hostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Root folder of the machine, such as /host in a container',
    suggest: 'folders',
  },
} as const satisfies OptionRecord;

import type { OptionRecord } from '../../cli/command.ts';

/** Options of every command that works on the image store or the configuration of a machine. */
export const hostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Where the file system of that machine is, such as /host in a container of its own',
    suggest: 'folders',
  },
} as const satisfies OptionRecord;

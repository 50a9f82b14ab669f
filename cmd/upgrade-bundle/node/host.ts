import type { OptionRecord } from '../../cli/command.ts';

/** The options of every command that uses the image store or the configuration of a machine. */
export const hostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Where the file system of that machine is, such as /host in a container of its own',
    suggest: 'folders',
  },
} as const satisfies OptionRecord;

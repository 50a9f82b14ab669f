import { Lines } from '#text';
import { defineCommand } from '../command.ts';
import { formatOptionList } from '../help.ts';
import { clusterAccessOptions } from '../options.ts';

/** `options`: lists the options of the cluster connection. */
export const command = defineCommand({
  options: {},
  examples: [['', 'List the options that choose the cluster']],
  run(_, { terminal }) {
    const heading = 'The following options can be passed to any command that uses a cluster:';
    terminal.print(Lines.split(formatOptionList(heading, clusterAccessOptions, terminal.textWidth)));
    return Promise.resolve();
  },
});

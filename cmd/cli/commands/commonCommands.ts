import type { CommandEntry } from '../command.ts';

/** The heading of commands for the shell and about the program itself. */
export const shellGroup = 'For the shell:';

/** The commands that each program has in addition to its own, such as completion and explain. */
export const shellCommands: readonly CommandEntry[] = [
  {
    usage: 'completion [shell]',
    describe: 'Print a completion script for a shell, or links for oc and kubectl',
    group: shellGroup,
    load: () => import('../completion/completion.ts'),
  },
  {
    usage: 'explain [code]',
    describe: 'Explain an error or a state of an update, and what to do',
    group: shellGroup,
    load: () => import('../explanations.ts'),
  },
  {
    usage: 'version',
    describe: 'Print the version of this program',
    group: shellGroup,
    load: () => import('./versionCommand.ts'),
  },
];

/** The command that lists the options of the cluster connection. The help of other commands only refers to it. */
export const optionsCommand: CommandEntry = {
  usage: 'options',
  describe: 'List the options that choose the cluster',
  group: shellGroup,
  load: () => import('./optionsCommand.ts'),
};

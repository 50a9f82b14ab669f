import type { Program } from '../cli/command.ts';
import { optionsCommand, shellCommands } from '../cli/commands/commonCommands.ts';

/** The program `oc adm-release-mirror-config`. */
export const releaseMirrorConfig: Program = {
  name: 'oc adm-release-mirror-config',
  describe: 'Mirror an OpenShift release and the configuration that goes with it.',
  commands: [
    {
      usage: '$0 [release]',
      describe: 'Mirror a release to disk or to a registry, with its signatures, mirror sets and update graph',
      load: () => import('./mirror.ts'),
    },
    {
      usage: 'apply [config]',
      describe: 'Apply configuration from a folder or bundle to the cluster',
      load: () => import('./apply.ts'),
    },
    {
      usage: 'list <what>',
      describe: 'List the versions of a channel, the channels of a version, or a path of updates',
      reflexes: ['get', 'show', 'channels', 'versions'],
      load: () => import('./list.ts'),
    },
    {
      usage: 'prune',
      describe: 'Remove releases that are no longer needed from a registry or a mirror directory',
      reflexes: ['delete', 'clean', 'remove'],
      load: () => import('./prune.ts'),
    },
    ...shellCommands,
    optionsCommand,
  ],
};

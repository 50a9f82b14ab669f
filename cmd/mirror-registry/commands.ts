import type { Program } from '../cli/command.ts';
import { shellCommands } from '../cli/commands/commonCommands.ts';

/** What `oc adm-mirror-registry` can do. */
export const mirrorRegistry: Program = {
  name: 'oc adm-mirror-registry',
  describe: 'Look into the mirror registry of a host, upgrade it, and renew its certificates.',
  commands: [
    {
      usage: 'bundle <action> [file]',
      describe: 'Put the images of a mirror registry into one file, or look into such a file',
      load: () => import('./bundle.ts'),
    },
    {
      usage: 'plan',
      describe: 'Show what an upgrade would change on this host, and which certificates it would renew',
      load: () => import('./plan.ts'),
    },
    {
      usage: 'certs <action>',
      describe: 'Show or renew the certificates of the mirror registry, or print what clients need to trust it',
      load: () => import('./certs.ts'),
    },
    {
      usage: 'upgrade',
      describe: 'Upgrade the mirror registry of this host, and renew its certificates',
      load: () => import('./upgrade.ts'),
    },
    {
      usage: 'rollback',
      describe: 'Take the last upgrade back',
      load: () => import('./rollback.ts'),
    },
    {
      usage: 'status',
      describe: 'Show the mirror registry of this host, and where each of its settings stands',
      load: () => import('./status.ts'),
    },
    {
      usage: 'uninstall',
      describe: 'Remove the mirror registry from this host, with or without its data',
      load: () => import('./uninstall.ts'),
    },
    ...shellCommands,
  ],
};

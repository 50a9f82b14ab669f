import type { Program } from '../cli/command.ts';
import { shellCommands } from '../cli/commands/commonCommands.ts';

/** The commands of `oc adm-mirror-registry`. */
export const mirrorRegistry: Program = {
  name: 'oc adm-mirror-registry',
  describe: 'Inspect and upgrade the mirror registry of a host, and renew its certificates.',
  commands: [
    {
      usage: 'bundle <action> [file]',
      describe: 'Create, inspect or push a bundle with the images of a mirror registry',
      load: () => import('./bundle.ts'),
    },
    {
      usage: 'plan [target]',
      describe: 'Show what an upgrade would change on this host',
      reflexes: ['diff', 'check', 'preflight'],
      load: () => import('./plan.ts'),
    },
    {
      usage: 'certs <action>',
      describe: 'Show or renew the certificates of the mirror registry, or print what clients need to trust it',
      reflexes: ['cert', 'certificates', 'renew'],
      load: () => import('./certs.ts'),
    },
    {
      usage: 'upgrade [target]',
      describe: 'Upgrade the mirror registry of this host, and renew its certificates',
      reflexes: ['update', 'apply'],
      load: () => import('./upgrade.ts'),
    },
    {
      usage: 'rollback',
      describe: 'Roll back the last upgrade or renewal',
      reflexes: ['undo', 'revert', 'abort'],
      load: () => import('./rollback.ts'),
    },
    {
      usage: 'backup',
      describe: 'Back up the mirror registry of this host to a file',
      load: () => import('./backup.ts'),
    },
    {
      usage: 'restore <file>',
      describe: 'Restore a backup, on the same host or on another one',
      load: () => import('./restore.ts'),
    },
    {
      usage: 'status',
      describe: 'Show the mirror registry of this host and the source of each setting',
      reflexes: ['show', 'get', 'info', 'inspect', 'list'],
      load: () => import('./status.ts'),
    },
    {
      usage: 'uninstall',
      describe: 'Remove the mirror registry from this host, with or without its data',
      reflexes: ['remove', 'delete'],
      load: () => import('./uninstall.ts'),
    },
    ...shellCommands,
  ],
};

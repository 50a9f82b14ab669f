import type { Program } from '../cli/command.ts';
import { dryRunSpellings } from '../cli/commonOptions.ts';

/** What `oc adm-upgrade-bundle` can do. */
export const upgradeBundle: Program = {
  name: 'oc adm-upgrade-bundle',
  describe: 'Put everything an OpenShift update needs into one file, and look into such a file.',
  commands: [
    {
      usage: 'create',
      describe: 'Put a release, its signatures and its images into one file',
      load: () => import('./create.ts'),
    },
    {
      usage: 'inspect <bundle>',
      describe: 'Show what is inside a bundle',
      load: () => import('./inspect.ts'),
    },
    {
      usage: 'verify <bundle>',
      describe: 'Check a bundle from the signature to the last byte',
      load: () => import('./verify.ts'),
    },
    {
      usage: 'serve <bundle>',
      describe: 'Serve a bundle as a read-only image registry',
      load: () => import('./serve.ts'),
    },
    {
      usage: 'push <bundle>',
      describe: 'Push every image of a bundle into a registry',
      load: () => import('./push.ts'),
    },
    {
      usage: 'load <bundle>',
      describe: 'Load the images of a bundle into the image store of this machine',
      load: () => import('./node/load.ts'),
    },
    {
      usage: 'pin [bundle]',
      describe: 'Keep the images of a bundle from being removed by the kubelet',
      load: () => import('./node/pin.ts'),
    },
    {
      usage: 'storage',
      describe: 'Make an additional image store known to a machine',
      load: () => import('./node/storage.ts'),
    },
    {
      usage: 'mirror <bundle>',
      describe: 'Answer in place of the registries of a bundle, on this machine',
      load: () => import('./node/mirror.ts'),
    },
    {
      usage: 'watch',
      describe: 'Find bundles on sticks and discs as they come and go',
      load: () => import('./node/watch.ts'),
    },
    {
      usage: 'preflight [bundle]',
      describe: 'Find what would keep a cluster from booting or updating without a registry',
      load: () => import('./preflight.ts'),
    },
    {
      usage: 'install',
      describe: 'Make a cluster one that can update itself from a bundle',
      spellings: dryRunSpellings,
      load: () => import('./install.ts'),
    },
    {
      usage: 'agent',
      describe: 'Be the agent of a node: what the DaemonSet of an installation runs',
      load: () => import('./node/agent.ts'),
    },
    {
      usage: 'controller',
      describe: 'Run the controller of updates (started by the DaemonSet that install creates)',
      load: () => import('./node/controller.ts'),
    },
    {
      usage: 'uninstall',
      describe: 'Remove from a cluster what install has made',
      spellings: dryRunSpellings,
      load: () => import('./uninstall.ts'),
    },
    {
      usage: 'apply [bundle]',
      describe: 'Allow a cluster to update itself with a bundle',
      load: () => import('./apply.ts'),
    },
    {
      usage: 'status [name]',
      describe: 'Show how far an update with a bundle has come, on every node',
      load: () => import('./status.ts'),
    },
    {
      usage: 'resume [name]',
      describe: 'Begin an update that is held',
      load: () => import('./resume.ts'),
    },
    {
      usage: 'abort [name]',
      describe: 'Give up an update that has not begun yet',
      load: () => import('./abort.ts'),
    },
    {
      usage: 'clean [name]',
      describe: 'Remove what is left of updates that have ended',
      spellings: dryRunSpellings,
      load: () => import('./clean.ts'),
    },
    {
      usage: 'shell-hook <shell>',
      describe: 'Print a function that makes “oc adm upgrade create bundle” a command',
      load: () => import('./shell-hook/shellHook.ts'),
    },
    {
      usage: 'doctor',
      describe: 'Show what is installed here, and which cluster commands would find',
      load: () => import('./doctor.ts'),
    },
    {
      usage: 'completion <shell>',
      describe: 'Print a script that makes a shell complete commands, options and values',
      load: () => import('../cli/completion/completion.ts'),
    },
  ],
};

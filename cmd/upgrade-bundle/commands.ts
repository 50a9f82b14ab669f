import type { Program } from '../cli/command.ts';
import { optionsCommand, shellCommands, shellGroup } from '../cli/commands/commonCommands.ts';

const make = 'Make a bundle:';
const read = 'Read a bundle or a release:';
const withoutRegistry = 'On a site without a registry:';
const withRegistry = 'On a site with a registry:';

/** The program `oc adm-upgrade-bundle`. */
export const upgradeBundle: Program = {
  name: 'oc adm-upgrade-bundle',
  describe: 'Create one file with everything that an OpenShift update needs, and update clusters from it.',
  commands: [
    {
      usage: 'create [release]',
      describe: 'Create a bundle: one file with a release, its signatures and its images',
      group: make,
      load: () => import('./create/create.ts'),
    },
    {
      usage: 'inspect <bundle>',
      describe: 'Show the contents of a bundle',
      group: read,
      load: () => import('./inspect/inspect.ts'),
    },
    {
      usage: 'diff <from> <to>',
      describe: 'Show what changed between two bundles or releases',
      group: read,
      load: () => import('./diff.ts'),
    },
    {
      usage: 'verify <bundle>',
      describe: 'Verify a bundle, from its signature to its last byte',
      group: read,
      load: () => import('./verify.ts'),
    },
    {
      usage: 'receipt [verify] <file>',
      describe: 'Check the signed report of a verification',
      group: read,
      load: () => import('./receipt.ts'),
    },
    {
      usage: 'lint <target>',
      describe: 'Find what needs a registry in the manifests of a release',
      group: read,
      load: () => import('./lint/lint.ts'),
    },
    {
      usage: 'preflight [bundle]',
      describe: 'Find what would keep a cluster from booting or updating without a registry',
      group: withoutRegistry,
      load: () => import('./preflight.ts'),
    },
    {
      usage: 'drill [node]',
      describe: 'Show on a live cluster that its nodes start without a registry',
      group: withoutRegistry,
      load: () => import('./drill/drill.ts'),
    },
    {
      usage: 'install',
      describe: 'Install the agents that let a cluster update itself from a bundle',
      group: withoutRegistry,
      load: () => import('./install.ts'),
    },
    {
      usage: 'uninstall',
      describe: 'Remove the agents from a cluster',
      group: withoutRegistry,
      load: () => import('./uninstall.ts'),
    },
    {
      usage: 'apply [bundle]',
      describe: 'Allow a cluster to update itself from a bundle',
      group: withoutRegistry,
      load: () => import('./apply.ts'),
    },
    {
      usage: 'retain [bundle]',
      describe: 'Let a cluster keep the bundle of the release that it runs',
      group: withoutRegistry,
      load: () => import('./retain.ts'),
    },
    {
      usage: 'status [name]',
      describe: 'Show the progress of an update, on each node',
      group: withoutRegistry,
      load: () => import('./status/status.ts'),
    },
    {
      usage: 'gather',
      describe: 'Write the state of an update into a folder, for a person who can help',
      group: withoutRegistry,
      load: () => import('./gather.ts'),
    },
    {
      usage: 'resume [name]',
      describe: 'Start an update that is on hold',
      group: withoutRegistry,
      load: () => import('./resume.ts'),
    },
    {
      usage: 'abort [name]',
      describe: 'Abort an update that has not started',
      group: withoutRegistry,
      load: () => import('./abort.ts'),
    },
    {
      usage: 'clean [name]',
      describe: 'Remove the records of updates that have ended',
      group: withoutRegistry,
      load: () => import('./clean.ts'),
    },
    {
      usage: 'load <bundle>',
      describe: 'Load the images of a bundle into the image store of this machine',
      group: withoutRegistry,
      load: () => import('./node/load.ts'),
    },
    {
      usage: 'pin [bundle]',
      describe: 'Keep the kubelet from removing the images of a bundle',
      group: withoutRegistry,
      load: () => import('./node/pin.ts'),
    },
    {
      usage: 'streams <bundle>',
      describe: 'Describe the operating system streams of a release in a cluster (4.23 and later)',
      group: withoutRegistry,
      load: () => import('./streams.ts'),
    },
    {
      usage: 'mirror <bundle>',
      describe: 'Serve a bundle to this machine in place of its registries',
      group: withoutRegistry,
      load: () => import('./node/mirror.ts'),
    },
    {
      usage: 'watch',
      describe: 'Report bundles on USB drives and discs as they appear and disappear',
      group: withoutRegistry,
      load: () => import('./node/watch.ts'),
    },
    {
      usage: 'agent',
      describe: 'Run the node agent (started by the DaemonSet that install creates)',
      group: withoutRegistry,
      isInternal: true,
      load: () => import('./node/agent.ts'),
    },
    {
      usage: 'controller',
      describe: 'Run the controller of updates (started by the DaemonSet that install creates)',
      group: withoutRegistry,
      isInternal: true,
      load: () => import('./node/controller.ts'),
    },
    {
      usage: 'mirror-serve',
      describe: 'Serve the bundles that a control plane node retains (started by install --mirror)',
      group: withoutRegistry,
      isInternal: true,
      load: () => import('./node/mirrorServe.ts'),
    },
    {
      usage: 'drill-node',
      describe: 'Run the part of a drill on its node (started by drill)',
      group: withoutRegistry,
      isInternal: true,
      load: () => import('./node/drillNode.ts'),
    },
    {
      usage: 'push <bundle>',
      describe: 'Push every image of a bundle to a registry',
      group: withRegistry,
      load: () => import('./push.ts'),
    },
    {
      usage: 'serve <bundle>',
      describe: 'Serve a bundle as a read-only image registry',
      group: withRegistry,
      load: () => import('./serve.ts'),
    },
    {
      usage: 'doctor',
      describe: 'Show the installed plugins, and which oc and cluster they find',
      group: shellGroup,
      load: () => import('./doctor.ts'),
    },
    {
      usage: 'shell-hook <shell>',
      describe: 'Print a function that makes “oc adm upgrade create bundle” a command',
      group: shellGroup,
      load: () => import('./shell-hook/shellHook.ts'),
    },
    ...shellCommands,
    optionsCommand,
  ],
};

import { PluginError } from '../../lib/errors.ts';
import { uninstallAgents } from '../../lib/update/install/uninstall.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import { defineCommand } from '../cli/command.ts';
import { clusterAccessOptions, dryRunOption } from '../cli/options.ts';
import { formatObject } from './objectLine.ts';
import { nodeStateFolder } from '../../lib/machine/paths.ts';

/** `uninstall`: removes the objects of `install`, and everything that the agents created. */
export const command = defineCommand({
  details:
    'Ends the agents, removes what they keep on the nodes, and then every object, UpgradeBundles included. The images stay in the stores of the nodes, the ' +
    'PinnedImageSets that keep them there, and release signatures in openshift-config-managed: the cluster runs with them. While an update is under way it refuses.',
  options: {
    force: { type: 'boolean', describe: 'Uninstall although an update is under way; what it has paused is restored' },
    migrate: {
      type: 'boolean',
      describe: 'Load the running release from its bundle into the nodes’ own stores before the additional store goes',
    },
    'keep-store': { type: 'boolean', describe: 'Leave the additional store in the configuration of the nodes' },
    'remove-pins': {
      type: 'boolean',
      describe:
        'Remove the pins too, in PinnedImageSets and in CRI-O: kubelets may then remove images that no registry can give back',
    },
    wait: {
      type: 'boolean',
      default: true,
      describe: 'Wait until every node is clean and the namespace gone; without, files stay on the nodes',
    },
    timeout: { type: 'number', default: 600, range: [1, 86_400], describe: 'How many seconds to wait' },
    ...dryRunOption,
    ...clusterAccessOptions,
  },
  examples: [
    ['--dry-run', 'List what would be removed'],
    ['--remove-pins', 'Remove what keeps images on the nodes as well'],
  ],
  async run(args, { context, terminal, environment }) {
    const { force, migrate, keepStore, removePins, dryRun } = args;
    if (migrate && !args.wait) throw new PluginError('usage', '--migrate needs --wait');
    const cluster = await openCluster(args, environment, context);
    try {
      const timeout = args.wait ? args.timeout * 1000 : undefined;
      const tried = dryRun === 'none' ? {} : { dryRun };
      const gone = await uninstallAgents(
        cluster,
        { force, migrate, keepStore, removePins, timeout, ...tried },
        context,
      );
      for (const object of gone) terminal.print(formatObject(object, 'deleted', dryRun));
      if (gone.length === 0) terminal.print('There is nothing to remove.');
      const unpinned = gone.some(({ kind }) => kind === 'PinnedImageSet');
      if (unpinned) context.log('warn', 'nothing keeps kubelets that need space from removing images any more');
      if (!args.wait) context.log('warn', `${nodeStateFolder} stays on the nodes`);
    } finally {
      cluster.close();
    }
  },
});

import { nodeStateFolder } from '#node/machine';
import { Lines } from '#text';
import { uninstallAgents } from '#update/install';
import { removeMirror } from '#update/mirror';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatObject } from '../cli/mirroring/applyReport.ts';
import { askForYes, clusterAccessOptions, dryRunOption, outputOption, yesOption } from '../cli/options.ts';

/** `uninstall`: removes the objects of `install`, and everything that the agents created. */
export const command = defineCommand({
  details:
    'Stops the agents, removes their files from the nodes, and then deletes every object, including UpgradeBundles. ' +
    'The images stay in the stores of the nodes, with the PinnedImageSets that keep them there and the release ' +
    'signatures in openshift-config-managed: the cluster runs with them. Refuses to run while an update is in ' +
    'progress.',
  options: {
    force: { type: 'boolean', describe: 'Uninstall even if an update is in progress, and restore what it paused' },
    mirror: { type: 'boolean', describe: 'Remove only the mirrors on the control plane nodes' },
    'remove-pins': {
      type: 'boolean',
      describe:
        'Remove the pins too, in PinnedImageSets and in CRI-O: kubelets may then remove images that cannot be ' +
        'pulled again',
    },
    wait: {
      type: 'boolean',
      default: true,
      describe: 'Wait until the nodes are clean and all objects are gone; otherwise files stay on the nodes',
    },
    timeout: { type: 'number', isTime: true, default: 600, range: [1, 86_400], describe: 'Time to wait, such as 10m' },
    ...yesOption('Remove the pins of --remove-pins, and the agents, instead of only showing them'),
    ...dryRunOption,
    ...outputOption(),
    ...clusterAccessOptions,
  },
  examples: [
    ['--dry-run', 'List what would be removed'],
    ['--remove-pins --yes', 'Remove the pins of the images too'],
  ],
  async run(args, { context, terminal, environment }) {
    const { force, removePins } = args;
    const isUnconfirmed = removePins && !args.yes && args.dryRun === 'none';
    const dryRun = isUnconfirmed ? 'client' : args.dryRun;
    using cluster = await openCluster(args, environment, context);
    const timeout = args.wait ? args.timeout * 1000 : undefined;
    const tried = dryRun === 'none' ? {} : { dryRun };
    const wait = timeout === undefined ? undefined : { timeout };
    const gone = args.mirror
      ? await removeMirror(cluster, tried, wait, context)
      : await uninstallAgents(cluster, { force, removePins, timeout, ...tried }, context);
    const lines = gone.map((object) => formatObject(object, 'deleted', dryRun));
    if (isUnconfirmed) lines.push(askForYes);
    const words = gone.length > 0 ? new Lines(...lines) : 'There is nothing to remove.';
    await terminal.printResult(args.output, { dryRun: dryRun !== 'none', removed: gone }, words);
    const unpinned = gone.some(({ kind }) => kind === 'PinnedImageSet');
    if (unpinned && dryRun === 'none')
      context.log('warn', 'nothing keeps kubelets that need space from removing images any more');
    if (!args.wait) context.log('warn', `${nodeStateFolder} stays on the nodes`);
  },
});

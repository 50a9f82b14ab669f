import { Lines } from '#text';
import { cleanRecords } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { suffixOf } from '../cli/mirroring/applyReport.ts';
import { clusterAccessOptions, dryRunOption, outputOption } from '../cli/options.ts';
import { recordArgument } from './status/statusView.ts';

/** `clean`: removes the records of updates that have ended. */
export const command = defineCommand({
  details:
    'Removes the UpgradeBundles that are Completed or Failed: all of them, or the one with the given name. The ' +
    'agents then remove the files that they keep for them. Images that the cluster runs with stay, and stay pinned.',
  positionals: {
    name: { ...recordArgument.name, describe: 'Name of an UpgradeBundle (default: all that have ended)' },
  },
  options: { ...dryRunOption, ...outputOption(), ...clusterAccessOptions },
  examples: [
    ['', 'Remove the records of all updates that have ended'],
    ['4.19.4-x86-64 --dry-run', 'Show whether one could be removed'],
  ],
  async run(args, { context, terminal, environment }) {
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const dryRun = args.dryRun !== 'none';
    const names = await cleanRecords(cluster, args.name);
    const lines = names.map((name) => `upgradebundle/${name} deleted${suffixOf(args.dryRun)}`);
    const words = lines.length > 0 ? new Lines(...lines) : 'There is nothing to remove.';
    await terminal.printResult(args.output, { dryRun, removed: names }, words);
  },
});

import { defineCommand } from '../cli/command.ts';
import { clusterAccessOptions, dryRunOption, outputOption } from '../cli/options.ts';
import { recordArgument } from './status/record.ts';

/** `resume`: starts an update that is on hold. */
export const command = defineCommand({
  details:
    'Removes the hold from an UpgradeBundle. The update starts when every node has loaded everything, or at once if they have.',
  positionals: recordArgument,
  options: { ...dryRunOption, ...outputOption(), ...clusterAccessOptions },
  examples: [['', 'Start the update that is on hold']],
  async run(args, { context, terminal, environment }) {
    const { chooseRecord, listRecords, resumeUpdate } = await import('../../lib/update/bundleRecord.ts');
    const { phaseOf } = await import('../../lib/update/upgradeBundle.ts');
    const { suffixOf } = await import('../release-mirror-config/applyReport.ts');
    const { openCluster } = await import('../cli/clusterAccess.ts');
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const { bundle, outcome } = await resumeUpdate(cluster, chooseRecord(await listRecords(cluster), args.name));
    const result = { name: bundle.metadata.name, outcome, phase: phaseOf(bundle) };
    const words = (outcome === 'unchanged' ? 'is not held' : 'is no longer held') + suffixOf(args.dryRun);
    await terminal.printResult(args.output, result, `upgradebundle/${result.name} ${words}: ${result.phase}`);
  },
});

import { chooseRecord, listRecords, resumeUpdate, isWaitingForWindow, phaseOf } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { suffixOf } from '../cli/mirroring/applyReport.ts';
import { clusterAccessOptions, dryRunOption, outputOption } from '../cli/options.ts';
import { recordArgument } from './status/statusView.ts';

/** `resume`: starts an update that is on hold. */
export const command = defineCommand({
  details:
    'Removes the hold from an UpgradeBundle. The update starts when every node has loaded everything, or at once if ' +
    'they have. If it waits for a maintenance window only, or for a clock that can be trusted, it starts without.',
  positionals: recordArgument,
  options: { ...dryRunOption, ...outputOption(), ...clusterAccessOptions },
  examples: [['', 'Start the update that is on hold']],
  async run(args, { context, terminal, environment }) {
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const chosen = chooseRecord(await listRecords(cluster), args.name);
    const { bundle, outcome } = await resumeUpdate(cluster, chosen);
    const result = { name: bundle.metadata.name, outcome, phase: phaseOf(bundle) };
    const done = isWaitingForWindow(chosen) ? 'no longer waits for a maintenance window' : 'is no longer held';
    const words = (outcome === 'unchanged' ? 'is not held' : done) + suffixOf(args.dryRun);
    await terminal.printResult(args.output, result, `upgradebundle/${result.name} ${words}: ${result.phase}`);
  },
});

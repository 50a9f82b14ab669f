import { describeSilence } from '#update/install';
import { abortUpdate, awaitAbort, chooseRecord, listRecords, phaseOf } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { suffixOf } from '../cli/mirroring/applyReport.ts';
import { clusterAccessOptions, dryRunOption, outputOption } from '../cli/options.ts';
import { recordArgument } from './status/statusView.ts';

/** `abort`: aborts an update that has not begun. */
export const command = defineCommand({
  details:
    'Before the update has started, this stops the agents, removes the pins and restores what was paused. The ' +
    'cluster is then as it was before. After the cluster version operator has started, an update cannot be aborted: ' +
    'the command prints what to do, and changes nothing. The controller aborts the update. If no agent has reported, ' +
    'the request waits for one, and the command does not.',
  positionals: recordArgument,
  options: {
    wait: { type: 'boolean', default: true, describe: 'Wait until the update is aborted' },
    timeout: { type: 'number', isTime: true, default: 300, range: [1, 86_400], describe: 'Time to wait, such as 10m' },
    ...dryRunOption,
    ...outputOption(),
    ...clusterAccessOptions,
  },
  examples: [['', 'Abort the update that the cluster is preparing']],
  async run(args, { context, terminal, environment }) {
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const chosen = chooseRecord(await listRecords(cluster), args.name);
    context.log('info', `${chosen.metadata.name} is ${phaseOf(chosen)}`);
    const { bundle } = await abortUpdate(cluster, chosen);
    const waits = args.wait && args.dryRun === 'none';
    if (waits) {
      const silence = await describeSilence(cluster);
      if (silence !== undefined) context.log('warn', silence);
      // Without agents there is nothing to wait for.
      const timeout = silence === undefined ? args.timeout * 1000 : 0;
      await awaitAbort(cluster, bundle.metadata.name, { timeout }, context);
    }
    const { name } = bundle.metadata;
    const words = `upgradebundle/${name} ${waits ? 'aborted' : 'is being aborted'}${suffixOf(args.dryRun)}`;
    await terminal.printResult(args.output, { name, aborted: waits }, words);
  },
});

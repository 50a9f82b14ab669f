import { takeStateLock } from '../../lib/host/stateFolder.ts';
import { rollBackRegistry } from '../../lib/host/upgrade.ts';
import { PluginError } from '../../lib/errors.ts';
import { defineCommand } from '../command.ts';
import { executionOptions, hostOptions, requestOf } from './options.ts';

/** `rollback`: takes the last upgrade back. */
export const command = defineCommand({
  details:
    'Puts the units and certificates back as they were before the last upgrade, or before one that did not end, and starts the registry ' +
    'again. Where that upgrade brought another Quay, the database is put back too: what was pushed since has to be pushed again.',
  options: { ...executionOptions, ...hostOptions },
  examples: [['', 'Take the last upgrade back']],
  async run(args, { context, terminal, environment }) {
    const renewal = { now: new Date(), renewBefore: 0, certDays: 397, caDays: 1024, addHosts: [], force: false };
    const request = await requestOf(args, { target: {}, bundle: undefined, renewal }, environment);
    const unlock = await takeStateLock(request.files, request.installation);
    try {
      if (!(await rollBackRegistry(request, context))) {
        throw new PluginError('not-found', 'there is no upgrade to take back', {
          hint: 'Backups of upgrades are in .oc-mirror-registry/backups beside quay-config.',
        });
      }
      terminal.print('Done: the registry is as it was before the upgrade.');
    } finally {
      await unlock();
    }
  },
});

import { takeStateLock } from '../../lib/host/stateFolder.ts';
import { rollBackRegistry } from '../../lib/host/execution.ts';
import { PluginError } from '../../lib/errors.ts';
import { defineCommand } from '../command.ts';
import { executionOptions, hostOptions, requestOf } from './options.ts';

/** `rollback`: takes the last upgrade back, or the last renewal of certificates. */
export const command = defineCommand({
  details:
    'Puts the units and certificates back as they were before the last upgrade or renewal of certificates, or before one that did not ' +
    'end, and starts the registry again. Where that upgrade brought another Quay, the database is put back too: what was pushed since has ' +
    'to be pushed again. Run again, it takes back the one before.',
  options: { ...executionOptions, ...hostOptions },
  examples: [['', 'Take the last upgrade back']],
  async run(args, { context, terminal, environment }) {
    const request = await requestOf(args, environment);
    const unlock = await takeStateLock(request.files, request.installation);
    try {
      const what = await rollBackRegistry(request, context);
      if (what === undefined) {
        throw new PluginError('not-found', 'there is nothing to take back', {
          hint: 'Backups of upgrades are in .oc-mirror-registry/backups beside quay-config.',
        });
      }
      terminal.print(`Done: the registry is as it was before ${what}.`);
    } finally {
      await unlock();
    }
  },
});

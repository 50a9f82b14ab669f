import { PluginError } from '../../lib/errors.ts';
import type { RollbackPlan } from '../../lib/mirror-registry/change/rollback.ts';
import { timeOf, type UpgradeJournal } from '../../lib/mirror-registry/change/upgradeJournal.ts';
import { defineCommand } from '../cli/command.ts';
import { outputOption } from '../cli/options.ts';
import { executionOptions, registryHostOptions, requestOf } from './options.ts';

/** `rollback`: reverts the last upgrade, or the last renewal of certificates. */
export const command = defineCommand({
  details:
    'Restores the units and certificates as they were before the last upgrade or renewal, or before an unfinished one, and restarts the ' +
    'registry. If that upgrade changed Quay, the database is restored too: push later images again. Checks everything that the rollback needs ' +
    'before the registry stops. Keeps the newer database in .oc-mirror-registry/newer-database. A second rollback reverts the change before.',
  options: {
    'dry-run': { type: 'boolean', describe: 'Print what would be restored, without changes' },
    abandon: {
      type: 'boolean',
      describe: 'Abandon an unfinished upgrade, renewal or rollback: keep the files as they are, and its backup',
    },
    'drop-backups': {
      type: 'boolean',
      describe: 'Remove all backups, with the old images and units that only a rollback needs, and roll nothing back',
    },
    ...outputOption(),
    ...executionOptions,
    ...registryHostOptions,
  },
  examples: [
    ['', 'Roll back the last upgrade'],
    ['--dry-run', 'Show what a rollback would restore'],
  ],
  async run(args, { context, terminal, environment }) {
    const { abandonChange, dropBackups, planRollback, rollBackRegistry } =
      await import('../../lib/mirror-registry/change/rollback.ts');
    const { formatResult } = await import('../cli/format.ts');
    const { dryRun, abandon, dropBackups: isDropping, output } = args;
    if ([dryRun, abandon, isDropping].filter((each) => each).length > 1) {
      throw new PluginError('usage', '--dry-run, --abandon and --drop-backups do not go together');
    }
    const request = await requestOf(args, environment);
    const print = async (result: object, words: string): Promise<void> =>
      terminal.print(await formatResult(output, result, words));
    if (dryRun) {
      const plan = await planRollback(request, context);
      await print({ outcome: 'planned', ...plan }, describePlan(plan));
      return;
    }
    if (isDropping) {
      const backups = (await dropBackups(request, context)).map(changeOf);
      const lines = backups.map((change) => `Removed the backup of ${nameOf(change)}.`);
      await print({ outcome: 'dropped', backups }, lines.length > 0 ? lines.join('\n') : 'There are no backups.');
      return;
    }
    if (abandon) {
      const { journal, backup } = await abandonChange(request);
      const words = [
        `Abandoned ${journal.title}. Its backup is in ${backup}; remove it if you do not need it.`,
        "The registry may be stopped: see 'systemctl status quay-app.service'.",
      ];
      await print({ outcome: 'abandoned', ...changeOf(journal), backup }, words.join('\n'));
      return;
    }
    const plan = await rollBackRegistry(request, context);
    await print({ outcome: 'reverted', ...plan }, `Done: the registry is as it was before ${nameOf(plan)}.`);
  },
});

function changeOf(journal: UpgradeJournal): Pick<RollbackPlan, 'title' | 'begun'> {
  return { title: journal.title, begun: timeOf(journal) };
}

/** Names a change by its title and its start. The title of a restore has the time of the backup. */
function nameOf({ title, begun }: Pick<RollbackPlan, 'title' | 'begun'>): string {
  return /\d/.test(title) ? `${title}, started at ${begun}` : `${title} of ${begun}`;
}

function describePlan(plan: RollbackPlan): string {
  const { begun, unfinished, files, database, images, restart } = plan;
  return [
    `Would restore the registry as it was before ${nameOf(plan)}${unfinished ? ', which is unfinished' : ''}`,
    '',
    ...files.map((path) => `restore ${path}`),
    ...(database === undefined
      ? []
      : [`restore the database in ${database}, as it was at ${begun}: push later images again`]),
    ...images.map((image) => `run ${image}`),
    ...(restart.length > 0 ? [`restart ${restart.join(', ')}`] : []),
  ].join('\n');
}

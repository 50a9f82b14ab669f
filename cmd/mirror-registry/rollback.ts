import { PluginError } from '#errors';
import {
  abandonChange,
  dropBackups,
  planRollback,
  rollBackRegistry,
  type RollbackPlan,
  timeOf,
  type UpgradeJournal,
} from '#registry-host/change';
import { Lines } from '#text';
import { defineCommand } from '../cli/command.ts';
import { askForYes, dryRunOf, outputOption, yesOption } from '../cli/options.ts';
import { readDigest } from '../cli/values.ts';
import { defaultRenewal, executionOptions, registryHostOptions, renewalOf, requestOf } from './options.ts';
import { noTarget, openTarget, releaseDigestOption, upgradeOptions } from './target.ts';

/** `rollback`: reverts the last upgrade, or the last renewal of certificates. */
export const command = defineCommand({
  details:
    'Restores the units and certificates as they were before the last upgrade or renewal, or before an unfinished ' +
    'one, and restarts the registry. If that upgrade changed Quay, the database is restored too: push later images ' +
    'again. Checks everything that the rollback needs before the registry stops. Checks no signature of a bundle: ' +
    'none covers the images of a mirror registry. Keeps the newer database in .oc-mirror-registry/newer-database. A ' +
    'second rollback reverts the change before.',
  options: {
    ...dryRunOf('With client or server, only print what would be restored'),
    abandon: {
      type: 'boolean',
      describe: 'Abandon an unfinished upgrade, renewal or rollback: keep the files as they are, and its backup',
    },
    'drop-backups': {
      type: 'boolean',
      describe: 'Remove all backups, with the old images and units that only a rollback needs, and roll nothing back',
    },
    bundle: {
      ...upgradeOptions.bundle,
      describe:
        'Old images that podman no longer has: a bundle of the release before the upgrade, in a form that ' +
        'upgrade takes',
    },
    digest: releaseDigestOption,
    ...yesOption('Remove the backups of --drop-backups instead of only showing them'),
    ...outputOption(),
    ...executionOptions,
    ...registryHostOptions,
  },
  examples: [
    ['', 'Roll back the last upgrade'],
    ['--dry-run', 'Show what a rollback would restore'],
    ['--bundle=mirror-registry-2.0.7-x86_64.tar', 'Roll back with images that podman no longer has'],
  ],
  async run(args, { context, terminal, environment }) {
    const { yes, abandon, dropBackups: isDropping, output } = args;
    const dryRun = args.dryRun !== 'none';
    if (abandon && (dryRun || isDropping)) {
      throw new PluginError('usage', '--abandon does not go with --dry-run and --drop-backups');
    }
    const host = await requestOf(args, environment, context.signal);
    const { release } = await openTarget({ ...noTarget, ...args }, { ...host, ...host.detected }, environment, context);
    await using _release = release;
    const expectedDigest = args.digest === undefined ? undefined : readDigest(args.digest);
    const renewal = await renewalOf(defaultRenewal, host.now);
    const request = { ...host, release, expectedDigest, renewal };
    if (dryRun && !isDropping) {
      const plan = await planRollback(request, context);
      await terminal.printResult(output, { outcome: 'planned', ...plan }, describePlan(plan));
      return;
    }
    if (isDropping) {
      const isDropped = yes && !dryRun;
      const backups = (await dropBackups(request, isDropped, context)).map(changeOf);
      const verb = isDropped ? 'Removed' : 'Would remove';
      const lines = backups.map((change) => `${verb} the backup of ${nameOf(change)}.`);
      const words = lines.length === 0 ? ['There are no backups.'] : isDropped ? lines : [...lines, askForYes];
      const outcome = isDropped ? 'dropped' : 'planned';
      await terminal.printResult(output, { outcome, backups }, new Lines(...words));
      return;
    }
    if (abandon) {
      const { journal, backup } = await abandonChange(request, context);
      const words = [
        `Abandoned ${journal.title}. Its backup is in ${backup}; remove it if you do not need it.`,
        "The registry may be stopped: see 'systemctl status quay-app.service'.",
      ];
      await terminal.printResult(output, { outcome: 'abandoned', ...changeOf(journal), backup }, new Lines(...words));
      return;
    }
    const plan = await rollBackRegistry(request, context);
    const words = `Done: the registry is as it was before ${nameOf(plan)}.${describeRenewals(plan)}`;
    await terminal.printResult(output, { outcome: 'reverted', ...plan }, words);
  },
});

function changeOf(journal: UpgradeJournal): Pick<RollbackPlan, 'title' | 'begun'> {
  return { title: journal.title, begun: timeOf(journal) };
}

/** Names a change by its title and its start. The title of a restore has the time of the backup. */
function nameOf({ title, begun }: Pick<RollbackPlan, 'title' | 'begun'>): string {
  return /\d/.test(title) ? `${title}, started at ${begun}` : `${title} of ${begun}`;
}

function describeRenewals({ renewals }: RollbackPlan): string {
  return renewals.length === 0 ? '' : ` Its certificate was renewed on the same CA: ${renewals.join(', ')}.`;
}

function describePlan(plan: RollbackPlan): Lines {
  const { begun, unfinished, files, database, images, restart, renewals } = plan;
  return new Lines(
    `Would restore the registry as it was before ${nameOf(plan)}${unfinished ? ', which is unfinished' : ''}`,
    '',
    ...files.map((path) => `restore ${path}`),
    ...(database === undefined
      ? []
      : [`restore the database in ${database}, as it was at ${begun}: push later images again`]),
    ...images.map((image) => `run ${image}`),
    ...(restart.length > 0 ? [`restart ${restart.join(', ')}`] : []),
    ...renewals.map((reason) => `renew the restored certificate on its CA: ${reason}`),
  );
}

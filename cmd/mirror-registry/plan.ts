import { formatCheckTimer } from '../../lib/host/checkTimer.ts';
import { readCertificates } from '../../lib/host/certificates.ts';
import { isUpToDate, planUpgrade, type TargetImages, type UpgradePlan } from '../../lib/host/plan.ts';
import { findRenewals } from '../../lib/host/renewal.ts';
import { stateFolderOf } from '../../lib/host/stateFolder.ts';
import { formatUnifiedDiff } from '../../lib/host/unifiedDiff.ts';
import { UpgradeRecords } from '../../lib/host/upgradeJournal.ts';
import { defineCommand } from '../command.ts';
import { formatTable, formatYaml } from '../format.ts';
import { formatOption } from '../options.ts';
import { findInstallation, hostOptions, renewalOf, renewalOptions, targetOf, upgradeOptions } from './options.ts';

/** `plan`: what `upgrade` would do to this host. */
export const command = defineCommand({
  details:
    'Compares the host with what it is to have: its images, the words of its units that newer images need, its certificates. Nothing is ' +
    'run and nothing is written. What is not named stays as it is, byte for byte.',
  options: {
    ...upgradeOptions,
    diff: { type: 'boolean', describe: 'Show how the units would change, as a unified diff' },
    timer: {
      type: 'boolean',
      describe: 'Print a systemd service and timer that look every week and tell, and change nothing',
    },
    'detailed-exitcode': {
      type: 'boolean',
      describe: 'End with 0 when there is nothing to do, with 2 when there is, with 1 when it cannot be done',
    },
    ...formatOption(['json', 'yaml']),
    ...renewalOptions,
    ...hostOptions,
  },
  examples: [
    ['', 'Show whether certificates have to be renewed'],
    ['--version=2.0.11 --diff', 'Show what a newer release would change'],
    ['--bundle=mirror-registry-2.0.11-x86_64.tar', 'The same, for the images in a bundle'],
    ['--detailed-exitcode --quiet', 'Let a script find out whether there is something to do'],
  ],
  async run(args, { terminal, environment, context, setExitCode }) {
    if (args.timer) {
      terminal.print(formatCheckTimer(process.argv[1] ?? 'oc-adm_mirror_registry', args.scope === 'user').trimEnd());
      return;
    }
    const options = renewalOf(args, new Date());
    const detected = await findInstallation(args, environment);
    const { status, ...certificates } = await readCertificates(detected.files, detected.installation, options.now);
    const renewals = findRenewals({ status, ...certificates }, detected.installation, options);
    const target: TargetImages = await targetOf(args, context);
    const plan = planUpgrade({ detected, certificates: status, renewals, target });
    const unfinished = await new UpgradeRecords(detected.files, stateFolderOf(detected.installation)).current();
    if (unfinished)
      context.log('warn', `${unfinished.title} of an earlier run did not end: run it again, or 'rollback'`);
    if (args.detailedExitcode) setExitCode(plan.blockers.length > 0 ? 1 : isUpToDate(plan) && !unfinished ? 0 : 2);
    if (args.format === undefined) terminal.print(describePlan(plan, args.diff));
    else {
      const { units, ...rest } = plan;
      const result = {
        ...rest,
        units: units.map(({ path, before, after, reasons }) => ({
          path,
          reasons,
          diff: formatUnifiedDiff(path, before, after),
        })),
      };
      terminal.print(args.format === 'json' ? JSON.stringify(result, null, 2) : (await formatYaml(result)).trimEnd());
    }
  },
});

/** A plan in words. */
export function describePlan(plan: UpgradePlan, diff: boolean): string {
  const { from, to, level, images, units, certificates, restart, blockers, warnings } = plan;
  const notes = [...blockers.map((blocker) => `BLOCKED: ${blocker}`), ...warnings.map((warning) => `note: ${warning}`)];
  if (isUpToDate(plan)) return ['The mirror registry is up to date: there is nothing to do.', ...notes].join('\n');
  const titles = {
    none: 'Changes',
    certificates: 'New certificates',
    patch: `An upgrade from ${from ?? 'its image'} to ${to ?? 'another image'}`,
    minor: `An upgrade from ${from ?? 'its image'} to ${to ?? 'another image'}, with another minor version of Quay`,
  };
  const table =
    images.length === 0
      ? []
      : [formatTable([['IMAGE', 'FROM', 'TO'], ...images.map((image) => [image.component, image.from, image.to])])];
  const lines = [
    ...units.map(({ path, reasons }) => `change ${path}: ${reasons.join(', ')}`),
    ...certificates.server.map((reason) => `renew the certificate: ${reason}`),
    ...certificates.authority.map((reason) => `renew its authority: ${reason}`),
    ...(restart.length > 0 ? [`restart ${restart.join(', ')}`] : []),
  ];
  const diffs = diff ? units.map(({ path, before, after }) => formatUnifiedDiff(path, before, after).trimEnd()) : [];
  const parts = [titles[level], ...table, lines.join('\n'), ...(notes.length > 0 ? [notes.join('\n')] : []), ...diffs];
  return parts.join('\n\n');
}

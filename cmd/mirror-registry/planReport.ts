import type { Context } from '../../lib/context.ts';
import { isUpToDate, type UpgradePlan } from '../../lib/host/plan.ts';
import { stateFolderOf } from '../../lib/host/stateFolder.ts';
import { surveyHost } from '../../lib/host/survey.ts';
import { formatUnifiedDiff } from '../../lib/host/unifiedDiff.ts';
import { UpgradeRecords } from '../../lib/host/upgradeJournal.ts';
import type { Arguments, OptionRecord } from '../command.ts';
import { formatTable, formatYaml } from '../format.ts';
import { formatOption } from '../options.ts';
import { findInstallation, renewalOf } from './options.ts';
import type { hostOptions, renewalOptions } from './options.ts';
import { openTarget, type upgradeOptions } from './target.ts';

/** Options that say how a plan is shown. */
export const planOptions = {
  diff: { type: 'boolean', describe: 'Show how the units change, as a unified diff' },
  'detailed-exitcode': {
    type: 'boolean',
    describe: 'End with 0 when there is nothing to do, with 2 when there is, with 1 when it cannot be done',
  },
  ...formatOption(['json', 'yaml']),
} as const satisfies OptionRecord;

/** Plans what the options ask for, and tells whether an earlier run has not ended. Nothing is run and nothing written. */
export async function makePlan(
  args: Arguments<typeof hostOptions & typeof renewalOptions & typeof upgradeOptions>,
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<{ plan: UpgradePlan; unfinished: boolean }> {
  const renewal = await renewalOf(args, new Date());
  const detected = await findInstallation(args, environment);
  const { target, release } = await openTarget(args, detected, environment, context);
  try {
    const { plan } = await surveyHost({ files: detected.files, detected, target, release, renewal });
    const unfinished = await new UpgradeRecords(detected.files, stateFolderOf(detected.installation)).current();
    if (unfinished)
      context.log('warn', `${unfinished.title} of an earlier run did not end: run it again, or 'rollback'`);
    return { plan, unfinished: unfinished !== undefined };
  } finally {
    await release?.close();
  }
}

/** A plan as the options want to have it, with `more` in front where it is data. */
export async function formatPlan(
  plan: UpgradePlan,
  { format, diff }: Pick<Arguments<typeof planOptions>, 'format' | 'diff'>,
  more: object = {},
): Promise<string> {
  if (format === undefined) return describePlan(plan, diff);
  const { units, ...rest } = plan;
  const changes = units.map(({ path, before, after, reasons }) => {
    return { path, reasons, diff: formatUnifiedDiff(path, before, after) };
  });
  const result = { ...more, ...rest, units: changes };
  return format === 'json' ? JSON.stringify(result, null, 2) : (await formatYaml(result)).trimEnd();
}

function describePlan(plan: UpgradePlan, diff: boolean): string {
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
      : [
          formatTable([
            ['IMAGE', 'FROM', 'TO'],
            ...images.map(({ component, from, to }) => [
              component,
              from,
              from === to ? 'another image of that name' : to,
            ]),
          ]),
        ];
  const lines = [
    ...units.map(({ path, reasons }) => `change ${path}: ${reasons.join(', ')}`),
    ...certificates.server.map((reason) => `renew the certificate: ${reason}`),
    ...certificates.authority.map((reason) => `renew its authority: ${reason}`),
    ...certificates.key.map((reason) => `make a new key: ${reason}`),
    ...(restart.length > 0 ? [`restart ${restart.join(', ')}`] : []),
  ];
  const diffs = diff ? units.map(({ path, before, after }) => formatUnifiedDiff(path, before, after).trimEnd()) : [];
  const parts = [titles[level], ...table, lines.join('\n'), ...(notes.length > 0 ? [notes.join('\n')] : []), ...diffs];
  return parts.join('\n\n');
}

import type { Context } from '#context';
import { HostCommands } from '#node/machine';
import {
  findUnfinished,
  type Unfinished,
  isUpToDate,
  type UpgradePlan,
  forecastUpgrade,
  surveyHost,
  type Forecast,
} from '#registry-host/change';
import { canAskPodman } from '#registry-host/releases';
import { formatBytes, joinParagraphs, Lines } from '#text';
import type { Arguments, OptionRecord } from '../cli/command.ts';
import { formatDuration, formatTable } from '../cli/format.ts';
import { outputOption } from '../cli/options.ts';
import { formatUnifiedDiff } from '../cli/unifiedDiff.ts';
import {
  executionOptions,
  findInstallation,
  podmanOption,
  renewalOf,
  type registryHostOptions,
  type renewalOptions,
} from './options.ts';
import { openTarget, type upgradeOptions } from './target.ts';

/** Options of the output of a plan. */
export const planOptions = {
  diff: { type: 'boolean', describe: 'Show the changes of the units as a unified diff' },
  'detailed-exitcode': {
    type: 'boolean',
    describe: 'Exit with 0 if nothing is to be done, 2 if something is, 1 if it is blocked',
  },
  'changes-exitcode': {
    type: 'number',
    default: 2,
    range: [2, 125],
    describe: 'Exit code of --detailed-exitcode if there is something to do (a usage error also exits with 2)',
  },
  ...outputOption(),
} as const satisfies OptionRecord;

/**
 * Plans the upgrade that the options name, and returns whether a change is unfinished. Asks podman for images. Changes
 * nothing.
 */
export async function makePlan(
  args: Arguments<typeof registryHostOptions & typeof podmanOption & typeof renewalOptions & typeof upgradeOptions>,
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<{ plan: UpgradePlan; unfinished: boolean; forecast: Forecast | undefined }> {
  const { podman } = args;
  const renewal = await renewalOf(args, new Date());
  const detected = await findInstallation(args, environment);
  const { target, release } = await openTarget(args, detected, environment, context);
  await using _release = release;
  // Without its name, podman is that of this machine.
  const isElsewhere = args.root !== '/' && podman === podmanOption.podman.default;
  const programs = { podman, systemctl: 'systemctl', environment, signal: context.signal };
  const commands = new HostCommands(programs, detected.installation.scope);
  const asksPodman = !isElsewhere && (await canAskPodman(commands, detected, context));
  const asked = { files: detected.files, detected, target, release, renewal, sqliteStorage: args.sqliteStorage };
  const { plan } = await surveyHost(asked, asksPodman ? commands : undefined);
  const unfinished = await findUnfinished(detected, context);
  if (unfinished) context.log('warn', describeUnfinished(unfinished));
  const isChange = asksPodman && plan.restart.length > 0 && plan.blockers.length === 0;
  const forecast = isChange ? await forecastUpgrade({ ...detected, detected, commands }, plan) : undefined;
  return { plan, unfinished: unfinished !== undefined, forecast };
}

/** Returns the exit code of a plan: 1 if it is blocked, and `changesExitcode` if there are changes to make. */
export function exitCodeOf(
  plan: UpgradePlan,
  unfinished: boolean,
  { changesExitcode }: Pick<Arguments<typeof planOptions>, 'changesExitcode'>,
): number {
  if (plan.blockers.length > 0) return 1;
  return isUpToDate(plan) && plan.due.length === 0 && !unfinished ? 0 : changesExitcode;
}

/** Returns a plan for `--output`. Each changed unit has its reasons, and its changes as a unified diff. */
export function toPlainPlan({ units, ...rest }: UpgradePlan, forecast?: Forecast): object {
  const changes = units.map(({ path, before, after, reasons }) => {
    return { path, reasons, diff: formatUnifiedDiff(path, before, after) };
  });
  return { ...rest, units: changes, forecast };
}

/** Formats a plan as text, with the diff of its units if `diff`, and with the forecast of the downtime. */
export function formatPlan(plan: UpgradePlan, diff: boolean, forecast?: Forecast): Lines {
  return joinParagraphs(describePlan(plan, diff), ...(forecast ? [describeForecast(forecast)] : []));
}

function describePlan(plan: UpgradePlan, diff: boolean): Lines {
  const { from, to, level, images, units, repairs, migration, certificates, restart, blockers, warnings, due } = plan;
  const notes = [
    ...blockers.map((blocker) => `BLOCKED: ${blocker}`),
    ...due.map((each) => `DUE: ${each}`),
    ...warnings.map((warning) => `note: ${warning}`),
  ];
  if (isUpToDate(plan)) {
    if (blockers.length > 0) return new Lines('The upgrade of the mirror registry is blocked.', ...notes);
    if (due.length > 0) return new Lines('The mirror registry needs your attention.', ...notes);
    return new Lines('The mirror registry is up to date: there is nothing to do.', ...notes);
  }
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
    ...(migration
      ? [
          `move the database from PostgreSQL to SQLite in ${migration.storage}`,
          `change ${migration.configuration}: DB_URI`,
          `disable ${migration.retired}.service, and keep it for a rollback`,
        ]
      : []),
    ...repairs.map((path) => `write ${path} again, which is missing`),
    ...units.map(({ path, reasons }) => `change ${path}: ${reasons.join('; ')}`),
    ...certificates.server.map((reason) => `renew the certificate: ${reason}`),
    ...certificates.authority.map((reason) => `renew its authority: ${reason}`),
    ...certificates.key.map((reason) => `make a new key: ${reason}`),
    ...(restart.length > 0 ? [`restart ${restart.join(', ')}`] : []),
  ];
  const diffs = diff ? units.map(({ path, before, after }) => Lines.split(formatUnifiedDiff(path, before, after))) : [];
  const parts = [
    titles[level],
    ...table,
    new Lines(...lines),
    ...(notes.length > 0 ? [new Lines(...notes)] : []),
    ...diffs,
  ];
  return joinParagraphs(...parts);
}

/** Answers what a person asks before an upgrade. */
function describeForecast({ databaseSize, copyTime, lastOutage, backupSize, free }: Forecast): Lines {
  const limit = executionOptions['health-timeout'].default;
  const copy =
    `${formatBytes(databaseSize)} of database are copied and checked, in about ${formatDuration(copyTime)}, and ` +
    'then Quay starts';
  const start = databaseSize > 0 ? copy : 'Quay restarts';
  const last =
    lastOutage === undefined
      ? 'Not measured on this host yet'
      : `The last such change took ${formatDuration(lastOutage)}`;
  const pushed = databaseSize > 0 ? ' Images pushed since then have to be pushed again.' : '';
  return new Lines(
    `How long is it down? ${start}. ${last}; the limit is ${limit} s (--health-timeout).`,
    'What if it fails?    Everything is restored, byte for byte, which takes about as long again. The backup ' +
      `needs ${formatBytes(backupSize)}, and ${formatBytes(free)} are free.`,
    `Can I go back?       Yes, with 'rollback', while its backup is kept (--keep-backups).${pushed}`,
  );
}

/** Describes an unfinished change, and what to do. */
export function describeUnfinished({ title, phase }: Unfinished): string {
  return (
    `${title} is unfinished (${phase}): run the same command again to resume it, or 'rollback', or 'rollback ` +
    "--abandon'"
  );
}

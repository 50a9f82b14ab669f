import { planUninstall, uninstallRegistry, type UninstallPlan } from '#registry-host/change';
import { joinParagraphs, Lines } from '#text';
import { defineCommand } from '../cli/command.ts';
import { askForYes, dryRunOf, outputOption, yesOption } from '../cli/options.ts';
import { registryHostOptions, uninstallOptions, uninstallRequestOf } from './options.ts';

/** `uninstall`: removes a mirror registry from its host. */
export const command = defineCommand({
  details:
    'Stops and removes the units, the pod with its containers, and the secrets of the registry. Keeps its data: the ' +
    'images, the database, the configuration with its keys, the certificates and the backups. --remove-data removes ' +
    'them too, and they cannot be restored. Images in ' +
    'podman’s storage stay.\n\n' +
    '--remove-data removes nothing without --yes, and lists everything. An interrupted run resumes. The ' +
    'configuration of the registry may be missing.',
  options: {
    ...dryRunOf('With client or server, only print what would be removed and kept'),
    'remove-data': {
      type: 'boolean',
      describe: 'Also remove the images, the database, the configuration, the certificates and the backups',
    },
    ...yesOption('Remove the data of --remove-data, and the registry, instead of only showing them'),
    ...outputOption(),
    ...uninstallOptions,
    ...registryHostOptions,
  },
  examples: [
    ['--dry-run', 'List what would be removed and kept'],
    ['--remove-data --yes', 'Remove the registry with its data'],
  ],
  async run(args, { context, terminal, environment }) {
    const { removeData, output } = args;
    const isUnconfirmed = removeData && !args.yes;
    const dryRun = args.dryRun !== 'none' || isUnconfirmed;
    const request = await uninstallRequestOf(args, environment, context.signal);
    const plan = dryRun ? await planUninstall(request) : await uninstallRegistry(request, removeData, context);
    const words = describePlan(plan, dryRun, removeData);
    const asked = isUnconfirmed ? joinParagraphs(words, askForYes) : words;
    await terminal.printResult(output, { dryRun, removeData, ...plan }, asked);
  },
});

function describePlan(plan: UninstallPlan, dryRun: boolean, removeData: boolean): Lines {
  const done = dryRun ? 'would remove' : 'removed';
  const list = (what: string, names: readonly string[], verb = done): string[] =>
    names.map((name) => `${verb} ${what} ${name}`);
  const data = removeData ? done : dryRun ? 'would keep' : 'kept';
  return new Lines(
    ...list('unit', plan.units),
    ...list('file', plan.unitFiles),
    ...list('pod', plan.pods),
    ...list('container', plan.containers),
    ...list('secret', plan.secrets),
    ...list('volume', plan.volumes, data),
    ...list('folder', plan.folders, data),
    ...list('image name', plan.keptImages, data),
    ...(removeData
      ? []
      : [
          '',
          dryRun
            ? '--remove-data removes what would be kept.'
            : 'To remove what was kept, run the same command with --remove-data --yes.',
        ]),
  );
}

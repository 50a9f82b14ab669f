import { conditionsOf } from '#cluster/objects';
import { ignoring, PluginError } from '#errors';
import { Lines, formatBytes } from '#text';
import { describeClocks, describeSilence, compareAgents, readAgentVersion } from '#update/install';
import { describeSilentMirrors, silentAdvice } from '#update/mirror';
import {
  hasEnded,
  isAbortRequested,
  phaseOf,
  upgradeBundleApi,
  type UpgradeBundle,
  listMirrorStates,
  type NodeMirror,
  chooseRecord,
  followRecord,
  listRecords,
  readElapsed,
  planClusterRestore,
  type ClusterRestore,
  type RestoreStep,
} from '#update/record';
import { openCluster } from '../../cli/access.ts';
import { defineCommand } from '../../cli/command.ts';
import { isDataForm, openEventFormat, breakHanging, formatFields } from '../../cli/format.ts';
import { clusterAccessOptions, outputOption } from '../../cli/options.ts';
import { version } from '../../cli/version.ts';
import { checkJsonPath, formatJsonPath } from './jsonPath.ts';
import { formatStatus, formatTitleText } from './statusText.ts';
import { recordArgument, formatTitle, type ClusterStatus } from './statusView.ts';
import { showInBrowser } from './web.ts';

/** `status`: shows the progress of an update. */
export const command = defineCommand({
  details:
    'Shows the phase, the messages of the agents, and each node with the images that it has. While the cluster ' +
    'updates itself, shows the share that the version operator reports, the elapsed time and an estimate. -w follows ' +
    'the changes until the update is completed (exit code 0) or has failed (1): in place on a terminal, else with a ' +
    'line for each change. --web prints the URL of a page for the browsers of this machine. The URL is secret: other ' +
    'users cannot read the page. --restore prints the steps of OpenShift’s own procedure for this cluster, or why a ' +
    'restore is not possible (exit code 1). It restores nothing. Keep its output, because no command reads the ' +
    'record without an API server.',
  positionals: recordArgument,
  options: {
    watch: { type: 'boolean', alias: 'w', describe: 'Show changes until the update has ended' },
    restore: { type: 'boolean', describe: 'Print the steps that restore the last backup of etcd' },
    web: { type: 'boolean', describe: 'Show changes on a web page of this machine until Ctrl-C' },
    output: { ...outputOption('wide', 'name', 'jsonpath=').output, check: checkJsonPath },
    ...clusterAccessOptions,
  },
  examples: [
    ['', 'Show how far the update has come'],
    ['-w', 'Follow it to its end'],
    ['--web', 'Follow it in a browser'],
    ['-o json', 'The same for a script'],
    ["-o jsonpath='{.status.phase}'", 'Print the phase alone'],
    ['--restore > restore.txt', 'Keep the way back before the update starts'],
  ],
  async run(args, { context, terminal, environment }) {
    if (args.web && (args.watch || args.output !== undefined))
      throw new PluginError('usage', '--web excludes --watch and --output');
    if (args.restore && (args.web || args.watch))
      throw new PluginError('usage', '--restore excludes --watch and --web');
    using cluster = await openCluster(args, environment, context);
    if (args.restore) {
      const records = await listRecords(cluster);
      const withBackups = records.filter(({ status }) => (status?.backups ?? []).length > 0);
      const choice = args.name === undefined && withBackups.length > 0 ? withBackups : records;
      const plan = await planClusterRestore(cluster, chooseRecord(choice, args.name), records);
      const form = isDataForm(args.output) ? args.output : undefined;
      await terminal.printResult(form, plan, formatRestore(plan, terminal.width));
      if (plan.obstacles.length > 0) throw failureOfRestore(plan);
      return;
    }
    const read = async (bundle: UpgradeBundle | undefined, mirrors?: readonly NodeMirror[]): Promise<ClusterStatus> => {
      const elapsed = bundle && (await readElapsed(cluster, bundle));
      return { bundle, elapsed, mirrors: mirrors ?? (await listMirrorStates(cluster)), now: cluster.now() };
    };
    const show = async (status: ClusterStatus): Promise<void> => {
      const screen = { width: terminal.width, rows: Infinity, isWide: args.output === 'wide' };
      const { text, accents } = formatStatus(status, screen);
      if (args.output === 'name' || args.output?.startsWith('jsonpath=')) print(status, args.output);
      else await terminal.printResult(isDataForm(args.output) ? args.output : undefined, plain(status), text, accents);
    };
    const print = (status: ClusterStatus, output: string): void => {
      const text = output === 'name' ? nameOf(status) : formatJsonPath(output.slice('jsonpath='.length), plain(status));
      if (text !== '') terminal.print(Lines.split(text));
    };
    if (args.watch && args.output !== undefined && !isDataForm(args.output))
      throw new PluginError('usage', `--watch prints changes as json or yaml, and not as ${args.output}`);
    const event = isDataForm(args.output) ? await openEventFormat(args.output) : undefined;
    const showChange = async (bundle: UpgradeBundle): Promise<void> => {
      if (event) terminal.print(event(plain(await read(bundle))));
      else if (terminal.live) {
        const screen = { width: terminal.width, rows: terminal.height };
        const { text, accents } = formatStatus(await read(bundle), screen);
        terminal.redraw(text, accents);
      } else {
        // The elapsed time alone is no change.
        const { text, accents } = formatTitleText(bundle, await readElapsed(cluster, bundle));
        if (formatTitle(bundle) !== title) terminal.print(text, accents);
        title = formatTitle(bundle);
      }
    };
    const warnOfAgents = async (bundle: UpgradeBundle): Promise<void> => {
      const silence = hasEnded(bundle) ? undefined : await describeSilence(cluster);
      const agents = await readAgentVersion(cluster);
      const difference = agents && compareAgents(agents, version);
      const clocks = hasEnded(bundle) ? undefined : await describeClocks(cluster);
      for (const text of [silence, clocks, difference]) if (text !== undefined) context.log('warn', text);
    };
    let title = '';
    if (!args.watch && !args.web) {
      const records = await listRecords(cluster);
      // Mirrors serve nodes without any update too.
      const mirrors = await listMirrorStates(cluster);
      const silence = await describeSilentMirrors(cluster, mirrors).catch(ignoring('denied'));
      if (silence !== undefined) context.log('warn', `${silence}. ${silentAdvice}`);
      if (records.length === 0 && args.name === undefined && mirrors.length === 0) {
        if (isDataForm(args.output)) await terminal.printResult(args.output, [], '');
        else if (args.output === undefined || args.output === 'wide') terminal.print(nothingYet);
        return;
      }
      const isIdle = records.length === 0 && args.name === undefined;
      const bundle = isIdle ? undefined : chooseRecord(records, args.name);
      if (bundle) await warnOfAgents(bundle);
      await show(await read(bundle, mirrors));
      return;
    }
    if (args.web) {
      await showInBrowser({ bundles: followRecord(cluster, args.name), read }, { context, terminal });
      return;
    }
    let last = '';
    for await (const followed of followRecord(cluster, args.name)) {
      if (!followed && last === '') context.log('info', 'waiting for a bundle to be detected or applied');
      if (followed && last.trim() === '') await warnOfAgents(followed);
      const text = followed ? JSON.stringify([followed.spec, followed.status, isAbortRequested(followed)]) : ' ';
      if (followed && text !== last) await showChange(followed);
      last = text;
      if (!followed || !hasEnded(followed)) continue;
      checkEnd(followed);
      return;
    }
  },
});

const nothingYet = new Lines(
  'No bundle has been detected or applied.',
  'Insert a USB drive with a bundle into a node, or allow a bundle: oc adm-upgrade-bundle apply.',
);

/** Returns the name of a record as kubectl prints it; empty without one. */
function nameOf({ bundle }: ClusterStatus): string {
  return bundle ? `upgradebundle.${upgradeBundleApi.group}/${bundle.metadata.name}` : '';
}

function checkEnd(bundle: UpgradeBundle): void {
  if (phaseOf(bundle) === 'Completed') return;
  const updated = conditionsOf(bundle).get('Updated');
  const reason = updated === undefined ? '' : `: ${updated.message}`;
  throw new PluginError('partial', `the update with ${bundle.metadata.name} has failed${reason}`, {
    hint: 'See its conditions: oc adm-upgrade-bundle status. To start over: oc adm-upgrade-bundle clean, then apply.',
  });
}

/** Returns an UpgradeBundle without the fields that only the API server needs, and the mirrors beside it. */
function plain({ bundle, mirrors }: ClusterStatus): object {
  const { managedFields: _, ...metadata } = (bundle?.metadata ?? {}) as { readonly managedFields?: unknown };
  return { ...(bundle && { ...bundle, metadata }), ...(mirrors.length > 0 && { mirrors }) };
}

/** Formats the steps of a restore, or why there are none. `width` is that of the terminal. Commands are not wrapped. */
function formatRestore({ record, backup, obstacles, cautions, steps }: ClusterRestore, width: number): Lines {
  const { node, path, version, time, size, digest, copy } = backup;
  const title = `${record}: backup of etcd and the static pods of OpenShift ${version}`;
  const facts = [
    ['Time', time],
    ['Node', node],
    ['Folder', path],
    ...(copy === undefined ? [] : [['Copy', copy]]),
    ['Snapshot', `${formatBytes(size)}, ${digest}`],
  ];
  const list = (texts: readonly string[]): string[] => texts.flatMap((text) => ['', ...breakHanging(text, width)]);
  const why =
    obstacles.length === 0
      ? []
      : list(['OpenShift does not support its restore now:', ...obstacles.map((each) => `- ${each}.`)]);
  const only = 'The steps, for a case of the OpenShift support:';
  const how = steps.flatMap((step, index) => formatStep(step, index + 1, width));
  return new Lines(
    title,
    formatFields(facts, width),
    ...why,
    ...(how.length > 0 ? list([...(why.length > 0 ? [only] : []), ...cautions]) : []),
    ...how,
  );
}

function formatStep({ purpose, nodes, commands }: RestoreStep, number: number, width: number): string[] {
  const place = nodes.length === 0 ? '' : ` On ${nodes.join(', ')}:`;
  return ['', ...breakHanging(`${number}. ${purpose}${place}`, width), ...commands.map((command) => `     ${command}`)];
}

/** Returns the error for a backup that cannot be restored. */
function failureOfRestore({ record, obstacles }: ClusterRestore): PluginError {
  const message = `OpenShift does not support the restore of ${record} now: ${obstacles[0] ?? ''}`;
  const hint = 'See docs/how-to/restore-a-backup.md for other ways back.';
  return new PluginError('not-ready', message, { hint });
}

import { listOf } from '../../lib/fields.ts';
import { chooseRecord, listRecords, watchRecords } from '../../lib/update/bundleRecord.ts';
import { describeSilence } from '../../lib/update/install/agentSilence.ts';
import { readStart } from '../../lib/update/releaseState.ts';
import type { Cluster } from '../../lib/kubernetes/client.ts';
import { clusterVersionReference } from '../../lib/kubernetes/clusterVersion.ts';
import { conditionsOf } from '../../lib/kubernetes/fields.ts';
import {
  hasEnded,
  phaseOf,
  summarizeNodes,
  type NodeProgress,
  type UpgradeBundle,
} from '../../lib/update/upgradeBundle.ts';
import { isPluginError, PluginError } from '../../lib/errors.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import { defineCommand } from '../cli/command.ts';
import { formatBar, formatBytes, formatDuration, formatFields, formatTable, formatYaml } from '../cli/format.ts';
import { clusterAccessOptions, outputOption } from '../cli/options.ts';
import { phaseAccents, recordArgument } from './record.ts';

/** The width of a bar in characters. It is short because names of nodes are long, and terminals may have 80 columns. */
const barWidth = 10;

/** `status`: shows the progress of an update. */
export const command = defineCommand({
  details:
    'Shows the phase, the messages of the agents, and each node with the images that it has. While the cluster updates itself, shows ' +
    'the share that the version operator reports, the elapsed time and an estimate. -w follows the changes until the update is completed ' +
    '(exit code 0) or has failed (1): in place on a terminal, else with a line for each change.',
  positionals: recordArgument,
  options: {
    watch: { type: 'boolean', alias: 'w', describe: 'Show changes until the update has ended' },
    ...outputOption(['json', 'yaml']),
    ...clusterAccessOptions,
  },
  examples: [
    ['', 'Show how far the update has come'],
    ['-w', 'Follow it to its end'],
    ['-o json', 'The same for a script'],
  ],
  async run(args, { context, terminal, environment }) {
    const cluster = await openCluster(args, environment, context);
    const show = async (bundle: UpgradeBundle): Promise<void> => {
      if (args.output === 'yaml')
        terminal.print(`${args.watch ? '---\n' : ''}${(await formatYaml(plain(bundle))).trimEnd()}`);
      else if (args.output === 'json') terminal.print(JSON.stringify(plain(bundle), null, args.watch ? 0 : 2));
      else if (args.watch && !terminal.live) {
        // The elapsed time alone is no change.
        if (formatTitle(bundle) !== title)
          terminal.print(formatTitle(bundle, await readElapsed(cluster, bundle)), phaseAccents);
        title = formatTitle(bundle);
      } else {
        const text = formatStatus(bundle, await readElapsed(cluster, bundle), terminal.width);
        if (args.watch) terminal.redraw(text, phaseAccents);
        else terminal.print(text, phaseAccents);
      }
    };
    const warnOfSilence = async (bundle: UpgradeBundle): Promise<void> => {
      const silence = hasEnded(bundle) ? undefined : await describeSilence(cluster);
      if (silence !== undefined) context.log('warn', silence);
    };
    let title = '';
    try {
      if (!args.watch) {
        const bundle = chooseRecord(await listRecords(cluster), args.name);
        await warnOfSilence(bundle);
        await show(bundle);
        return;
      }
      let { name } = args;
      let last = '';
      for await (const bundles of watchRecords(cluster)) {
        // The UpgradeBundle to follow may be created later.
        const followed = bundles.length === 0 ? undefined : chooseRecord(bundles, name);
        if (!followed && last === '') context.log('info', 'waiting for a bundle to be detected or applied');
        if (followed && last.trim() === '') await warnOfSilence(followed);
        const text = followed ? JSON.stringify([followed.spec, followed.status]) : ' ';
        if (followed && text !== last) await show(followed);
        last = text;
        name = followed?.metadata.name ?? name;
        if (!followed || !hasEnded(followed)) continue;
        checkEnd(followed);
        return;
      }
    } finally {
      cluster.close();
    }
  },
});

function checkEnd(bundle: UpgradeBundle): void {
  if (phaseOf(bundle) === 'Completed') return;
  const updated = conditionsOf(bundle).get('Updated');
  const reason = updated === undefined ? '' : `: ${updated.message}`;
  throw new PluginError('partial', `The update with ${bundle.metadata.name} has failed${reason}`, {
    hint: 'See its conditions: oc adm-upgrade-bundle status. To start over: oc adm-upgrade-bundle clean, then apply.',
  });
}

/** Returns an UpgradeBundle without the fields that only the API server needs. */
function plain({ metadata, ...bundle }: UpgradeBundle): object {
  const { managedFields: _, ...kept } = metadata as UpgradeBundle['metadata'] & { managedFields?: unknown };
  return { ...bundle, metadata: kept };
}

/** Reads the seconds since the version operator began. Undefined if it has not, or if the user may not read it. */
async function readElapsed(cluster: Cluster, bundle: UpgradeBundle): Promise<number | undefined> {
  const { release } = bundle.status ?? {};
  if (phaseOf(bundle) !== 'Upgrading' || release === undefined) return undefined;
  const version = await cluster.read(clusterVersionReference).catch((error: unknown) => {
    if (!isPluginError(error, 'denied')) throw error;
    return undefined;
  });
  const start = version && readStart(version, release);
  return start && (Date.now() - start.getTime()) / 1000;
}

function formatTitle(bundle: UpgradeBundle, elapsed?: number): string {
  const facts = phaseOf(bundle) === 'Upgrading' ? describeUpdate(bundle, elapsed) : describeLoading(bundle);
  return `${bundle.metadata.name}: ${[phaseOf(bundle), ...facts].join(', ')}`;
}

/** The work of the version operator, with the time that is left if it continues at its pace. `elapsed`: seconds. */
function describeUpdate({ status }: UpgradeBundle, elapsed: number | undefined): string[] {
  const progress = status?.progress === undefined ? [] : [status.progress];
  if (elapsed === undefined) return progress;
  const percent = Number.parseInt(status?.progress ?? '', 10);
  const left =
    percent >= 5 && percent < 100 ? [`about ${formatDuration((elapsed * (100 - percent)) / percent)} left`] : [];
  return [...progress, `${formatDuration(elapsed)} elapsed`, ...left];
}

function describeLoading({ status }: UpgradeBundle): string[] {
  const { nodes = [] } = status ?? {};
  if (nodes.length === 0) return [];
  // The controller also counts nodes that have not reported yet.
  const { nodesReady, progress } = { ...summarizeNodes(nodes), ...status };
  const isCounted = nodes.some(({ imagesTotal }) => imagesTotal > 0);
  return [`${nodesReady.replace('/', ' of ')} nodes ready`, ...(isCounted ? [progress] : [])];
}

/** Formats the whole status as text and tables. `width` is that of the terminal, in characters. */
function formatStatus(bundle: UpgradeBundle, elapsed: number | undefined, width: number): string {
  const { version, release, hops, nodes = [], conditions } = bundle.status ?? {};
  const { digest, file } = bundle.spec.bundle;
  const fields = [
    ['Version', version],
    ['Updates', hops?.map((hop) => `${hop.version} ${hop.phase}`).join(', ')],
    ['Release', release],
    ['Bundle', digest ?? 'no digest is allowed: oc adm-upgrade-bundle apply does that'],
    ['Place', file],
    [
      'Held',
      (bundle.spec.hold && !hasEnded(bundle)) || phaseOf(bundle) === 'Held'
        ? 'until oc adm-upgrade-bundle resume'
        : undefined,
    ],
  ].flatMap(([name = '', value]) => (value === undefined ? [] : [[name, value]]));
  const told = listOf(conditions).map(({ type, status, reason, message }) =>
    [type, status, reason, message].map(String),
  );
  return [
    formatTitle(bundle, elapsed),
    formatFields(fields, width),
    ...(told.length > 0 ? ['', formatTable([['CONDITION', 'STATUS', 'REASON', 'MESSAGE'], ...told], [], width)] : []),
    ...(nodes.length > 0 ? ['', formatTable([header, ...nodes.map(describe)], ['BLOBS'], width)] : []),
  ].join('\n');
}

const header = ['NODE', 'PHASE', 'IMAGES', '', 'BLOBS', 'MESSAGE'];

function describe({ name, phase, imagesLoaded, imagesTotal, bytes, message = '' }: NodeProgress): string[] {
  const bar = formatBar(imagesTotal === 0 ? 0 : imagesLoaded / imagesTotal, barWidth);
  const images = imagesTotal === 0 ? 'not counted yet' : `${imagesLoaded} of ${imagesTotal}`;
  return [name, phase, bar, images, formatBytes(bytes), message];
}

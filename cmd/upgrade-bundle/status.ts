import { chooseRecord, listRecords, watchRecords } from '../../lib/update/bundleRecord.ts';
import { describeSilence } from '../../lib/update/agentSilence.ts';
import { conditionsOf, listOf } from '../../lib/kubernetes/fields.ts';
import {
  hasEnded,
  phaseOf,
  summarizeNodes,
  type NodeProgress,
  type UpgradeBundle,
} from '../../lib/update/upgradeBundle.ts';
import { PluginError } from '../../lib/errors.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import { defineCommand } from '../cli/command.ts';
import { formatBar, formatBytes, formatFields, formatTable, formatYaml } from '../cli/format.ts';
import { clusterAccessOptions, outputOption } from '../cli/options.ts';
import { phaseAccents, recordArgument } from './record.ts';

/** The width of a bar in characters. It is short because names of nodes are long, and terminals may have 80 columns. */
const barWidth = 10;

/** `status`: shows the progress of an update. */
export const command = defineCommand({
  details:
    'Shows the phase, the messages of the agents, and each node with the images that it has. -w follows the changes until the update ' +
    'is completed (exit code 0) or has failed (1): in place on a terminal, else with a line for each change.',
  positionals: recordArgument,
  options: {
    watch: { type: 'boolean', alias: 'w', describe: 'Show every change, until the update has ended' },
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
      else if (!args.watch) terminal.print(formatStatus(bundle), phaseAccents);
      else if (terminal.live) terminal.redraw(formatStatus(bundle), phaseAccents);
      else if (formatTitle(bundle) !== title) terminal.print((title = formatTitle(bundle)), phaseAccents);
    };
    let title = '';
    try {
      if (!args.watch) {
        const bundle = chooseRecord(await listRecords(cluster), args.name);
        const silence = hasEnded(bundle) ? undefined : await describeSilence(cluster);
        if (silence !== undefined) context.log('warn', silence);
        await show(bundle);
        return;
      }
      let { name } = args;
      let last = '';
      for await (const bundles of watchRecords(cluster)) {
        // The UpgradeBundle to follow may be created later.
        const followed = bundles.length === 0 ? undefined : chooseRecord(bundles, name);
        if (!followed && last === '') context.log('info', 'waiting for a bundle to be detected or applied');
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

function formatTitle(bundle: UpgradeBundle): string {
  const nodes = bundle.status?.nodes ?? [];
  const { nodesReady, progress } = summarizeNodes(nodes);
  const loading = nodes.length === 0 ? '' : `, ${nodesReady.replace('/', ' of ')} nodes ready, ${progress}`;
  return `${bundle.metadata.name}: ${phaseOf(bundle)}${loading}`;
}

/** Formats the whole status as text and tables. */
function formatStatus(bundle: UpgradeBundle): string {
  const { version, release, nodes = [], conditions } = bundle.status ?? {};
  const { digest, file } = bundle.spec.bundle;
  const fields = [
    ['Version', version],
    ['Release', release],
    ['Bundle', digest ?? 'no digest is allowed: oc adm-upgrade-bundle apply does that'],
    ['Place', file],
    ['Held', bundle.spec.hold && !hasEnded(bundle) ? 'until oc adm-upgrade-bundle resume' : undefined],
  ].flatMap(([name = '', value]) => (value === undefined ? [] : [[name, value]]));
  const told = listOf(conditions).map(({ type, status, reason, message }) =>
    [type, status, reason, message].map(String),
  );
  return [
    formatTitle(bundle),
    formatFields(fields),
    ...(told.length > 0 ? ['', formatTable([['CONDITION', 'STATUS', 'REASON', 'MESSAGE'], ...told])] : []),
    ...(nodes.length > 0 ? ['', formatTable([header, ...nodes.map(describe)], ['BLOBS'])] : []),
  ].join('\n');
}

const header = ['NODE', 'PHASE', 'IMAGES', '', 'BLOBS', 'MESSAGE'];

function describe({ name, phase, imagesLoaded, imagesTotal, bytes, message = '' }: NodeProgress): string[] {
  const bar = formatBar(imagesTotal === 0 ? 0 : imagesLoaded / imagesTotal, barWidth);
  return [name, phase, bar, `${imagesLoaded} of ${imagesTotal}`, formatBytes(bytes), message];
}

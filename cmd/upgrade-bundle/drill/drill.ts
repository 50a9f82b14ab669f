import { PluginError } from '../../../lib/errors.ts';
import { drillNode, endDrill, type NodeDrill } from '../../../lib/readiness/drill/drill.ts';
import { defineCommand } from '../../cli/command.ts';
import { isDataForm } from '../../cli/format.ts';
import { parseDuration } from '../../cli/values/duration.ts';
import { clusterAccessOptions, outputOption, yesOption } from '../../cli/options.ts';
import { Lines } from '../../../lib/lines.ts';
import { listPool } from '../../../lib/readiness/drill/nodePool.ts';
import { openCluster } from '../../cli/clusterAccess.ts';
import { formatDrillJunit, formatDrills } from './drillText.ts';
import { tool } from '../../cli/access.ts';
import { formatDrillPage } from '../report/findingsPage.ts';

/** `drill`: shows on a live cluster that its nodes start without a registry. */
export const command = defineCommand({
  details:
    'Sends every registry of a node to a local port that answers nothing, and restarts its container runtime, or with --reboot drains ' +
    'and reboots it. Waits until all pods of the node run again. Reports what asked for which image, and how long each pod took. ' +
    'Before that it checks preflight, the control plane, etcd and disruption budgets. Afterwards the node is as before. If this ' +
    'command ends early, the node ends the drill by itself. The agents of install must run on the node.',
  positionals: {
    node: { type: 'string', describe: 'The node', suggest: 'nodes' },
  },
  options: {
    pool: {
      type: 'string',
      describe: 'All nodes of this MachineConfigPool, one after the other; stops at the first failure',
    },
    reboot: { type: 'boolean', describe: 'Drain and reboot the node, instead of a restart of its container runtime' },
    ...yesOption('Confirm a drill of the only node, or of the only node of the control plane'),
    timeout: {
      type: 'string',
      default: '15m',
      describe: 'How long draining may take for each node, and then how long the restart may take',
      check: (text: string) => void parseDuration(text),
    },
    end: { type: 'boolean', describe: 'End an interrupted drill of the node, and do nothing else' },
    ...outputOption('junit', 'html'),
    ...clusterAccessOptions,
  },
  examples: [
    ['worker-0', 'See whether the pods of a node keep running while no registry answers'],
    ['worker-0 --reboot', 'See whether a node boots without a registry'],
    ['--pool=worker --reboot -o junit > drill.xml', 'The same for each node of a pool, with a report for auditors'],
    ['worker-0 --end', 'End a drill whose command was killed'],
  ],
  async run({ node, pool, reboot, yes, end, output, ...args }, { context, terminal, environment }) {
    if ((node === undefined) === (pool === undefined)) {
      throw new PluginError('usage', 'name either a node or a pool', {
        hint: 'See “oc get nodes” and “oc get machineconfigpool”.',
      });
    }
    using cluster = await openCluster(args, environment, context);
    const options = { reboot, single: yes, timeout: parseDuration(args.timeout), interval: 2000 };
    const drills: NodeDrill[] = [];
    try {
      const nodes = pool === undefined ? [String(node)] : await listPool(cluster, pool);
      if (end) {
        for (const name of nodes) await endDrill(cluster, name, options, context);
        if (isDataForm(output)) await terminal.printResult(output, { cluster: cluster.name, ended: nodes }, '');
        return;
      }
      for (const name of nodes) {
        drills.push(await drillNode(cluster, name, options, context));
        if (drills.at(-1)?.result !== 'passed') break;
      }
      if (drills.some(({ result }) => result !== 'passed')) throw failureOf(drills, nodes);
    } finally {
      // After a failure or an interruption, the nodes before it count too.
      if (drills.length > 0) {
        const { name } = cluster;
        await terminal.printResult(
          output,
          { cluster: name, nodes: drills },
          {
            words: () => formatDrills(drills),
            junit: () => Lines.split(formatDrillJunit(name, drills)),
            html: () => Lines.split(formatDrillPage(name, drills, { date: new Date(), tool })),
          },
        );
      }
    }
  },
});

function failureOf(drills: readonly NodeDrill[], nodes: readonly string[]): PluginError {
  const last = drills.at(-1);
  const untriedCount = nodes.length - drills.length;
  const rest =
    untriedCount === 0 ? '' : `; ${untriedCount} more ${untriedCount === 1 ? 'node was' : 'nodes were'} not tried`;
  const message = `${last?.node ?? ''} does not start without a registry: ${last?.message ?? ''}${rest}`;
  const hint =
    'The node uses its registries again. Load or pin the images above, or set imagePullPolicy: IfNotPresent, then run this again.';
  return new PluginError('not-ready', message, { hint });
}

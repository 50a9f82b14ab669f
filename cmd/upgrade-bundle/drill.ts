import { drillNode, endDrill, type NodeDrill, listPool } from '#drill/drill';
import { PluginError } from '#errors';
import { Lines, joinParagraphs } from '#text';
import { tool, openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { isDataForm, formatTable } from '../cli/format.ts';
import { formatJunit, type JunitCase, type JunitSuite } from '../cli/junit.ts';
import { clusterAccessOptions, outputOption, yesOption } from '../cli/options.ts';
import { parseDuration } from '../cli/values.ts';
import { formatDrillPage } from './report/findingsPage.ts';

/** `drill`: shows on a live cluster that its nodes start without a registry. */
export const command = defineCommand({
  details:
    'Sends every registry of a node to a local port that answers nothing, and restarts its container runtime, or ' +
    'with --reboot drains and reboots it. Waits until all pods of the node run again. Reports what asked for which ' +
    'image, and how long each pod took. Before that it checks preflight, the control plane, etcd and disruption ' +
    'budgets. Afterwards the node is as before. If this command ends early, the node ends the drill by itself. The ' +
    'agents of install must run on the node.',
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
    'The node uses its registries again. Load or pin the images above, or set imagePullPolicy: IfNotPresent, ' +
    'then run this again.';
  return new PluginError('not-ready', message, { hint });
}

/** The number of pods that ran again to show, the slowest first. */
const shown = 10;

/** Formats the results of drills for a person. */
export function formatDrills(drills: readonly NodeDrill[]): Lines {
  return joinParagraphs(...drills.map(describeDrill));
}

function describeDrill({ node, result, reboot, version, seconds, message, pods, asked }: NodeDrill): Lines {
  const how = reboot ? 'a reboot' : 'a restart of the container runtime';
  const missing = pods.filter((pod) => pod.seconds === undefined);
  const running = pods.filter((pod) => pod.seconds !== undefined);
  const slowest = running.toSorted((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0));
  const more = running.length > shown ? [`… and ${running.length - shown} more that run; -o json lists them all`] : [];
  const rows = [...missing, ...slowest.slice(0, shown)].map((pod) => [
    `${pod.namespace}/${pod.name}`,
    pod.owner || '-',
    pod.seconds === undefined ? 'does not run' : `${pod.seconds} s`,
    pod.message ?? '',
  ]);
  const images = asked.map(({ image, count, pods: users, clients }) => [
    image,
    String(count),
    users.map((pod) => `${pod.namespace}/${pod.name}${pod.owner === '' ? '' : ` (${pod.owner})`}`).join(', ') ||
      clients.join(', '),
  ]);
  return new Lines(
    `${node}: ${result} (OpenShift ${version}, ${how})`,
    `${running.length} of ${pods.length} pods ran again without a registry, the last after ${seconds} s.`,
    ...(message === undefined ? [] : [`Reason: ${message}.`]),
    ...(rows.length === 0 ? [] : ['', formatTable([['POD', 'OWNER', 'RAN AGAIN', 'REASON'], ...rows]), ...more]),
    '',
    ...(images.length === 0
      ? ['Nothing asked for an image.']
      : [formatTable([['IMAGE ASKED FOR', 'TIMES', 'BY'], ...images], ['TIMES'])]),
  );
}

/**
 * Formats the results of drills as JUnit XML: a suite for each node, a case for each pod, and one for the node itself.
 */
export function formatDrillJunit(cluster: string, drills: readonly NodeDrill[]): string {
  return formatJunit(`drill ${cluster}`, drills.map(toSuite));
}

function toSuite({
  node,
  result,
  reboot,
  version,
  started,
  seconds,
  message = '',
  pods,
  asked,
}: NodeDrill): JunitSuite {
  const images = asked.map(
    ({ image, count, clients }) => `${image} was asked for ${count} times by ${clients.join(', ')}`,
  );
  const words = [`OpenShift ${version}, ${reboot ? 'reboot' : 'restart of the container runtime'}`, ...images];
  const own = {
    classname: node,
    name: 'starts without a registry',
    time: seconds,
    output: words.join('\n'),
    failure: result === 'passed' ? undefined : { type: result, message },
  };
  const cases = pods.map((pod): JunitCase => {
    const name = `${pod.namespace}/${pod.name}`;
    const podImages = asked.filter((each) => each.pods.some((user) => `${user.namespace}/${user.name}` === name));
    return {
      classname: `${node}.${pod.owner || 'Pod'}`,
      name,
      time: pod.seconds ?? 0,
      failure: pod.seconds === undefined ? { type: 'not running', message: pod.message ?? '' } : undefined,
      output: podImages.length > 0 ? podImages.map(({ image }) => `asked for ${image}`).join('\n') : undefined,
    };
  });
  return { name: node, timestamp: started, time: seconds, cases: [own, ...cases] };
}

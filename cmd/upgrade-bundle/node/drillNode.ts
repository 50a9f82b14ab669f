import { connectCluster } from '#cluster/client';
import { releaseNode } from '#drill/releaseNode';
import { runDrill } from '#node/runtime';
import { defineCommand } from '../../cli/command.ts';

/** `drill-node`: the part of a drill that runs on its node. */
export const command = defineCommand({
  isService: true,
  details:
    'Serves a registry without content to this node, and writes the drop-in of registries.conf that sends every ' +
    'registry to it. Writes each request to a file. At the end of its time, it removes the drop-in, and uncordons ' +
    'the node if the drill cordoned it, with the kubeconfig of the kubelet. Started by systemd, which removes ' +
    'everything after it, in whichever way it ends.',
  options: {
    'node-name': { type: 'string', required: true, describe: 'Name of the Node object' },
    until: { type: 'number', required: true, describe: 'End of the drill, in seconds since 1970' },
    registry: {
      type: 'string',
      repeatable: true,
      describe: 'Registry that the cluster knows, in addition to those of this node',
    },
    'after-reboot': { type: 'boolean', describe: 'Continue only if the drill announced this boot' },
    kubeconfig: {
      type: 'string',
      default: '/var/lib/kubelet/kubeconfig',
      describe: 'Kubeconfig with which the node is uncordoned',
      suggest: 'files',
    },
  },
  examples: [['--node-name=worker-0 --until=1795000000 --registry=quay.io', 'Run the part of a drill on its node']],
  async run({ nodeName: node, until, registry: registries, afterReboot, kubeconfig }, { context, environment }) {
    const host = { root: '/', environment };
    const end = await runDrill(host, { node, until, registries }, { afterReboot }, context);
    if (end === 'interrupted') return;
    context.log('warn', 'nothing else has ended the drill: releasing the node');
    using cluster = await connectCluster({ kubeconfig, environment }, context);
    await releaseNode(cluster, node, ({ started, reboot }) => ({
      result: 'interrupted',
      started,
      ended: new Date().toISOString(),
      reboot,
      message: 'the command that ran the drill ended before the drill',
    }));
  },
});

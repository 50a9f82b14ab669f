import { hostname } from 'node:os';
import { pathOnHost } from '#node/machine';
import { runController } from '#update/controller';
import { mirrorSecretFolder } from '#update/mirror';
import { loadReportKey, reportKeyFolder } from '#update/report';
import { tool, openCluster } from '../../cli/access.ts';
import { defineCommand } from '../../cli/command.ts';
import { offlineTrustOf } from '../../cli/trust.ts';
import { agentOptions } from './nodeOptions.ts';

/** `controller`: leads the updates of a cluster. */
export const command = defineCommand({
  isService: true,
  details:
    'Leads the update of the cluster while it holds the Lease, on a node of the control plane. It checks the ' +
    'cluster, lets nodes load in turn, pins the images, and requests the update. It reads the facts that the agent ' +
    'of its own node has verified, and verifies them again. It can be killed at any point: another controller ' +
    'continues. In a pod it uses the account of the pod. It must run as root.',
  options: agentOptions,
  examples: [
    ['', 'Run the controller of this node, in a pod of the DaemonSet'],
    ['--kubeconfig=config', 'Run it by hand'],
  ],
  async run(args, { context, environment }) {
    using cluster = await openCluster(args, environment, context);
    const node = args.nodeName ?? (environment['NODE_NAME'] || hostname());
    const folder = pathOnHost({ root: args.root, environment }, args.downloadDir);
    const host = { root: args.root, environment };
    const { EXECUTABLE: executable = '' } = environment;
    const mirror = executable === '' ? undefined : { host, secrets: mirrorSecretFolder, executable };
    const reports = args.reports ? { key: await loadReportKey(reportKeyFolder), tool } : undefined;
    const settings = {
      node,
      folder,
      mirror,
      reports,
      host,
      trust: offlineTrustOf(args),
      interval: args.interval * 1000,
    };
    await runController(cluster, settings, context);
  },
});

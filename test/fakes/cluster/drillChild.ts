import '../../support/clientIndex.ts';
import { connectCluster } from '../../../lib/cluster/client.ts';
import { drillNode } from '../../../lib/drill/drill.ts';
import { hasty } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import { KilledCluster } from './killedCluster.ts';

// A drill that restarts the container runtime in a separate process, which kills itself after a step.
const [, , kubeconfig = '', name = '', killAt = ''] = process.argv;
const context = makeContext();
const cluster = await connectCluster({ kubeconfig, environment: {}, retry: hasty }, context);
const killed = new KilledCluster(cluster, Number(killAt), () => process.kill(process.pid, 'SIGKILL'));
const options = { reboot: false, single: false, timeout: 20_000, interval: 200, limit: 60_000 };
await drillNode(killed.cluster, name, options, context);

import '../../support/clientIndex.ts';
import { drillNode } from '../../../lib/readiness/drill/drill.ts';
import { Cluster, connectCluster } from '../../../lib/cluster/client.ts';
import { hasty } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';

// A drill in a separate process, which kills itself as `kill -9` does: after the KILL_AT-th write to
// the cluster or command on the node. Prints the number of steps.
const [, , kubeconfig = '', name = '', mode = '', limit = '', killAt = ''] = process.argv;
let steps = 0;

type Method = (this: Cluster, ...args: unknown[]) => Promise<unknown>;

for (const name of ['patch', 'exec', 'evict', 'create'] as const) {
  const method = Reflect.get(Cluster.prototype, name) as Method;
  const counted: Method = async function (...args) {
    try {
      return await method.apply(this, args);
    } finally {
      // The checks create objects too, which nothing keeps.
      const [object] = args as [{ readonly kind?: string }];
      if (name !== 'create' || object.kind === 'Event') steps += 1;
      if (steps > 0 && steps === Number(killAt)) process.kill(process.pid, 'SIGKILL');
    }
  };
  Object.defineProperty(Cluster.prototype, name, { value: counted });
}

const context = makeContext();
const cluster = await connectCluster({ kubeconfig, environment: {}, retry: hasty }, context);
const options = { reboot: mode === 'reboot', single: false, timeout: 20_000, interval: 200, limit: Number(limit) };
const { result } = await drillNode(cluster, name, options, context);
cluster[Symbol.dispose]();
console.log(`${result} after ${steps} steps`);

import '../../support/clientIndex.ts';
import { connectCluster } from '../../../lib/cluster/client.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { controlRollout } from '../../../lib/update/controller/rollout.ts';
import { hasty } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';

// The controller of a fleet, in a process of its own, so that its cost can be measured. Answers each message with it.

/** What a controller has cost since its start: CPU time in seconds, and the peak of its memory in bytes. */
export interface ControllerCost {
  readonly cpu: number;
  readonly memory: number;
}

const [, , kubeconfig = '', identity = '', interval = '', folder = '', keyring = '', fingerprint = ''] = process.argv;
const context = makeContext();
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  const cost: ControllerCost = { cpu: (user + system) / 1e6, memory: process.resourceUsage().maxRSS * 1024 };
  process.send?.(cost);
});
process.once('disconnect', () => process.exit(0));
const options = { kubeconfig, environment: {}, retry: hasty, userAgent: 'controller' };
const cluster = await connectCluster(options, context);
const trust = { keyrings: [keyring], fingerprints: [fingerprint], fetchFile: () => Promise.resolve(undefined) };
const cache = new BundleCache(folder, { ...trust, allowUnsigned: false });
const readBundle: Parameters<typeof controlRollout>[1]['readBundle'] = (digest) => cache.recall(digest, context);
const settings = { identity, namespace: 'oc-upgrade-bundle', interval: Number(interval), readBundle };
await controlRollout(cluster, settings, context);

import '../../support/clientIndex.ts';
import { connectCluster } from '../../../lib/cluster/client.ts';
import { controlRollout } from '../../../lib/update/controller/rollout.ts';
import { hasty } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import { makeFacts } from './updatingSite.ts';

// A controller in a separate process, so that tests can kill it.
const [, , kubeconfig = '', identity = ''] = process.argv;
const context = makeContext();
const cluster = await connectCluster({ kubeconfig, environment: {}, retry: hasty }, context);
const lease = { duration: 1000, retryPeriod: 50 };
const readBundle = () => Promise.resolve(makeFacts());
await controlRollout(cluster, { identity, namespace: 'oc-upgrade-bundle', interval: 150, lease, readBundle }, context);

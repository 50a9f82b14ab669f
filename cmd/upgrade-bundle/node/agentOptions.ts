import { clusterAccessOptions } from '../../cli/options.ts';
import { hostOptions } from './host.ts';
import { offlineTrustOptions } from '../../cli/trust.ts';
import { nodeStateFolder } from '../../../lib/node/machine/paths.ts';

/** The options of agents and controllers. */
export const agentOptions = {
  'node-name': {
    type: 'string',
    describe: 'Name of the node (default: $NODE_NAME, or the host name)',
    suggest: 'nodes',
  },
  interval: {
    type: 'number',
    isTime: true,
    default: 15,
    range: [1, 3600],
    describe: 'Approximate time between two checks of the cluster and the media',
  },
  'download-dir': {
    type: 'string',
    default: nodeStateFolder,
    suggest: 'folders',
    describe: 'Folder for bundles from other nodes',
  },
  ...hostOptions,
  ...offlineTrustOptions,
  ...clusterAccessOptions,
} as const;

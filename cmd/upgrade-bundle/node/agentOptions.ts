import { clusterOptions } from '../../cli/options.ts';
import { hostOptions } from './host.ts';
import { offlineTrustOptions } from '../../cli/trust.ts';
import { nodeStateFolder } from '../../../lib/machine/paths.ts';

/** The options of what runs on a node: agents, and controllers. */
export const agentOptions = {
  'node-name': {
    type: 'string',
    describe: 'Name of the node ($NODE_NAME, or the name of this machine)',
    suggest: 'nodes',
  },
  interval: {
    type: 'number',
    default: 15,
    range: [1, 3600],
    describe: 'Look at the cluster and at the media every so many seconds, more or less',
  },
  'download-dir': {
    type: 'string',
    default: nodeStateFolder,
    suggest: 'folders',
    describe: 'Where bundles from other nodes are kept',
  },
  ...hostOptions,
  ...offlineTrustOptions,
  ...clusterOptions,
  'certificate-authority': {
    type: 'string',
    suggest: 'files',
    describe: 'PEM file with the authority that the certificate of the API server is from',
    group: 'Cluster:',
  },
} as const;

import { signalKinds, type SignalKind, nodeStateFolder } from '#node/machine';
import { inGroup, type OptionRecord } from '../../cli/command.ts';
import { clusterAccessOptions } from '../../cli/options.ts';
import { offlineTrustOptions } from '../../cli/trust.ts';

/** The options of every command that uses the image store or the configuration of a machine. */
export const hostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Root folder of the machine, such as /host in a container',
    suggest: 'folders',
  },
} as const satisfies OptionRecord;

/** The options of what agents say to a person in front of a node. */
export const screenOptions = inGroup('At the node:', {
  console: {
    type: 'string',
    choices: ['on', 'off'],
    default: 'on',
    describe: 'Tell on the login screen of each node what its agent does, and when the USB drive may be removed',
  },
  signal: {
    type: 'string',
    choices: signalKinds,
    describe: 'Also tell it by lights of the node or its keyboard, or by its speaker (default: no signal)',
  },
});

/** Returns whether the login screen is used, and the other signal, from `screenOptions`. */
export function screenOf(args: { readonly console: string; readonly signal?: SignalKind | undefined }): {
  readonly console: boolean;
  readonly signal?: SignalKind | undefined;
} {
  return { console: args.console === 'on', signal: args.signal };
}

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
  reports: {
    type: 'boolean',
    describe: 'Make signed reports (controller), and write them onto drives with a verified bundle (agent)',
  },
  ...hostOptions,
  ...offlineTrustOptions,
  ...clusterAccessOptions,
} as const;

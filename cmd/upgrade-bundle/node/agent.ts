import { constants, hostname, setPriority } from 'node:os';
import { mountFolder, pathOnHost } from '#node/machine';
import { type ServedExecutable, runAgent } from '#update/agent';
import { executablePort, tokenPath } from '#update/install';
import { openCluster } from '../../cli/access.ts';
import { defineCommand } from '../../cli/command.ts';
import { offlineTrustOf } from '../../cli/trust.ts';
import { parseSize, parseListen, readToken } from '../../cli/values.ts';
import { agentOptions, screenOf, screenOptions } from './nodeOptions.ts';

const options = {
  listen: {
    type: 'string',
    describe: 'Address and port for the agents of other nodes (default: port 8080 of $POD_IP, or of all addresses)',
  },
  'token-file': {
    type: 'string',
    default: tokenPath,
    suggest: 'files',
    describe: 'File with the token that the agents share',
  },
  'metrics-port': {
    type: 'number',
    range: [1, 65_535],
    describe: 'Port for Prometheus metrics, which require a bearer token (default: no metrics)',
  },
  'media-folder': {
    type: 'string',
    repeatable: true,
    suggest: 'folders',
    describe: 'Folder to search for bundles, in addition to USB drives and discs',
  },
  device: {
    type: 'string',
    repeatable: true,
    suggest: 'paths',
    describe: 'Also check the file system of this device, even if it is not removable or labeled',
  },
  'disk-floor': {
    type: 'string',
    describe: 'Space to keep free for images (default: 16Gi, or 15 % if that is more)',
    check: (text: string) => void parseSize(text),
  },
  ...screenOptions,
  'mount-dir': {
    type: 'string',
    default: mountFolder,
    suggest: 'folders',
    describe: 'Folder for the mounts, created if missing',
  },
  ...agentOptions,
} as const;

/** `agent`: runs the agent of one node. */
export const command = defineCommand({
  isService: true,
  details:
    'Finds bundles on the media of this node, and verifies the bundle whose digest an UpgradeBundle allows. Serves ' +
    'it to the agents of other nodes. Loads its images in the phase Loading, from its own medium or from another ' +
    'node, and reports its progress. It needs no registry, and executes nothing on a USB drive. It can be killed at ' +
    'any point: it resumes at the next start. In a pod it uses the account of the pod. It must run as root.',
  options,
  examples: [
    ['', 'Run the agent of this node, in a pod of the DaemonSet'],
    ['--kubeconfig=config --token-file=token --media-folder=/srv/bundles', 'Run it by hand, with a folder of bundles'],
  ],
  async run(args, { context, environment }) {
    const { root, device: devices, mountDir: place, mediaFolder: folders, diskFloor } = args;
    // All other programs of the node have precedence.
    setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
    const host = { root, environment };
    using cluster = await openCluster(args, environment, context);
    await runAgent(
      cluster,
      {
        node: args.nodeName ?? (environment['NODE_NAME'] || hostname()),
        media: { host, place, devices, folders },
        server: {
          ...parseListen(args.listen ?? usualListen(environment)),
          token: await readToken(args.tokenFile),
          executable: ownExecutable(environment),
        },
        metricsPort: args.metricsPort,
        folder: pathOnHost(host, args.downloadDir),
        trust: offlineTrustOf(args),
        screen: screenOf(args),
        reports: args.reports,
        floor: diskFloor === undefined ? undefined : parseSize(diskFloor),
        interval: args.interval * 1000,
      },
      context,
    );
  },
});

function usualListen({ POD_IP: address = '' }: NodeJS.ProcessEnv): string {
  if (address === '') return '0.0.0.0:8080';
  return address.includes(':') ? `[${address}]:8080` : `${address}:8080`;
}

/** Returns the executable of this process, if the process that started it has checked its digest. */
function ownExecutable({ EXECUTABLE: digest = '' }: NodeJS.ProcessEnv): ServedExecutable | undefined {
  return digest === '' ? undefined : { digest, path: process.execPath, port: executablePort };
}

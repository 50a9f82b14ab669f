import { mirrorFolder, nodeStateFolder } from '#node/machine';
import { mirrorPort, runMirrorServer } from '#update/mirror';
import { defineCommand } from '../../cli/command.ts';
import { parseListen } from '../../cli/values.ts';

/** `mirror-serve`: serves the bundles that a control plane node retains. */
export const command = defineCommand({
  isService: true,
  details:
    'Serves the verified bundles that the agent of this node retains to container runtimes, by TLS and by digest ' +
    'only. Nothing can be pushed or listed. Checks no signature, because the agent has checked it. An image is ' +
    'served only if all its content is there and can be read. Follows bundles that are added and removed, and ' +
    'renewed certificates. It needs no cluster, no container runtime and no image.',
  options: {
    listen: {
      type: 'string',
      default: `[::]:${mirrorPort}`,
      describe: 'Address and port to listen on',
    },
    'download-dir': {
      type: 'string',
      default: nodeStateFolder,
      suggest: 'folders',
      describe: 'Folder of the agent with the bundles',
    },
    'certificate-dir': {
      type: 'string',
      default: mirrorFolder,
      suggest: 'folders',
      describe: 'Folder with tls.crt and tls.key',
    },
    'plain-http': { type: 'boolean', describe: 'Serve without TLS and certificates, for clients of this machine' },
    'state-file': {
      type: 'string',
      suggest: 'paths',
      describe: 'File for the state of the mirror, which the agent of the node reports',
    },
    interval: {
      type: 'number',
      default: 15,
      range: [1, 3600],
      describe: 'Number of seconds between two checks of the bundles and the certificate',
    },
  },
  examples: [['', 'Serve the bundles of this node, as the unit of install --mirror does']],
  async run(args, { context }) {
    const { listen, downloadDir: folder, stateFile, interval, plainHttp } = args;
    const certificates = plainHttp ? undefined : args.certificateDir;
    await runMirrorServer(
      { ...parseListen(listen), folder, certificates, stateFile, interval: interval * 1000 },
      context,
    );
  },
});

import { once } from 'node:events';
import { openComplete } from '../../../lib/bundle/complete.ts';
import { checkSigned } from '../../../lib/bundle/signedBundle.ts';
import { startMirror, type RuntimeMirrorRequest } from '../../../lib/node/runtime/mirror.ts';
import { Registries } from '../../../lib/registry/registries.ts';
import { openAccess } from '../../cli/access.ts';
import { defineCommand } from '../../cli/command.ts';
import { formatTable } from '../../cli/format.ts';
import {
  baseOption,
  bundleArgument,
  outputOption,
  registryOptions,
  signedImagesOption,
  trustOptions,
} from '../../cli/options.ts';
import { warnOfExtraImages } from '../../cli/extraImages.ts';
import { hostOptions } from './host.ts';
import { fetcherOf, trustOf } from '../../cli/trust.ts';
import { mirrorFile } from '../../../lib/machine/paths.ts';

/** `mirror`: serves a bundle to this machine instead of the registries of its images. */
export const command = defineCommand({
  details:
    `For parts of the system that always ask a registry. The signatures are checked first. Then this machine serves the bundle to ` +
    `itself only: ${mirrorFile} makes CRI-O, podman, skopeo and rpm-ostree ask here for the repositories of the bundle. Each request ` +
    `is printed. Ctrl-C ends it, removes the file, and prints how often each image was requested: the list of what still needs a ` +
    `registry.`,
  positionals: bundleArgument,
  options: {
    port: {
      type: 'number',
      default: 0,
      range: [0, 65535],
      describe: 'Port to listen at on 127.0.0.1; 0 is any that is free',
    },
    also: {
      type: 'string',
      repeatable: true,
      describe: 'Registry or repository whose requests are to come here too, such as registry.redhat.io',
    },
    ...baseOption,
    ...hostOptions,
    ...outputOption(['json']),
    'certificate-authority': registryOptions['certificate-authority'],
    ...trustOptions,
    ...signedImagesOption,
  },
  examples: [
    ['/dev/sdb', 'Answer what asks for the images of a bundle'],
    ['/dev/sdb --also=quay.io --also=registry.redhat.io', 'See who asks these registries for anything'],
  ],
  async run(args, { context, terminal, environment }) {
    const bundle = await openComplete(args.bundle, { bases: args.base }, context);
    const registries = new Registries(await openAccess(args, environment), context);
    try {
      const trust = { ...trustOf(args), fetchFile: fetcherOf(registries.connections, context) };
      const { tags, extraImages } = await checkSigned(bundle, trust, context);
      warnOfExtraImages(extraImages, context);
      const host = { root: args.root, environment };
      const mirror = await startMirror(bundle, { host, port: args.port, also: args.also, tags }, context);
      try {
        context.log('info', `${mirror.server.url} stands for ${mirror.prefixes.join(', ')} until Ctrl-C`);
        context.log('info', 'CRI-O has to be told: systemctl reload crio');
        // An interruption is the normal end of a server, and not a failure.
        if (!context.signal.aborted) await once(context.signal, 'abort');
      } finally {
        await mirror.close();
      }
      const requests = mirror.requests();
      terminal.print(args.output === 'json' ? JSON.stringify(requests, null, 2) : toWords(requests));
    } finally {
      await bundle.close();
      await registries.close();
    }
  },
});

function toWords(requests: readonly RuntimeMirrorRequest[]): string {
  if (requests.length === 0) return 'Nothing was asked for';
  const rows = requests.map(({ count, status, method, path, client }) => {
    return [String(count), status < 400 ? 'yes' : `no (${status})`, `${method} ${path}`, client];
  });
  return formatTable([['COUNT', 'ANSWERED', 'REQUEST', 'CLIENT'], ...rows], ['COUNT']);
}

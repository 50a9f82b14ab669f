import { once } from 'node:events';
import { openComplete, checkSigned } from '#bundle/open';
import { mirrorFile } from '#node/machine';
import { startMirror, type RuntimeMirrorRequest } from '#node/runtime';
import type { Lines } from '#text';
import { openRegistries } from '../../cli/access.ts';
import { warnOfExtraImages } from '../../cli/bundleFacts.ts';
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
import { trustOf } from '../../cli/trust.ts';
import { hostOptions } from './nodeOptions.ts';

/** `mirror`: serves a bundle to this machine instead of the registries of its images. */
export const command = defineCommand({
  details:
    'For components that always contact a registry. Checks the signatures first. Then serves the bundle at ' +
    '127.0.0.1, and ' +
    `writes ${mirrorFile}: CRI-O, podman, skopeo and rpm-ostree then send their requests for the repositories ` +
    'of the bundle there. Prints each request. Ctrl-C stops it, removes the file, and prints how often each image ' +
    'was requested: the list of ' +
    `what still needs a registry.`,
  positionals: bundleArgument,
  options: {
    port: {
      type: 'number',
      default: 0,
      range: [0, 65535],
      describe: 'Port to listen on at 127.0.0.1; 0 selects a free port',
    },
    also: {
      type: 'string',
      repeatable: true,
      describe: 'Another registry or repository to answer requests for, such as registry.redhat.io',
    },
    ...baseOption,
    ...hostOptions,
    ...outputOption(),
    'certificate-authority': registryOptions['certificate-authority'],
    ...trustOptions,
    ...signedImagesOption,
  },
  examples: [
    ['/dev/sdb', 'Serve the images of a bundle to this machine'],
    ['/dev/sdb --also=quay.io --also=registry.redhat.io', 'Record the requests to other registries too'],
  ],
  needsRoot: true,
  async run(args, { context, terminal, environment }) {
    await using bundle = await openComplete(args.bundle, { bases: args.base }, context);
    await using registries = await openRegistries(args, environment, context);
    const trust = { ...trustOf(args), fetchFile: registries.fetchFile };
    const { tags, extraImages } = await checkSigned(bundle, trust, context);
    warnOfExtraImages(extraImages, terminal);
    const host = { root: args.root, environment };
    const mirror = await startMirror(bundle, { host, port: args.port, also: args.also, tags }, context);
    try {
      context.log('info', `${mirror.server.url} stands for ${mirror.prefixes.join(', ')} until Ctrl-C`);
      context.log('info', 'Next, reload CRI-O: systemctl reload crio');
      // An interruption is the normal end of a server, and not a failure.
      if (!context.signal.aborted) await once(context.signal, 'abort');
    } finally {
      await mirror.close();
    }
    const requests = mirror.requests();
    await terminal.printResult(args.output, requests, toWords(requests));
  },
});

function toWords(requests: readonly RuntimeMirrorRequest[]): string | Lines {
  if (requests.length === 0) return 'No image was requested';
  const rows = requests.map(({ count, status, method, path, client }) => {
    return [String(count), status < 400 ? 'yes' : `no (${status})`, `${method} ${path}`, client];
  });
  return formatTable([['COUNT', 'ANSWERED', 'REQUEST', 'CLIENT'], ...rows], ['COUNT']);
}

import { once } from 'node:events';
import { hostname } from 'node:os';
import { openComplete, checkSigned } from '#bundle/open';
import { serveBundle } from '#bundle/serve';
import { releaseRepository } from '#content/store';
import { openRegistries } from '../cli/access.ts';
import { warnOfExtraImages } from '../cli/bundleFacts.ts';
import { defineCommand } from '../cli/command.ts';
import { baseOption, bundleArgument, registryOptions, signedImagesOption, trustOptions } from '../cli/options.ts';
import { nameSigners, toPlainSigned, trustOf } from '../cli/trust.ts';
import { parseListen, readToken } from '../cli/values.ts';

/** `serve`: serves a bundle as a registry. */
export const command = defineCommand({
  details:
    'Checks the signatures before anything is served, without a network unless --signature-store names one. Clients ' +
    'find the images under their original repositories, such as openshift-release-dev/ocp-release, and all of them ' +
    'under openshift/release. Extracts nothing, and accepts no pushes. Only this machine has access, unless --listen ' +
    'names another address. Prints its address, and runs until Ctrl-C.',
  positionals: bundleArgument,
  options: {
    listen: {
      type: 'string',
      default: '127.0.0.1:0',
      describe: 'Address and port to listen on; port 0 selects a free port',
    },
    host: {
      type: 'string',
      repeatable: true,
      describe: 'Additional host name of this server',
    },
    ...baseOption,
    'token-file': {
      type: 'string',
      describe: 'File with the bearer token that clients must send',
      suggest: 'files',
    },
    'certificate-authority': registryOptions['certificate-authority'],
    ...trustOptions,
    ...signedImagesOption,
  },
  examples: [
    ['upgrade-4.20.3-x86_64.tar', 'Serve a bundle to this machine'],
    ['/dev/sdb --listen=127.0.0.1:5000', 'Serve a bundle on a USB drive at a port of your choice'],
    ['/dev/sdb --listen=0.0.0.0:5000 --token-file=token', 'Serve it to other machines that have the token'],
    ['/dev/sdb --listen=0.0.0.0:5000 --host=registry.example.com', 'Serve it under an additional host name'],
  ],
  async run(args, { context, terminal, environment }) {
    const token = args.tokenFile === undefined ? undefined : await readToken(args.tokenFile);
    const place = parseListen(args.listen);
    const listen = { ...place, token, names: [...args.host, ...(isLoopback(place.host) ? [] : ownNames())] };
    await using bundle = await openComplete(args.bundle, { bases: args.base }, context);
    await using registries = await openRegistries(args, environment, context);
    const trust = { ...trustOf(args), fetchFile: registries.fetchFile };
    const signed = await checkSigned(bundle, trust, context);
    const server = await serveBundle(bundle, { ...listen, tags: signed.tags }, context);
    const { host: address } = new URL(server.url);
    const { version, arch } = bundle.metadata;
    terminal.print(address);
    if (!isLoopback(server.host)) {
      const who =
        token === undefined ? 'each client that can reach it' : 'each client that reads the token from the network';
      const how = token === undefined ? 'without a login' : 'and the token is sent by it';
      context.log('warn', `${address}: ${who} can read the bundle: it is served by plain HTTP, ${how}`);
    }
    context.log('info', `the release is signed by ${nameSigners(toPlainSigned(signed))}`);
    warnOfExtraImages(signed.extraImages, terminal);
    context.log('info', `serving ${bundle.path} as ${server.repositories.join(', ')} until Ctrl-C. Try:`);
    const shown = address.replace(/^(?:0\.0\.0\.0|\[::\])/, 'localhost');
    const options = `--tls-verify=false ${token === undefined ? '' : '--registry-token=TOKEN '}`;
    const image = `docker://${shown}/${releaseRepository}:${version}-${arch}`;
    context.log('info', `  skopeo inspect ${options}${image}`);
    // An interruption is the normal end of a server, and not a failure.
    if (!context.signal.aborted) await once(context.signal, 'abort');
    await server.close();
  },
});

/** Returns the name of this machine, with its domain and without. */
function ownNames(): string[] {
  const name = hostname();
  return [...new Set([name, name.replace(/\..*/, '')])];
}

function isLoopback(host: string): boolean {
  return host === '::1' || /^(?:::ffff:)?127\./.test(host);
}

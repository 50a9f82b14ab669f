import { constants, setPriority } from 'node:os';
import { type Bundle, findDigest, openBundle, checkSigned } from '#bundle/open';
import type { Digest } from '#content/oci';
import { PluginError } from '#errors';
import { completeToLoad, loadBundle, type LoadResult, HostStorage } from '#node/images';
import { nodeStateFolder } from '#node/machine';
import { type RemoteServer, openRemoteBundle, checkBundleDigest, fetchBundle } from '#node/transfer';
import { formatBytes, Lines } from '#text';
import { openRegistries } from '../../cli/access.ts';
import { listExtraImages } from '../../cli/bundleFacts.ts';
import { defineCommand, inGroup, type Arguments } from '../../cli/command.ts';
import { formatFields } from '../../cli/format.ts';
import { baseOption, outputOption, registryOptions, signedImagesOption, trustOptions } from '../../cli/options.ts';
import { describeSigned, nameVersions, toPlainSigned, trustOf, type PlainSigned } from '../../cli/trust.ts';
import { digestOption, readDigest, parseDuration, readToken } from '../../cli/values.ts';
import { hostOptions } from './nodeOptions.ts';

const options = {
  images: {
    type: 'string',
    repeatable: true,
    describe: 'Load only this image: a component such as etcd, release, a pullspec or a digest',
    suggest: 'components',
  },
  'parallel-images': {
    type: 'number',
    default: 3,
    range: [1, 16],
    describe: 'Maximum number of images to load in parallel',
  },
  verify: {
    type: 'boolean',
    describe: 'Read all files of the loaded images, and compare them with the digests of the layers',
  },
  ...hostOptions,
  ...outputOption(),
  ...inGroup('Bundle:', {
    digest: digestOption('Expected digest of the whole bundle (sha256:<64 hex digits>)'),
    sha256: {
      type: 'string',
      describe: 'File in the format of sha256sum with the expected digest of the whole bundle',
      suggest: 'files',
    },
    'token-file': {
      type: 'string',
      describe: 'File with the token of the server, for a URL',
      suggest: 'files',
    },
    'download-dir': {
      type: 'string',
      default: nodeStateFolder,
      describe: 'Folder for a bundle from a URL, with --digest',
      suggest: 'folders',
    },
    ...baseOption,
  }),
  'certificate-authority': registryOptions['certificate-authority'],
  'retry-timeout': registryOptions['retry-timeout'],
  ...trustOptions,
  ...signedImagesOption,
} as const;

type LoadArguments = Arguments<typeof options> & { readonly bundle: string };

/** `load`: loads the images of a bundle into the image store of a node. */
export const command = defineCommand({
  details:
    'Checks the signatures first, without a network unless --signature-store names one. Then skopeo or podman copies ' +
    'every image from the bundle into the store under its own name and digest, with low priority. Images that are ' +
    'present are skipped, so an interrupted load resumes if the same command is run again. Each image is checked ' +
    'after it is copied, and all are counted at the end. Of a bundle at a URL, only the parts are fetched that the ' +
    'store lacks, and the release signature proves them. With --digest, the whole bundle is downloaded, compared and ' +
    'kept, so that this machine can serve it to the next.',
  positionals: {
    bundle: {
      type: 'string',
      required: true,
      describe: 'Bundle, device that contains a bundle, mirror directory, or URL of serve on another machine',
      suggest: 'bundles',
    },
  },
  options,
  examples: [
    ['/dev/sdb', 'Load a bundle from a USB drive into the image store of this machine'],
    ['http://node-1:5000 --token-file=token', 'Load the images of another machine that this store lacks'],
    ['http://node-1:5000 --digest=sha256:… --token-file=token', 'Download and keep the whole bundle first'],
    ['upgrade-4.20.3-x86_64.tar --images=etcd --images=release', 'Load two of its images'],
  ],
  resumes: 'images',
  needsRoot: true,
  async run(args, { context, terminal, environment }) {
    const { images, allowUnsigned, parallelImages: concurrency } = args;
    // All other programs of the machine have precedence.
    setPriority(constants.priority.PRIORITY_LOW);
    await using registries = await openRegistries(args, environment, context);
    const digest = await readExpected(args);
    const server = await findServer(args);
    const loading = { ...context, onEvent: terminal.transfer('Loading') };
    const storage = await HostStorage.open({ root: args.root, environment });
    const open = async (): Promise<Bundle> => {
      if (!server) return openBundle(args.bundle, loading);
      if (!digest) return openRemoteBundle({ ...server, allowUnsigned }, registries.connections, loading);
      const downloading = { ...context, onEvent: terminal.transfer('Downloading') };
      const source = { ...server, digest };
      return openBundle(await fetchBundle(source, args.downloadDir, registries.connections, downloading), loading);
    };
    await using bundle = await completeToLoad(await open(), args.base, storage, loading);
    // fetchBundle has already checked this digest for a bundle from another machine.
    if (!server && digest) await checkBundleDigest(bundle, digest, loading);
    const trust = { ...trustOf(args), fetchFile: registries.fetchFile };
    const signed = await checkSigned(bundle, trust, loading);
    const result = await loadBundle(bundle, { storage, images, limits: { concurrency }, verify: args.verify }, loading);
    const loaded = { bundle: bundle.path, ...toPlainSigned(signed), ...result };
    await terminal.printResult(args.output, loaded, toWords(loaded));
  },
});

/** Returns the server of a bundle; undefined for a bundle on this machine. */
async function findServer({ bundle, tokenFile, retryTimeout }: LoadArguments): Promise<RemoteServer | undefined> {
  if (!/^https?:\/\//i.test(bundle)) return undefined;
  if (!URL.canParse(bundle)) throw new PluginError('usage', `${bundle} is not a URL`);
  const token = tokenFile === undefined ? undefined : await readToken(tokenFile);
  return { url: new URL(bundle), token, retry: { longestWait: parseDuration(retryTimeout) } };
}

async function readExpected({ bundle, digest, sha256 }: LoadArguments): Promise<Digest | undefined> {
  if (digest !== undefined && sha256 !== undefined) {
    throw new PluginError('usage', '--digest and --sha256 exclude each other');
  }
  if (sha256 !== undefined) return findDigest(sha256, bundle);
  return digest === undefined ? undefined : readDigest(digest);
}

function describePins(pinned: number, all: number): string {
  if (pinned === all) return 'all: the kubelet keeps them';
  const some = pinned === 0 ? 'none' : `${pinned} of ${all}`;
  return `${some}: the kubelet may remove images that no pod uses. To keep them, use “pin”, or a PinnedImageSet`;
}

function toWords(result: LoadResult & PlainSigned & { readonly bundle: string }): Lines {
  const { store, images, loaded, skipped, bytes, countedBy, pinned } = result;
  const rows = [
    ['Release', nameVersions(result)],
    ['', result.release],
    ...describeSigned(result),
    ['Images', `${images.length}: ${loaded} loaded (${formatBytes(bytes)}), ${skipped} present`],
    ...listExtraImages(result.extraImages),
    ['Store', `${store.graphRoot} (${store.driver})`],
    ['Bundle', result.bundle],
    ['Counted', `all are there${countedBy === undefined ? '' : `, ${countedBy} says so too`}`],
    ...(pinned === undefined ? [] : [['Pinned', describePins(pinned, images.length)] as const]),
  ];
  return new Lines(loaded === 0 ? 'Nothing to do: everything is present' : 'Loaded', formatFields(rows));
}

import { constants, setPriority } from 'node:os';
import { openBundle, type Bundle } from '../../lib/bundle/open.ts';
import { checkSigned } from '../../lib/bundle/signedBundle.ts';
import { PluginError } from '../../lib/errors.ts';
import { defaultStorePath } from '../../lib/node/additionalStore.ts';
import { loadBundle, type LoadResult } from '../../lib/node/load.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import { Registries } from '../../lib/store/registries.ts';
import { openAccess } from '../access.ts';
import { defineCommand } from '../command.ts';
import { formatBytes, formatFields } from '../format.ts';
import { bundleArgument, formatOption, registryOptions, trustOptions } from '../options.ts';
import { hostOptions } from './host.ts';
import { fetcherOf, nameSigners, trustOf } from './trust.ts';

/** `load`: the images of a bundle into the image store of a node. */
export const command = defineCommand({
  details:
    'Who signed the release is checked first, without a network unless --signature-store names one. Then every image goes into the store ' +
    'under its own name and digest, by skopeo or podman, straight from where the bundle lies, with lowered priority. What is there is ' +
    'skipped, so a load that was cut off goes on when the same command is run again. Each image is checked afterwards, and all are ' +
    'counted again at the end. An additional store is made beside its path, and renamed when it is whole.',
  positionals: bundleArgument,
  options: {
    store: {
      type: 'string',
      choices: ['main', 'additional'],
      default: 'main',
      describe: 'The image store of this machine, or one beside it that CRI-O and podman read as well',
    },
    'store-path': {
      type: 'string',
      describe: `Folder of the additional store (${defaultStorePath} if not given)`,
    },
    images: {
      type: 'string',
      repeatable: true,
      describe: 'Load only this image: a component such as etcd, release, a pullspec or a digest',
    },
    'parallel-images': { type: 'number', default: 3, range: [1, 16], describe: 'How many images are loaded at a time' },
    ...hostOptions,
    ...formatOption(['json']),
    'certificate-authority': registryOptions['certificate-authority'],
    ...trustOptions,
  },
  examples: [
    ['/dev/sdb', 'Load a bundle from a stick into the image store of this machine'],
    ['/dev/sdb --store=additional', 'Make an additional image store of it'],
    ['upgrade-4.12.4-x86_64.tar --images=etcd --images=release', 'Load two of its images'],
  ],
  async run(args, { context, terminal, environment }) {
    const { images, storePath, parallelImages: concurrency } = args;
    if (storePath !== undefined && args.store === 'main') {
      throw new PluginError('usage', '--store-path is for --store=additional');
    }
    // Whatever else the machine does comes first.
    setPriority(constants.priority.PRIORITY_LOW);
    const loading = { ...context, onEvent: terminal.transfer('Loading') };
    const bundle = await openBundle(args.bundle, loading);
    const registries = new Registries(await openAccess(args, environment), loading);
    try {
      const trust = { ...trustOf(args), fetchFile: fetcherOf(registries.connections, loading) };
      const signed = await checkSigned(bundle, trust, loading);
      const host = { root: args.root, environment };
      const store =
        args.store === 'main' ? { kind: args.store } : { kind: args.store, path: storePath ?? defaultStorePath };
      const result = await loadBundle(bundle, { host, store, images, concurrency }, loading);
      terminal.print(args.format === 'json' ? JSON.stringify(result, null, 2) : toWords(result, signed, bundle));
    } finally {
      await bundle.close();
      await registries.close();
    }
  },
});

function toWords(result: LoadResult, signed: SignedRelease, { metadata }: Bundle): string {
  const { store, images, loaded, skipped, bytes, countedBy } = result;
  const rows = [
    ['Release', `${metadata.version} ${metadata.arch}`],
    ['', metadata.release],
    ['Signed by', nameSigners(signed)],
    [
      'Images',
      `${String(images.length)}: ${String(loaded)} loaded (${formatBytes(bytes)}), ${String(skipped)} there already`,
    ],
    ['Store', `${store.graphRoot} (${store.driver})`],
    ['Counted', `all are there${countedBy === undefined ? '' : `, ${countedBy} says so too`}`],
  ];
  return [loaded === 0 ? 'Nothing to do: everything is there' : 'Loaded', formatFields(rows)].join('\n');
}

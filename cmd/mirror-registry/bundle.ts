import { inspectBundle } from '../../lib/bundle/inspect.ts';
import { openBundle } from '../../lib/bundle/open.ts';
import { openRegistryOrigin } from '../../lib/bundle/origin.ts';
import type { Context } from '../../lib/context.ts';
import { PluginError } from '../../lib/errors.ts';
import { createRegistryBundle, imagesOfBundle } from '../../lib/host/registryBundle.ts';
import { architectures } from '../../lib/release/version.ts';
import { openAccess, tool } from '../access.ts';
import { defineCommand, type Arguments } from '../command.ts';
import { formatBytes, formatTable } from '../format.ts';
import { formatOption, registryOptions } from '../options.ts';
import { targetImages, targetOptions } from './options.ts';

const { version: _version, ...imageOptions } = targetOptions;

const options = {
  version: {
    type: 'string',
    describe: 'Release of the mirror registry for create, such as 2.0.11',
    suggest: 'registry-versions',
  },
  arch: { type: 'string', default: 'x86_64', choices: architectures, describe: 'Architecture of the host, for create' },
  output: {
    type: 'string',
    default: '.',
    describe: 'Folder for the bundle of create, created if absent',
    suggest: 'folders',
  },
  ...imageOptions,
  ...formatOption(['json']),
  ...registryOptions,
} as const;

/** `bundle`: the images of a mirror registry in a file, for hosts without a network. */
export const command = defineCommand({
  details:
    'create fetches the images of a release of the mirror registry into one file, mirror-registry-VERSION-ARCH.tar, in the layout of an upgrade ' +
    'bundle; inspect shows what is in one. A run of create that was cut off goes on when it is run again.',
  positionals: {
    action: { type: 'string', required: true, choices: ['create', 'inspect'], describe: 'What to do' },
    file: { type: 'string', describe: 'The bundle to inspect', suggest: 'files' },
  },
  options,
  examples: [
    ['create --version=2.0.11 --output=/mnt/stick -a pull-secret.json', 'Put a mirror registry on a stick'],
    ['inspect mirror-registry-2.0.11-x86_64.tar', 'Show which images are in a bundle'],
  ],
  async run({ action, file, ...args }, { context, terminal, environment }) {
    if (action === 'inspect') {
      if (file === undefined) throw new PluginError('usage', '<file> is missing: name a bundle');
      terminal.print(await inspect(file, args.format === 'json', context));
      return;
    }
    if (file !== undefined) throw new PluginError('usage', `“${file}” is one argument too many`);
    terminal.print(await create(args, { ...context, onEvent: terminal.transfer('Fetching') }, environment));
  },
});

async function create(
  args: Arguments<typeof options>,
  context: Context,
  environment: NodeJS.ProcessEnv,
): Promise<string> {
  const { version, arch, output, format } = args;
  if (version === undefined) throw new PluginError('usage', '--version is missing');
  const { quay, redis, pause } = targetImages(args);
  if (quay === undefined || redis === undefined || pause === undefined) {
    throw new PluginError('usage', `the images of ${version} are not known to this program`, {
      hint: 'Name them with --target-quay, --target-redis and --target-pause.',
    });
  }
  const origin = openRegistryOrigin(await openAccess(args, environment), context);
  try {
    const images = { quay, redis, pause };
    const result = await createRegistryBundle({ version, arch, images, output, tool }, origin, context);
    if (format === 'json') return JSON.stringify(result, null, 2);
    return `Wrote ${result.path}, ${formatBytes(result.metadata.size)}\n${result.digest}`;
  } finally {
    await origin.close();
  }
}

async function inspect(path: string, asJson: boolean, context: Context): Promise<string> {
  const bundle = await openBundle(path, context);
  try {
    const images = imagesOfBundle(bundle.metadata, path);
    const { images: found, totals, notes } = await inspectBundle(bundle, context);
    const { version, arch, size } = bundle.metadata;
    const rows = Object.entries(images).map(([name, { image, digest }]) => {
      const { size: bytes = 0, complete = false } = found.find((each) => each.digest === digest) ?? {};
      return { name, image, digest, size: bytes, complete };
    });
    if (asJson)
      return JSON.stringify({ path, version, arch, size, verified: false, images: rows, totals, notes }, null, 2);
    const cells = rows.map(({ name, image, size: bytes, complete }) => [
      name,
      image,
      formatBytes(bytes),
      complete ? '' : 'incomplete',
    ]);
    const table = formatTable([['COMPONENT', 'IMAGE', 'SIZE', ''], ...cells], ['SIZE']);
    const title = `Mirror registry ${version} for ${arch}, ${formatBytes(size)}, not verified`;
    return [title, '', table, ...notes.map((note) => `note: ${note}`)].join('\n');
  } finally {
    await bundle.close();
  }
}

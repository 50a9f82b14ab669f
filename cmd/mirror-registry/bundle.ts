import { RegistryProvider } from '#bundle/create';
import { inspectBundle } from '#bundle/inspect';
import { openBundle, type Bundle } from '#bundle/open';
import { formatReference, parseReference, type Reference } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { HostCommands } from '#node/machine';
import { ownAuthority } from '#registry-host/installation';
import {
  pushRelease,
  openRegistryRelease,
  createRegistryBundle,
  imagesOfBundle,
  loadReleaseImages,
  type RegistryRelease,
} from '#registry-host/releases';
import { architectures, parseArchitecture } from '#release/version';
import { formatBytes, Lines, shellCommand } from '#text';
import { openAccess, openRegistries, tool } from '../cli/access.ts';
import { defineCommand, type Arguments, type CommandSession } from '../cli/command.ts';
import { formatTable } from '../cli/format.ts';
import { bundleFolderOption, formatOption, registryOptions } from '../cli/options.ts';
import { checkImage, readDigest } from '../cli/values.ts';
import { findInstallation, podmanOption, registryHostOptions } from './options.ts';
import { openReading, releaseDigestOption, targetImages, targetOptions } from './target.ts';

const { version: _version, ...imageOptions } = targetOptions;

const options = {
  version: {
    type: 'string',
    describe: 'Release of the mirror registry to download, such as 2.0.11',
    suggest: 'registry-versions',
  },
  arch: {
    type: 'string',
    default: 'x86_64',
    choices: [...architectures, 'amd64', 'arm64'],
    describe: 'Architecture of the host',
  },
  ...bundleFolderOption(),
  to: {
    type: 'string',
    describe: 'Destination of push: REGISTRY/REPOSITORY[:TAG] (default tag: the version)',
    check: checkImage,
  },
  digest: releaseDigestOption,
  ...imageOptions,
  ...podmanOption,
  ...formatOption(),
  ...registryOptions,
  ...registryHostOptions,
} as const;

/** `bundle`: creates, inspects, pushes and loads bundles with the images of a mirror registry. */
export const command = defineCommand({
  details:
    'The action create downloads the images of a release of the mirror registry into one file, ' +
    'mirror-registry-VERSION-ARCH.tar. An interrupted run resumes. The action inspect shows the contents of such a ' +
    'bundle, and push copies it into a registry, which may be the one to be upgraded. One tag is the whole release ' +
    'there: any tool can mirror it, and upgrade --bundle accepts it. The action load copies the images that podman ' +
    'of this host does not have into its storage, and changes nothing else: for images that were pruned. Checks no ' +
    'signature, because none covers these images: keep the digest that create prints, and give it to upgrade and ' +
    'load as --digest.',
  positionals: {
    action: { type: 'string', required: true, choices: ['create', 'inspect', 'push', 'load'], describe: 'What to do' },
    file: { type: 'string', describe: 'Bundle to inspect, push or load', suggest: 'paths' },
  },
  options,
  examples: [
    ['create --version=2.0.11 --output=/mnt/usb -a pull-secret.json', 'Write the images of a release to a USB drive'],
    ['inspect mirror-registry-2.0.11-x86_64.tar', 'Show the images of a bundle'],
    [
      'push mirror-registry-2.0.11-x86_64.tar --to=registry.example.com:8443/openshift/mirror-registry-bundle',
      'Push the next release into the registry itself',
    ],
    ['load mirror-registry-2.0.7-x86_64.tar', 'Bring back images that podman no longer has'],
  ],
  async run({ action, file, ...args }, { context, terminal, environment }) {
    if (args.digest !== undefined && action !== 'load') throw new PluginError('usage', '--digest goes only with load');
    const print = ({ result, words }: Outcome): Promise<void> => terminal.printResult(args.format, result, words);
    const showing = (label: string): Session => ({
      context: { ...context, onEvent: terminal.transfer(label) },
      environment,
    });
    if (action === 'create') {
      if (file !== undefined) throw new PluginError('usage', `“${file}” is an unexpected argument`);
      return print(await create(args, showing('Fetching')));
    }
    if (file === undefined) throw new PluginError('usage', '<file> is missing: name a bundle');
    if (action !== 'push')
      return print(await (action === 'load' ? load : inspect)(file, args, { context, environment }));
    if (args.to === undefined) throw new PluginError('usage', '--to is missing: REGISTRY/REPOSITORY');
    return print(await push(file, args.to, args, showing('Pushing')));
  },
});

type BundleArguments = Arguments<typeof options>;
type Session = Pick<CommandSession, 'context' | 'environment'>;

/** The result of an action as data, and in words. */
interface Outcome {
  readonly result: object;
  readonly words: string | Lines;
}

async function create(args: BundleArguments, { context, environment }: Session): Promise<Outcome> {
  const { version, arch, output } = args;
  if (version === undefined) throw new PluginError('usage', '--version is missing');
  const { quay, redis, pause } = targetImages(args);
  if (quay === undefined || redis === undefined || pause === undefined) {
    throw new PluginError('usage', `the images of release ${version} are unknown`, {
      hint: 'Name them with --target-quay, --target-redis and --target-pause.',
    });
  }
  await using origin = new RegistryProvider(await openAccess(args, environment), context);
  const images = { quay, redis, pause };
  const result = await createRegistryBundle(
    { version, arch: parseArchitecture(arch), images, output, tool },
    origin,
    context,
  );
  return { result, words: new Lines(`Wrote ${result.path}, ${formatBytes(result.metadata.size)}`, result.digest) };
}

async function push(
  path: string,
  to: string,
  args: BundleArguments,
  { context, environment }: Session,
): Promise<Outcome> {
  const reference = parseReference(to);
  await using bundle = await openBundle(path, context);
  const certificateAuthority = args.certificateAuthority ?? (await findOwnAuthority(args, reference, environment));
  await using registries = await openRegistries({ ...args, certificateAuthority }, environment, context);
  const options = { tag: reference.tag, concurrency: args.maxPerRegistry };
  const { digest, tag } = await pushRelease(bundle, registries.repository(reference), options, context);
  const { registry, repository } = reference;
  const image = formatReference({ registry, repository, tag });
  const next = shellCommand`oc adm-mirror-registry upgrade --bundle=${image} --digest=${digest}`;
  const words = new Lines(`Pushed ${image}`, digest, `On the host of the registry: ${next}`);
  return { result: { image, digest }, words };
}

/**
 * Returns the CA of the registry of this host, if the destination is that registry; undefined if there is none, or for
 * other users.
 */
async function findOwnAuthority(
  args: Arguments<typeof registryHostOptions>,
  reference: Reference,
  environment: NodeJS.ProcessEnv,
): Promise<string | undefined> {
  try {
    return await ownAuthority(await findInstallation(args, environment), reference);
  } catch (error) {
    if (isPluginError(error)) return undefined;
    throw error;
  }
}

async function load(text: string, args: BundleArguments, { context, environment }: Session): Promise<Outcome> {
  const programs = { podman: args.podman, systemctl: 'systemctl', environment, signal: context.signal };
  const commands = new HostCommands(programs, 'system');
  await using release = await openRegistryRelease(
    text,
    (reference) => openReading(args, reference, environment, context),
    context,
    targetImages({ ...args, version: undefined }),
  );
  const expected = args.digest === undefined ? undefined : readDigest(args.digest);
  const images = await loadReleaseImages(commands, release, expected, context);
  const notes = { present: ' (was there)', loaded: '', unnamed: ' (another image has its name: use the ID)' };
  const words = images.map(({ image, id, outcome }) => `${image}  ${id.slice(0, 12)}${notes[outcome]}`);
  return { result: { path: text, images }, words: new Lines('podman has:', ...words) };
}

async function inspect(text: string, args: BundleArguments, { context, environment }: Session): Promise<Outcome> {
  await using release = await openRegistryRelease(
    text,
    (reference) => openReading(args, reference, environment, context),
    context,
  );
  return release.bundle ? await describeBundle(release.bundle, context) : describeRegistryRelease(release);
}

/** Describes a release that a registry has, whose images are not in a bundle. */
function describeRegistryRelease({ name, version, arch, size, images }: RegistryRelease): Outcome {
  const rows = Object.entries(images).map(([component, image]) => ({ name: component, ...image }));
  const table = formatTable([['COMPONENT', 'IMAGE'], ...rows.map((row) => [row.name, row.image])]);
  const title = `Mirror registry ${version ?? ''} for ${arch ?? 'any machine'}, ${formatBytes(size)}, not verified`;
  const result = { path: name, version, arch, size, verified: false, images: rows };
  return { result, words: new Lines(title, '', table) };
}

/** Describes a bundle with the size of each image and whether it is complete. */
async function describeBundle(bundle: Bundle, context: Context): Promise<Outcome> {
  const { path, metadata } = bundle;
  const { images, totals, notes } = await inspectBundle(bundle, context);
  const { version, arch, size } = metadata;
  const rows = Object.entries(imagesOfBundle(metadata, path)).map(([name, { image, digest }]) => {
    const { size: bytes = 0, complete = false } = images.find((each) => each.digest === digest) ?? {};
    return { name, image, digest, size: bytes, complete };
  });
  const result = { path, version, arch, size, verified: false, images: rows, totals, notes };
  const cells = rows.map(({ name, image, size: bytes, complete }) => [
    name,
    image,
    formatBytes(bytes),
    complete ? '' : 'incomplete',
  ]);
  const table = formatTable([['COMPONENT', 'IMAGE', 'SIZE', ''], ...cells], ['SIZE']);
  const title = `Mirror registry ${version} for ${arch}, ${formatBytes(size)}, not verified`;
  return { result, words: new Lines(title, '', table, ...notes.map((note) => `note: ${note}`)) };
}

import type { Reference } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { ownAuthority, defaultSqliteStorage, type Installation, imagesOfVersion } from '#registry-host/installation';
import {
  type RegistryRelease,
  type TargetImages,
  openRegistryRelease,
  type OpenedRepository,
} from '#registry-host/releases';
import { openRegistries } from '../cli/access.ts';
import { inGroup, type Arguments, type OptionRecord } from '../cli/command.ts';
import { registryOptions } from '../cli/options.ts';
import { checkImage, digestOption } from '../cli/values.ts';

/** Options of the images to upgrade to. */
export const targetOptions = {
  version: {
    type: 'string',
    describe: 'Release of the mirror registry, such as 2.0.11',
    suggest: 'registry-versions',
  },
  'target-quay': { type: 'string', describe: 'Image of Quay (default: that of the release)', check: checkImage },
  'target-redis': { type: 'string', describe: 'Image of Redis (default: that of the release)', check: checkImage },
  'target-pause': { type: 'string', describe: 'Image of the pod (default: that of the release)', check: checkImage },
} as const satisfies OptionRecord;

/** Returns the images that the options name, with those of a known release. */
export function targetImages(args: Arguments<typeof targetOptions>): TargetImages {
  const { version, targetQuay, targetRedis, targetPause } = args;
  return {
    ...(version !== undefined && imagesOfVersion(version)),
    ...(targetQuay !== undefined && { quay: targetQuay }),
    ...(targetRedis !== undefined && { redis: targetRedis }),
    ...(targetPause !== undefined && { pause: targetPause }),
  };
}

/** Options of the target of an upgrade, including a bundle. */
export const upgradeOptions = inGroup('Target:', {
  bundle: {
    type: 'string',
    describe:
      'Images to upgrade to: a file of bundle create, REGISTRY/REPOSITORY[:TAG] of bundle push (default: newest ' +
      'release), a folder with a copy of that, or mirror-registry.tar.gz',
    suggest: 'paths',
  },
  ...targetOptions,
  'sqlite-storage': {
    type: 'string',
    default: defaultSqliteStorage,
    describe: 'Volume, or absolute path of a folder, for the database of a registry that has it in PostgreSQL',
    check: checkStorage,
  },
  'pull-secret': registryOptions['pull-secret'],
  'certificate-authority': registryOptions['certificate-authority'],
  insecure: registryOptions.insecure,
});

/** The bundle as an argument. */
export const bundlePositional = {
  target: { type: 'string', describe: 'Same as --bundle', suggest: 'paths' },
} as const satisfies OptionRecord;

/** Returns the arguments with the bundle that the argument or `--bundle` names. Throws `usage` for both. */
export function withBundle<
  Given extends { readonly target?: string | undefined; readonly bundle?: string | undefined },
>(args: Given): Given {
  if (args.target !== undefined && args.bundle !== undefined)
    throw new PluginError('usage', 'give only one of the argument and --bundle');
  return { ...args, bundle: args.bundle ?? args.target };
}

/** The arguments of `openTarget` for a command that takes only a bundle from this machine or a registry. */
export const noTarget = {
  version: undefined,
  targetQuay: undefined,
  targetRedis: undefined,
  targetPause: undefined,
  sqliteStorage: defaultSqliteStorage,
  pullSecret: undefined,
  certificateAuthority: undefined,
  insecure: false,
} as const;

/** The option with the expected digest of a release. */
export const releaseDigestOption = digestOption(
  'Expected digest of the bundle, or of the list in a registry (sha256:<64 hex digits>)',
);

function checkStorage(text: string): void {
  if (/^(?:\/[\w./-]+|[A-Za-z0-9][\w.-]*)$/.test(text)) return;
  throw new PluginError('usage', `“${text}” is not the name of a volume or an absolute path`);
}

/**
 * Returns the images that the options name, and their release, which the caller closes. Throws `usage` for an unknown
 * release, and the errors of `openRegistryRelease`.
 */
export async function openTarget(
  args: Arguments<typeof upgradeOptions>,
  { files, installation }: { readonly files: HostFiles; readonly installation: Installation },
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<{ readonly target: TargetImages; readonly release: RegistryRelease | undefined }> {
  const { bundle, version } = args;
  if (version !== undefined && imagesOfVersion(version) === undefined) {
    throw new PluginError('usage', `release ${version} of the mirror registry is unknown`, {
      hint: 'Name its images with --target-quay, --target-redis and --target-pause, or a bundle with --bundle.',
    });
  }
  if (bundle === undefined) return { target: targetImages(args), release: undefined };
  const named = (['version', 'targetQuay', 'targetRedis', 'targetPause'] as const).some(
    (name) => args[name] !== undefined,
  );
  const release = await openRegistryRelease(bundle, openRepository, context, targetImages(args));
  if (named && release.kind !== 'installer') {
    await release[Symbol.asyncDispose]();
    throw new PluginError('usage', '--bundle does not go with --version and --target-…', {
      hint: 'A bundle names its images.',
    });
  }
  const { quay, redis, pause } = release.images;
  return { target: { quay: quay.image, redis: redis.image, pause: pause.image }, release };

  async function openRepository(reference: Reference): Promise<OpenedRepository> {
    const certificateAuthority = args.certificateAuthority ?? (await ownAuthority({ files, installation }, reference));
    return openReading({ ...args, certificateAuthority }, reference, environment, context);
  }
}

/** Opens a repository for reading. Throws `bad-credentials-file`. */
export async function openReading(
  args: Parameters<typeof openRegistries>[0],
  reference: Reference,
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<OpenedRepository> {
  const registries = await openRegistries(args, environment, context);
  return { content: registries.repository(reference), close: () => registries[Symbol.asyncDispose]() };
}

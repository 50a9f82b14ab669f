import type { Bundle } from '../bundle/open.ts';
import { serveBundle } from '../bundle/serve.ts';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { parseManifest } from '../oci/descriptor.ts';
import { hexOf } from '../oci/digest.ts';
import { releaseRepository } from '../store/directory.ts';
import { readContent } from '../store/store.ts';
import type { HostCommands } from './hostCommands.ts';
import type { ImageChange } from './plan.ts';
import { imagesOfBundle } from './registryBundle.ts';

/**
 * Has podman hold every image before anything is stopped. What comes out of a bundle is served to podman by digest, and is under its name
 * the very image of the bundle afterwards. Throws `command-failed`, and `digest-mismatch` where podman holds another.
 */
export async function loadImages(
  commands: HostCommands,
  bundle: Bundle | undefined,
  images: readonly ImageChange[],
  context: Context,
): Promise<void> {
  const { signal } = context;
  if (images.length === 0) return;
  const held = bundle && imagesOfBundle(bundle.metadata, bundle.path);
  const server = bundle && (await serveBundle(bundle, { host: '127.0.0.1', port: 0 }, context));
  try {
    for (const { component, to } of images) {
      context.log('info', `loading ${to}`);
      const own = held?.[component];
      if (bundle && server && own?.image === to) {
        const repository = `${new URL(server.url).host}/${releaseRepository}`;
        await commands.podman(['pull', '--quiet', '--tls-verify=false', `${repository}@${own.digest}`], signal);
        await commands.podman(['tag', `${repository}@${own.digest}`, to], signal);
        // Nobody is to look for it at a port where nothing listens any more.
        await commands.podman(['untag', to, `${repository}@${own.digest}`], signal);
        await requireImage(commands, to, await imageIdOf(bundle, own.digest), signal);
      } else if ((await findImage(commands, to, signal)) === undefined) {
        await commands.podman(['pull', '--quiet', to], signal);
        await requireImage(commands, to, undefined, signal);
      }
    }
  } finally {
    await server?.close();
  }
}

/** The ID that podman gives to an image of a name; undefined for a name that it does not hold. Throws `command-failed`. */
export async function findImage(
  commands: HostCommands,
  image: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await commands.podman(['image', 'exists', image], signal);
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return undefined;
    throw error;
  }
  return (await commands.podman(['image', 'inspect', '--format', '{{.Id}}', image], signal)).trim();
}

async function requireImage(
  commands: HostCommands,
  image: string,
  id: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const found = await findImage(commands, image, signal);
  if (found !== undefined && (id === undefined || found === id)) return;
  throw new PluginError(
    'digest-mismatch',
    `podman holds ${found ?? 'nothing'} as ${image}, and not ${id ?? 'an image'}`,
    {
      hint: 'Nothing was changed. Something else may load images on this host: try again.',
    },
  );
}

/** The ID of an image is the digest of its configuration. */
async function imageIdOf({ content }: Bundle, digest: string): Promise<string | undefined> {
  const bytes = await readContent(content, await content.resolve(digest));
  const { config } = parseManifest(bytes, digest);
  return config && hexOf(config.digest);
}

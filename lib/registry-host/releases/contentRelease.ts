import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import { parseManifest, sumSizes } from '../../content/oci/descriptor.ts';
import { hexOf, type Digest } from '../../content/oci/digest.ts';
import { releaseRepository } from '../../content/store/directory.ts';
import { serveContent, type ContentServer } from '../../content/server/server.ts';
import { readContent, type ContentSource } from '../../content/store/store.ts';
import type { HostCommands } from '../../node/machine/hostCommands.ts';
import { requireImage, type ImageChange, type RegistryRelease, type ReleaseImage } from './images.ts';
import type { ReleaseComponent } from '../installation.ts';

/** The port on the loopback interface that podman pulls from. */
const loadingPort = 28443;

/** A release whose images are content of a store. */
export interface ContentRelease extends Pick<RegistryRelease, 'kind' | 'name' | 'version' | 'arch' | 'check'> {
  readonly images: Readonly<Record<ReleaseComponent, { readonly image: string; readonly digest: Digest }>>;
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Creates a release from content. A server on the loopback interface serves it to podman by digest, so podman needs no
 * credentials or CAs. Throws the errors of the store.
 */
export async function makeContentRelease(release: ContentRelease): Promise<RegistryRelease> {
  const { kind, name, version, arch, images, content, check, close } = release;
  const releaseImages = {
    quay: await describeImage(content, images.quay),
    redis: await describeImage(content, images.redis),
    pause: await describeImage(content, images.pause),
  };
  return {
    ...{ kind, name, version, arch, check, [Symbol.asyncDispose]: close },
    size: releaseImages.quay.size + releaseImages.redis.size + releaseImages.pause.size,
    images: releaseImages,
    load: (commands, changes, context) => load(release, releaseImages, commands, changes, context),
  };
}

async function describeImage(
  content: ContentSource,
  { image, digest }: { readonly image: string; readonly digest: Digest },
): Promise<ReleaseImage & { readonly id: string; readonly size: number }> {
  const bytes = await readContent(content, await content.resolve(digest));
  const { config, layers } = parseManifest(bytes, `${image} in ${content.name}`);
  // The ID of an image is the digest of its configuration.
  return { image, id: hexOf(config?.digest ?? digest), size: sumSizes(layers) };
}

/** Serves content to podman on a port that a policy of the host can name, or on another port if that is in use. */
async function serveForPodman(
  find: (name: string) => ContentSource | undefined,
  context: Context,
): Promise<ContentServer> {
  try {
    return await serveContent(find, { host: '127.0.0.1', port: loadingPort }, context);
  } catch (error) {
    if (!isPluginError(error, 'busy')) throw error;
    return serveContent(find, { host: '127.0.0.1', port: 0 }, context);
  }
}

async function load(
  { content, images }: ContentRelease,
  releaseImages: Readonly<Record<ReleaseComponent, { readonly id: string }>>,
  commands: HostCommands,
  changes: readonly ImageChange[],
  context: Context,
): Promise<Map<ReleaseComponent, string>> {
  const find = (name: string): ContentSource | undefined => (name === releaseRepository ? content : undefined);
  const server = await serveForPodman(find, context);
  try {
    for (const { component, from, to } of changes) {
      context.log('info', `loading ${to}`);
      const [{ id }, { digest }] = [releaseImages[component], images[component]];
      const served = `${new URL(server.url).host}/${releaseRepository}@${digest}`;
      await commands.podman(['pull', '--quiet', '--tls-verify=false', served]);
      if (from !== to) await commands.podman(['tag', served, to]);
      // The name refers to a server that ends with this run.
      await commands.podman(['untag', from === to ? id : to, served]);
      await requireImage(commands, from === to ? id : to, id);
    }
  } finally {
    await server.close();
  }
  return new Map(changes.map(({ component }) => [component, releaseImages[component].id]));
}

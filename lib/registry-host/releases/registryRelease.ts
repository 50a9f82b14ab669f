import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { openBundle, type Bundle } from '#bundle/open';
import { copyImages, type Image } from '#content/copy';
import {
  type Reference,
  isIndex,
  parseManifest,
  sumSizes,
  hexOf,
  type Digest,
  mediaTypes,
  type Descriptor,
  digestOf,
} from '#content/oci';
import { serveContent, type ContentServer } from '#content/server';
import {
  parseLocation,
  OciLayout,
  ociLayoutFile,
  type ContentSource,
  readContent,
  type ContentStore,
  releaseRepository,
  ImageGraphReader,
} from '#content/store';
import type { Context } from '#context';
import { ignoring, PluginError, isPluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import { parseArchitecture, architectures, goArchitecture, type Architecture } from '#release/version';
import { type ReleaseComponent, releaseComponents } from '../installation/installation.ts';
import { compareTags } from '../installation/versions.ts';
import {
  type RegistryRelease,
  type TargetImages,
  requireImage,
  type ImageChange,
  type ReleaseImage,
} from './images.ts';
import { isInstallerArchive, openInstallerRelease } from './installerRelease.ts';
import { imagesOfBundle, checkRegistryBundle } from './registryBundle.ts';

/** A repository of a registry, open for reading. */
export interface OpenedRepository {
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Opens a release by its location: a bundle, a mirror directory, an image layout, an archive of the installer, or a
 * registry, by default the newest release in it. `given` adds names of images to an archive. Throws `not-found`,
 * `not-readable`, `invalid-bundle`, and the errors of registries.
 */
export async function openRegistryRelease(
  text: string,
  openRegistry: (reference: Reference) => Promise<OpenedRepository>,
  context: Context,
  given: TargetImages = {},
): Promise<RegistryRelease> {
  const location = await parseLocation(text.replace(/^oci:(?=[./])/, '')).catch(ignoring('not-found'));
  if (location?.kind === 'registry' && namesRegistry(text)) {
    const { content, close } = await openRegistry(location.reference);
    const { tag, digest } = location.reference;
    try {
      return await openListedRelease(content, digest ?? tag, close);
    } catch (error) {
      await close();
      throw error;
    }
  }
  if (location?.kind === 'directory' && (await isLayout(location.path))) {
    return openListedRelease(new OciLayout(location.path, context), undefined);
  }
  if (location?.kind === 'archive' && (await isInstallerArchive(location.path, context.signal))) {
    return openInstallerRelease(location.path, given, context);
  }
  // For a missing file, the error of this function lists the files of the folder.
  return openBundledRelease(location && 'path' in location ? location.path : text, context);
}

/** Returns whether a text names a host. Without one it is a file: no release is in Docker’s library. */
function namesRegistry(text: string): boolean {
  return /^(?:docker:\/\/|(?:[^/]*[.:][^/]*|localhost)\/)/.test(text);
}

function isLayout(path: string): Promise<boolean> {
  return stat(join(path, ociLayoutFile)).then(
    () => true,
    () => false,
  );
}

/**
 * Opens the release in a bundle, or in a mirror directory that a bundle was extracted to. Throws the errors of
 * `openBundle`, and `invalid-bundle`.
 */
async function openBundledRelease(path: string, context: Context): Promise<RegistryRelease> {
  const bundle = await openBundle(path, context);
  try {
    const { version, arch } = bundle.metadata;
    const release = await makeContentRelease({
      kind: 'bundle',
      name: path,
      version,
      arch: parseArchitecture(arch),
      content: bundle.content,
      images: imagesOfBundle(bundle.metadata, path),
      check: (expected, reading) => checkRegistryBundle(bundle, expected, reading),
      close: () => bundle[Symbol.asyncDispose](),
    });
    return { ...release, bundle };
  } catch (error) {
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Opens the release of a manifest list in a registry or image layout, by its tag or digest; by default the newest.
 * Verifies blobs while podman pulls them. Throws `not-found`, `invalid-bundle`, and the errors of the store.
 */
async function openListedRelease(
  content: ContentSource,
  tagOrDigest: string | undefined,
  close: () => Promise<void> = () => Promise.resolve(),
): Promise<RegistryRelease> {
  const chosenTagOrDigest = tagOrDigest ?? (await findNewest(content));
  const root = await content.resolve(chosenTagOrDigest);
  const name = `${content.name}${chosenTagOrDigest.includes(':') ? '@' : ':'}${chosenTagOrDigest}`;
  if (!isIndex(root)) throw invalidRelease(`${name} is a single image, not a release of the mirror registry`);
  const { version, arch, images } = readReleaseList(await readContent(content, root), name);
  return makeContentRelease({
    kind: 'list',
    name,
    version,
    arch,
    images,
    content,
    close,
    check: (expected) => {
      if (expected === undefined || expected === root.digest) return Promise.resolve();
      return Promise.reject(
        new PluginError('digest-mismatch', `${name} has the digest ${root.digest}, not ${expected}`, {
          hint: 'Nothing was changed. Push the release again, or find out who changed its tag.',
        }),
      );
    },
  });
}

/** Returns the tag of the newest release, or the digest of the only image of a layout. */
async function findNewest(content: ContentSource): Promise<string> {
  if (content instanceof OciLayout) {
    const [only, ...others] = await content.entries();
    if (only && others.length === 0) return only.digest;
  }
  const versions = (await content.tags()).filter((tag) => /^\d+\.\d+\.\d+/.test(tag));
  const [newest] = versions.sort((a, b) => compareTags(b, a) || (a < b ? -1 : 1));
  if (newest !== undefined) return newest;
  throw new PluginError('not-found', `${content.name} has no release of the mirror registry: no tag such as 2.0.11`, {
    hint: `Push one with 'oc adm-mirror-registry bundle push'.`,
  });
}

/** The port on the loopback interface that podman pulls from. */
const loadingPort = 28443;

/** A release whose images are content of a store. */
interface ContentRelease extends Pick<RegistryRelease, 'kind' | 'name' | 'version' | 'arch' | 'check'> {
  readonly images: Readonly<Record<ReleaseComponent, { readonly image: string; readonly digest: Digest }>>;
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Creates a release from content. A server on the loopback interface serves it to podman by digest, so podman needs no
 * credentials or CAs. Throws the errors of the store.
 */
async function makeContentRelease(release: ContentRelease): Promise<RegistryRelease> {
  const { kind, name, version, arch, images, content, check, close } = release;
  const releaseImages = {
    quay: await describeImage(content, images.quay),
    redis: await describeImage(content, images.redis),
    pause: await describeImage(content, images.pause),
  };
  return {
    kind,
    name,
    version,
    arch,
    check,
    [Symbol.asyncDispose]: close,
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

/**
 * Pushes the release of a bundle into a repository, which may be in the registry that will be upgraded. Pushes the
 * images, then a manifest list of them, by default with the version as its tag. Checks the bundle first, and skips
 * present content. Returns the digest and the tag of the list. Throws the errors of `checkRegistryBundle` and
 * `copyImages`.
 */
export async function pushRelease(
  bundle: Bundle,
  destination: ContentStore,
  { tag, concurrency }: { readonly tag: string | undefined; readonly concurrency: number },
  context: Context,
): Promise<{ readonly digest: Digest; readonly tag: string }> {
  const { version, arch } = bundle.metadata;
  const images = imagesOfBundle(bundle.metadata, bundle.path);
  await checkRegistryBundle(bundle, undefined, context);
  const reader = new ImageGraphReader();
  const { content } = bundle;
  const copies = await Promise.all(
    Object.values(images).map(async ({ image, digest }): Promise<Image> => {
      return { name: image, source: content, ...(await reader.read(content, digest)) };
    }),
  );
  await copyImages(copies, destination, { concurrency }, context);
  const manifests = new Map(copies.map(({ root }) => [root.digest, root]));
  const list = formatReleaseList({ version, arch: parseArchitecture(arch), images }, manifests);
  await destination.push(list.descriptor, () => Promise.resolve(Readable.from([list.bytes])));
  const given = tag ?? version;
  await destination.tag(list.descriptor, given);
  await destination.close();
  return { digest: list.descriptor.digest, tag: given };
}

/** A release of the mirror registry, from its manifest list. */
interface ReleaseList {
  readonly version: string;
  readonly arch: Architecture | undefined;
  readonly images: Readonly<Record<ReleaseComponent, { readonly image: string; readonly digest: Digest }>>;
}

const annotations = {
  component: 'mirror-registry.openshift.io/component',
  version: 'org.opencontainers.image.version',
  image: 'org.opencontainers.image.ref.name',
} as const;

/**
 * Formats the manifest list of a release, so that one tag is the whole release and any tool can mirror it. The list has
 * the format of its images, because Quay 3.12 refuses Docker images in an OCI index. The same release gives the same
 * bytes.
 */
export function formatReleaseList(
  { version, arch, images }: ReleaseList,
  manifests: ReadonlyMap<Digest, Descriptor>,
): { readonly descriptor: Descriptor; readonly bytes: Buffer } {
  const platform = { architecture: goArchitecture(arch ?? 'x86_64') ?? 'amd64', os: 'linux' };
  const entries = releaseComponents.flatMap((component) => {
    const { image, digest } = images[component];
    const manifest = manifests.get(digest);
    const names = {
      [annotations.component]: component,
      [annotations.image]: image,
      [annotations.version]: version,
    };
    const { mediaType, size } = manifest ?? { mediaType: mediaTypes.ociManifest, size: 0 };
    return [{ mediaType, digest, size, platform, annotations: names }];
  });
  const isDocker = entries.every(({ mediaType }) => mediaType === mediaTypes.dockerManifest);
  const mediaType = isDocker ? mediaTypes.dockerList : mediaTypes.ociIndex;
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests: entries }, null, 2));
  return { descriptor: { mediaType, digest: digestOf(bytes), size: bytes.length }, bytes };
}

/**
 * Parses the manifest list of a release. Throws `invalid-bundle` for any other list, or if its annotations are missing.
 */
function readReleaseList(bytes: Buffer, where: string): ReleaseList {
  const { manifests } = parseManifest(bytes, where);
  const read = (component: ReleaseComponent): { image: string; digest: Digest; entry: Descriptor } => {
    const entry = manifests.find((each) => each.annotations?.[annotations.component] === component);
    const image = entry?.annotations?.[annotations.image];
    if (entry && typeof image === 'string') return { image, digest: entry.digest, entry };
    throw invalidRelease(`${where} is not a release of the mirror registry: it has no image ${component}`);
  };
  const images = { quay: read('quay'), redis: read('redis'), pause: read('pause') };
  const { platform, annotations: texts = {} } = images.quay.entry;
  return {
    version: texts[annotations.version] ?? '',
    arch: architectures.find((name) => goArchitecture(name) === platform?.architecture),
    images,
  };
}

/** Returns the error for a manifest list that is not a release. */
function invalidRelease(message: string): PluginError {
  return new PluginError('invalid-bundle', message, {
    hint: `Push it with 'oc adm-mirror-registry bundle push', or copy it unchanged with 'skopeo copy --all'.`,
  });
}

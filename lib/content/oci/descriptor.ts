import vocabulary from 'oci-registry-client/build/common.js';
import { PluginError } from '#errors';
import { fieldsOf } from '#fields';
import { isDigest, type Digest } from './reference.ts';
import { parseJson } from './syntax.ts';

/** The media types of image manifests and manifest lists, of Docker and OCI. */
export const mediaTypes = {
  dockerManifest: vocabulary.MEDIATYPE_MANIFEST_V2,
  dockerList: vocabulary.MEDIATYPE_MANIFEST_LIST_V2,
  ociManifest: vocabulary.MEDIATYPE_OCI_MANIFEST_V1,
  ociIndex: vocabulary.MEDIATYPE_OCI_MANIFEST_INDEX_V1,
} as const;

/** The largest manifest in bytes (the limit of the distribution-spec, 4 MiB). */
export const manifestSizeLimit = 4 * 1024 * 1024;

/** The platform of an entry in a manifest list. */
export interface Platform {
  readonly architecture: string;
  readonly os: string;
  readonly variant?: string;
}

/** The type, the digest and the size in bytes of some content (OCI image-spec, descriptor.md). */
export interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly platform?: Platform;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Returns whether a descriptor is for a manifest list (a Docker manifest list or an OCI index). */
export function isIndex(descriptor: Pick<Descriptor, 'mediaType'>): boolean {
  return descriptor.mediaType === mediaTypes.dockerList || descriptor.mediaType === mediaTypes.ociIndex;
}

/** Returns whether a descriptor is for a manifest or a manifest list, and not for a blob. */
export function isManifest(descriptor: Pick<Descriptor, 'mediaType'>): boolean {
  return (
    isIndex(descriptor) ||
    descriptor.mediaType === mediaTypes.dockerManifest ||
    descriptor.mediaType === mediaTypes.ociManifest
  );
}

/** The part of a manifest that copying needs: its media type, and the content that it refers to, in order. */
export interface Manifest {
  readonly mediaType: string;
  /** The image’s configuration; undefined in a manifest list. */
  readonly config?: Descriptor;
  /** The image’s layers, lowest first; empty in a manifest list. */
  readonly layers: readonly Descriptor[];
  /** The manifests of a manifest list; empty in an image. */
  readonly manifests: readonly Descriptor[];
  /** The manifest that an artifact refers to (OCI 1.1); undefined if it refers to none. */
  readonly subject?: Digest;
}

const imageConfigs = new Set([
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
]);

/** Returns whether content is the configuration of a container image. */
export function isContainerConfig({ mediaType }: Pick<Descriptor, 'mediaType'>): boolean {
  return imageConfigs.has(mediaType);
}

/** Returns whether a manifest is of a container image, and not of another OCI artifact. False for a manifest list. */
export function isContainerImage({ config }: Manifest): boolean {
  return config !== undefined && isContainerConfig(config);
}

/** The media types of layers that runtimes unpack: of OCI and Docker, with any compression. */
const layerType = /^application\/vnd\.(?:oci\.image\.layer|docker\.(?:container\.)?image\.rootfs)\./;

/**
 * Returns whether a runtime may run a manifest, by the media types of its layers. Some runtimes ignore the type of the
 * configuration. A layer without a type is one of an image if the configuration is.
 */
export function hasImageLayers(manifest: Manifest): boolean {
  const untyped = isContainerImage(manifest) ? 'application/octet-stream' : undefined;
  return manifest.layers.some(({ mediaType }) => layerType.test(mediaType) || mediaType === untyped);
}

/** Returns the total size of descriptors, or of other things with a size. */
export function sumSizes(sized: Iterable<{ readonly size: number }>): number {
  let sum = 0;
  for (const { size } of sized) sum += size;
  return sum;
}

/** Parses a manifest. Its media type is its own, or derived from its fields. Throws `invalid-manifest`. */
export function parseManifest(bytes: Uint8Array, where: string): Manifest {
  const value = parseObject(bytes, where);
  const manifests = descriptors(value['manifests'], where);
  const layers = descriptors(value['layers'], where);
  const config = value['config'] === undefined ? undefined : descriptor(value['config'], where);
  const mediaType =
    typeof value['mediaType'] === 'string'
      ? value['mediaType']
      : Array.isArray(value['manifests'])
        ? mediaTypes.ociIndex
        : mediaTypes.ociManifest;
  if (value['schemaVersion'] !== 2 || !isManifest({ mediaType }) || (!isIndex({ mediaType }) && !config)) {
    throw new PluginError('invalid-manifest', `${where} is not an image manifest (media type ${mediaType})`, {
      hint: 'Only Docker schema 2 and OCI images and lists can be copied without changing their digests.',
    });
  }
  const { digest: subject } = fieldsOf(value['subject']);
  const refers = typeof subject === 'string' && isDigest(subject) && { subject };
  return { mediaType, config, layers, manifests, ...refers };
}

/** Returns whether bytes are a valid manifest or manifest list within the size limit; false for undefined. */
export function isManifestText(bytes: Uint8Array | undefined): boolean {
  if (bytes === undefined || bytes.length > manifestSizeLimit) return false;
  try {
    parseManifest(bytes, '');
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the content that a manifest refers to: the manifests of a manifest list, else the configuration and the
 * layers.
 */
export function childrenOf(manifest: Manifest): readonly Descriptor[] {
  return [...manifest.manifests, ...(manifest.config ? [manifest.config] : []), ...manifest.layers];
}

function parseObject(bytes: Uint8Array, where: string): Record<string, unknown> {
  try {
    const value: unknown = parseJson(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (cause) {
    throw new PluginError('invalid-manifest', `${where} is not JSON`, { cause });
  }
  throw new PluginError('invalid-manifest', `${where} is not a JSON object`);
}

function descriptors(value: unknown, where: string): Descriptor[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value))
    throw new PluginError('invalid-manifest', `${where} has a field that must be a list, and is not`);
  return value.map((entry) => descriptor(entry, where));
}

function descriptor(value: unknown, where: string): Descriptor {
  const entry = (value ?? {}) as Partial<Record<keyof Descriptor, unknown>>;
  const { mediaType, digest, size } = entry;
  if (
    typeof digest !== 'string' ||
    !isDigest(digest) ||
    typeof size !== 'number' ||
    !Number.isSafeInteger(size) ||
    size < 0
  ) {
    throw new PluginError('invalid-manifest', `${where} has a descriptor without a sha256 digest or a size`);
  }
  return {
    mediaType: typeof mediaType === 'string' ? mediaType : 'application/octet-stream',
    digest,
    size,
    ...(entry.platform ? { platform: entry.platform as Platform } : {}),
    ...(entry.annotations ? { annotations: entry.annotations as Record<string, string> } : {}),
  };
}

import { mediaTypes, parseManifest, type Descriptor, digestOf, type Digest } from '#content/oci';
import { PluginError } from '#errors';
import { architectures, goArchitecture, type Architecture } from '#release/version';
import { releaseComponents, type ReleaseComponent } from '../installation/installation.ts';

/** A release of the mirror registry, from its manifest list. */
export interface ReleaseList {
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
export function readReleaseList(bytes: Buffer, where: string): ReleaseList {
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
export function invalidRelease(message: string): PluginError {
  return new PluginError('invalid-bundle', message, {
    hint: `Push it with 'oc adm-mirror-registry bundle push', or copy it unchanged with 'skopeo copy --all'.`,
  });
}

import { PluginError } from '../../errors.ts';
import { mediaTypes, parseManifest, type Descriptor } from '../../oci/descriptor.ts';
import { digestOf, type Digest } from '../../oci/digest.ts';
import { architectures, goArchitecture, type Architecture } from '../../release/version.ts';
import { releaseComponents, type ReleaseComponent } from '../installation.ts';

/** What a list of images says of a release of the mirror registry. */
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
 * Writes the list that stands for a release in a registry, so that a tag of it is the whole release and any tool can mirror it. A registry of the
 * ages in question takes no images of Docker’s format in a list of OCI’s. The same release gives the same bytes.
 */
export function formatReleaseList(
  { version, arch, images }: ReleaseList,
  manifests: ReadonlyMap<Digest, Descriptor>,
): { readonly descriptor: Descriptor; readonly bytes: Buffer } {
  const platform = { architecture: goArchitecture(arch ?? 'x86_64') ?? 'amd64', os: 'linux' };
  const entries = releaseComponents.flatMap((component) => {
    const { image, digest } = images[component];
    const found = manifests.get(digest);
    const names = {
      [annotations.component]: component,
      [annotations.image]: image,
      [annotations.version]: version,
    };
    const { mediaType, size } = found ?? { mediaType: mediaTypes.ociManifest, size: 0 };
    return [{ mediaType, digest, size, platform, annotations: names }];
  });
  const isDocker = entries.every(({ mediaType }) => mediaType === mediaTypes.dockerManifest);
  const mediaType = isDocker ? mediaTypes.dockerList : mediaTypes.ociIndex;
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests: entries }, null, 2));
  return { descriptor: { mediaType, digest: digestOf(bytes), size: bytes.length }, bytes };
}

/** Reads such a list. Throws `invalid-bundle` for one that is of something else, or has lost what it said of its images. */
export function readReleaseList(bytes: Buffer, where: string): ReleaseList {
  const { manifests } = parseManifest(bytes, where);
  const read = (component: ReleaseComponent): { image: string; digest: Digest; entry: Descriptor } => {
    const entry = manifests.find((each) => each.annotations?.[annotations.component] === component);
    const image = entry?.annotations?.[annotations.image];
    if (entry && typeof image === 'string') return { image, digest: entry.digest, entry };
    throw noRelease(`${where} is no release of the mirror registry: it names no image ${component}`);
  };
  const images = { quay: read('quay'), redis: read('redis'), pause: read('pause') };
  const { platform, annotations: said = {} } = images.quay.entry;
  return {
    version: said[annotations.version] ?? '',
    arch: architectures.find((name) => goArchitecture(name) === platform?.architecture),
    images,
  };
}

/** Says that something is no such list. */
export function noRelease(message: string): PluginError {
  return new PluginError('invalid-bundle', message, {
    hint: `Bring it there with 'oc adm-mirror-registry bundle push', or copy it whole and unchanged ('skopeo copy --all').`,
  });
}

import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { TestContent, type ImageFormat, type ImageOptions } from '../content/image.ts';
import { makeFileLayer, makeNoiseLayer, type TestLayer } from '../content/layers.ts';
import { addAttachment, addSupplements, attachmentKey } from './attachments.ts';
import { componentNames } from './components.ts';
import { payloadFiles } from './payload.ts';

/** The architectures by their names in OpenShift, with Go's names. */
export const architectures = { x86_64: 'amd64', aarch64: 'arm64', ppc64le: 'ppc64le', s390x: 's390x' } as const;
export type Architecture = keyof typeof architectures;

/** The content of the payload's verification ConfigMap: an armored public key, and the URLs of signature stores. */
export interface Verification {
  readonly publicKey: string;
  readonly stores: readonly string[];
}

/**
 * Options of a release. The default is a docker-format 4.12.4 for x86_64 with twelve small components, and signed
 * attachments for all except the last.
 */
export interface ReleaseOptions {
  readonly version?: string;
  readonly arch?: Architecture | 'multi';
  /** The children of a multi-arch release; two by default. */
  readonly architectures?: readonly Architecture[];
  /** The number of components, or their names. */
  readonly components?: number | readonly string[];
  /** The size of a layer, in bytes. */
  readonly layerSize?: number | ((component: string, layer: number) => number);
  /** The number of layers that only one image has. */
  readonly layers?: number;
  /** The number of layers that all images of an architecture share, each of `layerSize('base', n)`. */
  readonly baseLayers?: number;
  /** The host (and port) in the pullspecs. */
  readonly registry?: string;
  readonly releaseRepository?: string;
  readonly componentRepository?: string;
  /** The versions that can update to this one. */
  readonly previous?: readonly string[];
  /** Returns whether an image gets a sigstore attachment, by a component's name or `release`. */
  readonly attachments?: (name: string) => boolean;
  /** Whether these images also have attestations, SBOMs and referrers. */
  readonly supplements?: boolean;
  readonly format?: ImageFormat;
  /** Different seeds give different layers. */
  readonly seed?: string;
  /** Components that are the same in every version and with every seed. */
  readonly common?: readonly string[];
  /** The verification ConfigMap; undefined for none. */
  readonly verification?: Verification;
  /** A component that is a manifest list with one entry. */
  readonly listOfOne?: string;
  /** Files of `release-manifests/` to add, to replace, or (undefined) to leave out. */
  readonly files?: Readonly<Record<string, string | undefined>>;
  /** Labels and variables of the images of components, by their names. */
  readonly configs?: Readonly<Record<string, Pick<ImageOptions, 'labels' | 'env'>>>;
  /** Files in a last layer of components, by their names. */
  readonly programs?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** The commits of components in `image-references`, by their names; a commit of its own for any other. */
  readonly commits?: Readonly<Record<string, string>>;
  /** Keep no large layer in memory, but generate it each time it is read. */
  readonly lazy?: boolean;
}

/** An image of a release, by its component's name. */
export interface TestImage {
  readonly name: string;
  readonly digest: Digest;
  /** The pullspec by digest. */
  readonly pullspec: string;
}

/** A release like OpenShift's own, ready to be served. */
export interface TestRelease extends Pick<TestContent, 'content' | 'blobs' | 'addTo'> {
  readonly version: string;
  readonly arch: Architecture | 'multi';
  /** `<version>-<arch>`. */
  readonly tag: string;
  /** The digest of the release image, or of the manifest list of a multi-arch release. */
  readonly digest: Digest;
  /** The release image, by digest. */
  readonly pullspec: string;
  /** The release images in a manifest list; empty for one architecture. */
  readonly children: readonly Digest[];
  readonly images: ReadonlyMap<string, TestImage>;
  readonly registry: string;
  readonly releaseRepository: string;
  readonly componentRepository: string;
  /** The armored OpenPGP key in the payload's verification ConfigMap. */
  readonly signatureKey: string | undefined;
  /** The PEM public key that signed the sigstore attachments. */
  readonly attachmentKey: string;
}

/** Returns the names of all images, the release image first. */
export function pullspecsOf({ pullspec, images }: TestRelease): string[] {
  return [pullspec, ...[...images.values()].map((image) => image.pullspec)];
}

/** Creates a release. The same options give the same digests. */
export function buildRelease(options: ReleaseOptions = {}): TestRelease {
  const {
    version = '4.12.4',
    arch = 'x86_64',
    architectures: several = ['x86_64', 'aarch64'],
    components = 12,
    layerSize = 8192,
    layers: layerCount = 2,
    baseLayers = 2,
    registry = 'quay.io',
    releaseRepository = 'openshift-release-dev/ocp-release',
    componentRepository = 'openshift-release-dev/ocp-v4.0-art-dev',
    format = 'docker',
    seed = 'release',
    common = [],
    lazy = false,
  } = options;
  const names = typeof components === 'number' ? namesOf(components) : [...components].sort();
  const attached = options.attachments ?? ((name) => name !== names.at(-1));
  const childArchitectures = arch === 'multi' ? several : [arch];
  const contents = new TestContent();
  const tag = `${version}-${arch}`;

  const sizeOf = (name: string, layer: number) => (typeof layerSize === 'number' ? layerSize : layerSize(name, layer));
  const noiseLayers = (name: string, count: number, child: Architecture) =>
    Array.from({ length: count }, (_, index) => {
      const from = common.includes(name) ? 'common' : seed;
      return makeNoiseLayer([from, child, name, String(index)].join('/'), sizeOf(name, index), lazy);
    });
  const bases = new Map(childArchitectures.map((child) => [child, noiseLayers('base', baseLayers, child)]));
  const filesOf = (name: string): TestLayer[] => {
    const { [name]: files } = options.programs ?? {};
    return files ? [makeFileLayer(new Map(Object.entries(files)))] : [];
  };
  const layersOf = (name: string, child: Architecture): TestLayer[] => [
    ...(common.includes(name) ? [] : (bases.get(child) ?? [])),
    ...noiseLayers(name, layerCount, child),
    ...filesOf(name),
  ];
  const addImage = (
    repository: string,
    child: Architecture,
    layers: TestLayer[],
    labels: Record<string, string>,
    env: readonly string[] = [],
  ) => contents.addImage(repository, { architecture: architectures[child], layers, labels, env, format });
  const sign = (repository: string, descriptors: readonly Descriptor[]) => {
    for (const { digest } of descriptors) {
      addAttachment(contents, { registry, repository, digest });
      if (options.supplements) addSupplements(contents, { repository, digest });
    }
  };

  const images = new Map<string, TestImage>();
  const operatorLayers = new Map<Architecture, TestLayer[]>();
  for (const name of names) {
    const single = name === options.listOfOne;
    const made = (single ? childArchitectures.slice(0, 1) : childArchitectures).map((child) => {
      const layers = layersOf(name, child);
      if (name === 'cluster-version-operator') operatorLayers.set(child, layers);
      const { labels, env } = options.configs?.[name] ?? {};
      const own = { ...componentLabels(name, common.includes(name) ? '4.12.0' : version), ...labels };
      return addImage(componentRepository, child, layers, own, env);
    });
    const listed = single || arch === 'multi' ? [contents.addList(componentRepository, made, format)] : [];
    if (attached(name)) sign(componentRepository, [...listed, ...made]);
    const { digest } = only(listed, made);
    images.set(name, { name, digest, pullspec: `${registry}/${componentRepository}@${digest}` });
  }

  const files = payloadFiles({ ...options, version, arch, images: [...images.values()] });
  const manifestLayer = makeFileLayer(new Map(files.map(([name, text]) => [`release-manifests/${name}`, text])));
  const payloads = childArchitectures.map((child) => {
    // A payload is the cluster-version-operator's image with one more layer.
    const below = operatorLayers.get(child) ?? bases.get(child) ?? [];
    return addImage(releaseRepository, child, [...below, manifestLayer], { 'io.openshift.release': version });
  });
  const lists = arch === 'multi' ? [contents.addList(releaseRepository, payloads, format)] : [];
  const release = only(lists, payloads);
  contents.content.repositories.get(releaseRepository)?.tags.set(tag, release.digest);
  if (attached('release')) sign(releaseRepository, [...lists, ...payloads]);

  return {
    version,
    arch,
    tag,
    digest: release.digest,
    pullspec: `${registry}/${releaseRepository}@${release.digest}`,
    children: lists.length > 0 ? payloads.map((payload) => payload.digest) : [],
    images,
    registry,
    releaseRepository,
    componentRepository,
    signatureKey: options.verification?.publicKey,
    attachmentKey,
    content: contents.content,
    blobs: contents.blobs,
    addTo: (content) => {
      contents.addTo(content);
    },
  };
}

function namesOf(count: number): string[] {
  if (count > componentNames.length) throw new Error(`only ${componentNames.length} component names are known`);
  return componentNames.slice(0, count).sort();
}

function componentLabels(name: string, version: string): Record<string, string> {
  return {
    name: `openshift/ose-${name}`,
    version,
    ...(name.endsWith('operator') && { 'io.openshift.release.operator': 'true' }),
  };
}

function only(lists: readonly Descriptor[], images: readonly Descriptor[]): Descriptor {
  const [first] = [...lists, ...images];
  if (!first) throw new Error('a release needs an architecture');
  return first;
}

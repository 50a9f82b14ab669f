import { readDocuments } from '#content/files';
import {
  isIndex,
  type Descriptor,
  type Manifest,
  type Digest,
  formatReference,
  parseRepository,
  type Reference,
  parseJson,
} from '#content/oci';
import { readContent, readImageManifest, type ContentSource } from '#content/store';
import type { Context } from '#context';
import { PluginError, messageOf } from '#errors';
import { readPayloadGates, type AdminGate } from './payload/adminGates.ts';
import {
  readFeatureSets,
  readPayloadPolicies,
  readImageReferences,
  readReleaseMetadata,
  type ComponentImage,
} from './payload/metadata.ts';
import { readPayloadFiles, type PayloadFiles } from './payload/payload.ts';
import type { KeyMaterial } from './signature/keyring.ts';
import type { ImagePolicy } from './sigstore/imagePolicy.ts';
import { parseArchitecture, type Architecture } from './version.ts';

/** A release, by its payload image. */
export interface Release {
  readonly version: string;
  readonly arch: Architecture;
  /** The digest that is signed and that the cluster is given; of the manifest list if the payload is one. */
  readonly digest: Digest;
  /** The payload's manifest or manifest list. */
  readonly descriptor: Descriptor;
  readonly reference: Reference;
  /** The pullspec of the payload by digest. */
  readonly pullspec: string;
  /** The component images by name, in the payload's order. */
  readonly images: ReadonlyMap<string, ComponentImage>;
  /** The names of the component images with an operating system for nodes, or with its extensions. */
  readonly osImages: readonly string[];
  /** The versions that can update to this one. */
  readonly previous: readonly string[];
  /** The manifests of single architectures if the payload is a manifest list; else empty. */
  readonly children: readonly Descriptor[];
  readonly verification: Verification;
  /** The image policies that the release adds to clusters (ClusterImagePolicy). */
  readonly imagePolicies: readonly ImagePolicy[];
  /** The feature sets with which clusters pin images; undefined if the manifests do not say. */
  readonly pinsIn?: readonly string[];
  /**
   * The feature sets of clusters that need its operating system streams described; undefined if the manifests do not
   * say.
   */
  readonly streamsIn?: readonly string[];
  /** The acknowledgements that an update from it to another minor version requires. */
  readonly gates: readonly AdminGate[];
  readonly provenance: Provenance;
}

/** Options for reading a payload. */
export interface PayloadOptions {
  /** The repository in the payload's pullspec, with its registry: `quay.io/openshift-release-dev/ocp-release`. */
  readonly repository: string;
  /** The required version and architecture. */
  readonly version?: string;
  readonly arch?: Architecture;
}

const osImage = /^(?:rhel-coreos|rhcos|fedora-coreos|(?:centos-)?stream-coreos)|^machine-os-content$|-extensions$/;

/**
 * Reads a release from its payload image, and verifies the content against `descriptor`. Does not check the signature;
 * see verifyRelease. For a manifest list, reads its linux/amd64 manifest, or its first. Throws `invalid-release` for an
 * image that is not a payload, has malformed metadata, or is for another version or architecture, and the errors of the
 * source.
 */
export async function readPayload(
  source: ContentSource,
  descriptor: Descriptor,
  options: PayloadOptions,
  context: Context,
): Promise<Release> {
  const where = `the release ${descriptor.digest} in ${source.name}`;
  const root = await readImageManifest(source, descriptor);
  const children = isIndex(root) ? root.manifests.filter(isForPlatform) : [];
  const manifest = isIndex(root) ? await readImageManifest(source, representativeOf(children, where)) : root;
  const files = await readPayloadFiles(source, manifest, context);
  const { version, images } = readImageReferences(files, where);
  const { previous, multi } = readReleaseMetadata(files, where);
  // A child states that it is part of a multi-arch release. Such a manifest list may have one
  // architecture only.
  const arch =
    children.length > 1 || (children.length === 1 && multi) ? 'multi' : await readArchitecture(source, manifest, where);
  checkWanted('version', version, options.version, where);
  checkWanted('architecture', arch, options.arch, where);
  const reference = { ...parseRepository(options.repository), digest: descriptor.digest };
  return {
    version,
    arch,
    digest: descriptor.digest,
    descriptor,
    reference,
    pullspec: formatReference(reference),
    images,
    osImages: [...images.keys()].filter((name) => osImage.test(name)),
    previous,
    children,
    verification: readVerification(files, context),
    imagePolicies: readPayloadPolicies(files, version, context),
    pinsIn: readFeatureSets(files, version, 'PinnedImageSet', context),
    streamsIn: readFeatureSets(files, version, 'OSImageStream', context),
    gates: readPayloadGates(files, version, context),
    provenance: readProvenance(files),
  };
}

/**
 * Reads the files of the `release-manifests` folder of a payload, from the same manifest as readPayload. Throws the
 * same errors, except for errors in the files.
 */
export async function readPayloadManifests(
  source: ContentSource,
  descriptor: Descriptor,
  context: Context,
): Promise<PayloadFiles> {
  const root = await readImageManifest(source, descriptor);
  const where = `the release ${descriptor.digest} in ${source.name}`;
  const manifest = isIndex(root)
    ? await readImageManifest(source, representativeOf(root.manifests.filter(isForPlatform), where))
    : root;
  return readPayloadFiles(source, manifest, context);
}

/**
 * Returns whether an entry of a manifest list is an image. Build attestations are there for the platform
 * unknown/unknown.
 */
export function isForPlatform({ platform }: Descriptor): boolean {
  return platform?.os !== 'unknown';
}

function representativeOf(children: readonly Descriptor[], where: string): Descriptor {
  const amd64 = children.find(({ platform }) => platform?.os === 'linux' && platform.architecture === 'amd64');
  const chosen = amd64 ?? children[0];
  if (chosen && !isIndex(chosen)) return chosen;
  throw new PluginError('invalid-release', `${where} is a list without an image`);
}

async function readArchitecture(source: ContentSource, manifest: Manifest, where: string): Promise<Architecture> {
  if (!manifest.config) throw new PluginError('invalid-release', `${where} has no configuration`);
  const bytes = await readContent(source, manifest.config);
  try {
    const { architecture } = parseJson(bytes.toString('utf8')) as { architecture?: unknown };
    return parseArchitecture(String(architecture));
  } catch (cause) {
    throw new PluginError('invalid-release', `${where} is for no known architecture: ${messageOf(cause)}`, { cause });
  }
}

function checkWanted(what: string, has: string, expected: string | undefined, where: string): void {
  if (expected === undefined || expected === has) return;
  throw new PluginError('invalid-release', `${where} is of ${what} ${has}, not ${expected}`, {
    hint: 'The tag may be wrong, or may have moved. Compare the digest with the published digest.',
  });
}

/** The keys and stores that a payload names for verifying releases. The payload itself does not make them trusted. */
interface Verification {
  readonly keys: readonly KeyMaterial[];
  /** The http(s) URLs of signature stores. */
  readonly stores: readonly string[];
}

// Read before the release is verified. The real one has 9 KB.
const limits = { length: 1024 * 1024, tokens: 20_000 };

const annotation = 'release.openshift.io/verification-config-map';

/**
 * Reads the first ConfigMap of a payload with the annotation for verification: keys in `verifier-public-key-*` and
 * stores in `store-*`, as library-go does. Empty without such a ConfigMap.
 */
function readVerification(files: PayloadFiles, context: Context): Verification {
  for (const [name, content] of files) {
    const text = content.toString('utf8');
    // Most of a payload's hundreds of manifests can be skipped without parsing.
    if (!text.includes(annotation)) continue;
    const data = documentsOf(name, text, context).find(isVerification)?.data;
    if (data) return verificationOf(name, data, context);
  }
  return { keys: [], stores: [] };
}

interface ConfigMap {
  readonly kind?: unknown;
  readonly metadata?: { readonly annotations?: Readonly<Record<string, unknown>> };
  readonly data?: Readonly<Record<string, unknown>>;
}

function documentsOf(name: string, text: string, context: Context): (ConfigMap | null)[] {
  try {
    // Red Hat's own manifest has a duplicate key, which Kubernetes accepts.
    return readDocuments(text, limits).values as (ConfigMap | null)[];
  } catch (error) {
    context.log('warn', `${name} in the release payload is not YAML and is skipped: ${messageOf(error)}`);
    return [];
  }
}

function isVerification(object: ConfigMap | null): object is ConfigMap {
  return object?.kind === 'ConfigMap' && object.metadata?.annotations?.[annotation] !== undefined;
}

function verificationOf(file: string, data: Readonly<Record<string, unknown>>, context: Context): Verification {
  const entries = Object.entries(data).filter((entry): entry is [string, string] => typeof entry[1] === 'string');
  const keys = entries
    .filter(([key]) => key.startsWith('verifier-public-key-'))
    .map(([key, content]) => ({ name: `${key} of ${file} in the release payload`, content }));
  const named = entries.filter(([key]) => key.startsWith('store-')).map(([, store]) => store.trim());
  // An unverified payload must not choose local files to read.
  const stores = named.filter((store) => /^https?:/.test(store) && URL.canParse(store));
  if (stores.length < named.length)
    context.log('warn', `${file} in the release payload names a signature store that is not http(s), which is skipped`);
  return { keys, stores };
}

/** The source of a component: a repository and a commit. */
export interface SourceCommit {
  readonly repository: string;
  readonly commit: string;
}

/** The origin of a release according to its payload, for an audit. Nothing else uses it. */
export interface Provenance {
  /** The URL of the advisory. */
  readonly errata?: string;
  /** The time at which the release was made. */
  readonly created?: Date;
  /**
   * The versions of parts, such as `kubernetes`. A release with two operating systems has both:
   * `machine-os: '9.8.1, 10.2.1'`.
   */
  readonly versions: Readonly<Record<string, string>>;
  readonly sources: ReadonlyMap<string, SourceCommit>;
}

interface ImageReferences {
  readonly metadata?: { readonly creationTimestamp?: unknown };
  readonly spec?: {
    readonly tags?: readonly { readonly name?: string; readonly annotations?: Record<string, unknown> }[];
  };
}

// Every text is printed in a report, so each must match a narrow pattern.
const address = /^https:\/\/[\w./:?=&%-]{1,300}$/;
const commitHash = /^[0-9a-f]{7,64}$/;
const time = /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const versionEntry = /^([a-z][a-z0-9-]{0,50})=([\w.+-]{1,100})$/;

/**
 * Reads `image-references` and `release-metadata` of a payload, which are parsed before. Leaves out texts of another
 * form.
 */
export function readProvenance(files: PayloadFiles): Provenance {
  const parse = (name: string): unknown => parseJson(files.get(name)?.toString('utf8') ?? '{}');
  const { metadata } = parse('release-metadata') as { metadata?: { url?: unknown } };
  const { metadata: references, spec } = parse('image-references') as ImageReferences;
  const versions = new Map<string, Set<string>>();
  const sources = new Map<string, SourceCommit>();
  for (const { name = '', annotations = {} } of spec?.tags ?? []) {
    const repository = textOf(annotations['io.openshift.build.source-location'], address);
    const commit = textOf(annotations['io.openshift.build.commit.id'], commitHash);
    if (repository !== undefined && commit !== undefined) sources.set(name, { repository, commit });
    const entries = annotations['io.openshift.build.versions'];
    for (const entry of typeof entries === 'string' ? entries.split(',') : []) {
      const [, part, version] = versionEntry.exec(entry) ?? [];
      if (part === undefined || version === undefined) continue;
      const partVersions = versions.get(part);
      if (!partVersions) versions.set(part, new Set([version]));
      // Only the operating system may have several versions (MCO-1961).
      else if (part === 'machine-os') partVersions.add(version);
    }
  }
  const errata = textOf(metadata?.url, address);
  const created = new Date(textOf(references?.creationTimestamp, time) ?? Number.NaN);
  const hasTime = !Number.isNaN(created.getTime());
  return {
    errata,
    ...(hasTime && { created }),
    versions: Object.fromEntries([...versions].map(([part, partVersions]) => [part, [...partVersions].join(', ')])),
    sources,
  };
}

function textOf(value: unknown, form: RegExp): string | undefined {
  return typeof value === 'string' && form.test(value) ? value : undefined;
}

import type { Context } from '../context.ts';
import { PluginError, messageOf } from '../errors.ts';
import { isIndex, type Descriptor, type Manifest } from '../content/oci/descriptor.ts';
import type { Digest } from '../content/oci/digest.ts';
import { formatReference, parseRepository, type Reference } from '../content/oci/reference.ts';
import { parseJson } from '../content/oci/syntax.ts';
import { readContent, readImageManifest, type ContentSource } from '../content/store/store.ts';
import { readPayloadGates, type AdminGate } from './adminGates.ts';
import { readImageReferences, readReleaseMetadata, type ComponentImage } from './metadata.ts';
import { readPayloadFiles, type PayloadFiles } from './payload.ts';
import type { ImagePolicy } from './sigstore/imagePolicy.ts';
import { readProvenance, type Provenance } from './provenance.ts';
import { readFeatureSets } from './featureGates.ts';
import { readPayloadPolicies } from './payloadPolicies.ts';
import { readVerification, type Verification } from './verification.ts';
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
  /** The feature sets of clusters that need its operating system streams described; undefined if the manifests do not say. */
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

/** Returns whether an entry of a manifest list is an image. Build attestations are there for the platform unknown/unknown. */
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

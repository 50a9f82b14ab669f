import { dirname } from 'node:path/posix';
import { catalogSourceManifest, clusterCatalogManifest } from '#config/catalogSource';
import { registryAuthorityConfigMap, registryAuthorityPath } from '#config/certificateAuthority';
import { formatManifest, type ConfigManifest, type UnknownObject } from '#config/manifest';
import { mirrorSetManifest, type MirroredSource, type MirrorSetKind } from '#config/mirrorSets';
import { annotatedVersion, signatureConfigMap, signatureLabel } from '#config/signatures';
import { updateServiceManifests } from '#config/updateService';
import {
  isDigest,
  parseDigest,
  type Digest,
  digestIn,
  repositoryIn,
  parseReference,
  parseRepository,
} from '#content/oci';
import type { Context } from '#context';
import { isPluginError } from '#errors';
import { fieldsAt, fieldsOf } from '#fields';
import type { Release } from '#release/release';
import type { VerifiedSignature } from '#release/signature';
import { type Bundle, describeProblem, type Problem } from '../open/bundle.ts';
import type { BundledConfig, ConfigFile } from './bundledConfig.ts';
import { type BundleMetadata, splitReleases } from './metadata.ts';

/** The releases that the configuration of a bundle must agree with. */
interface ConfigSubject {
  /**
   * The versions of the releases by their digests; for a multi-architecture release, also by those of its images.
   * Undefined for an image of one of several releases if none of them is read.
   */
  readonly digests: ReadonlyMap<Digest, string | undefined>;
  /** The repositories that its images come from: REGISTRY/REPOSITORY. */
  readonly repositories: ReadonlySet<string>;
}

/** The parts of a bundle that its configuration depends on. */
interface ConfiguredBundle extends Pick<Bundle, 'form' | 'described'> {
  readonly metadata: Pick<BundleMetadata, 'signatures' | 'extraImages'>;
}

/** The signatures to check the configuration with. */
interface ConfigTrust {
  readonly good: readonly VerifiedSignature[];
  /**
   * Whether signatures that are not good are ignored, because unsigned releases are allowed or nothing was verified.
   */
  readonly lenient: boolean;
}

/** The result of checking the configuration of a bundle. */
export interface ConfigVerdict {
  readonly problems: readonly Problem[];
  /** The verified signatures, rebuilt as objects. */
  readonly signatures: readonly ConfigManifest[];
  /** The other objects of a mirror directory, rebuilt. No signature covers the registries in them. */
  readonly mirrors: readonly MirrorManifest[];
  /** The CatalogSources of extra images, rebuilt; no signature of the release covers them. */
  readonly catalogs: readonly ConfigManifest[];
}

/** Returns the subject for the configuration of some releases. */
export function signatureSubjectOf(releases: readonly Release[]): ConfigSubject {
  const references = releases.flatMap(({ reference, images }) => [
    reference,
    ...[...images.values()].map((image) => image.reference),
  ]);
  const digests = releases.flatMap(({ version, digest, children }) =>
    [digest, ...children.map((child) => child.digest)].map((each) => [each, version] as const),
  );
  return {
    digests: new Map(digests),
    repositories: new Set(references.map(({ registry, repository }) => `${registry}/${repository}`)),
  };
}

/** Returns the subject by metadata.json, if the releases themselves are not read. */
export function describedSubject(metadata: BundleMetadata): ConfigSubject {
  const { release, images, signatures } = metadata;
  const version = metadata.releases ? undefined : metadata.version;
  const others = Object.keys(signatures).filter(isDigest);
  const own = splitReleases(metadata).map((each) => [parseDigest(digestIn(each.release)), each.version] as const);
  return {
    digests: new Map<Digest, string | undefined>([...others.map((each) => [each, version] as const), ...own]),
    repositories: new Set([release, ...images].map(repositoryIn)),
  };
}

/** Logs the registries in the configuration that no signature covers. */
export function announceMirrors({ mirrors }: ConfigVerdict, context: Context): void {
  for (const { manifest, registries } of mirrors) {
    const message = `${manifest.path} names ${registries.join(', ')}, which is not covered by the release signature`;
    context.log('info', message);
  }
}

/**
 * Checks the configuration of a bundle. Signature ConfigMaps must be byte for byte as this program writes them for the
 * verified signatures. A mirror directory may also have signatures of other releases or by other tools, and the mirror
 * sets and the update service of a mirror of this release. Everything else is a problem.
 */
export function checkConfig(
  bundle: ConfiguredBundle,
  { files, problems: unreadable }: BundledConfig,
  subject: ConfigSubject,
  trust: ConfigTrust,
): ConfigVerdict {
  const problems = [...unreadable];
  const signatures = new Map<string, ConfigManifest>();
  const catalogs: ConfigManifest[] = [];
  const others: ConfigFile[] = [];
  for (const file of files) {
    if (bundle.form === 'directory' && /^config\/(?:mirrors|update-service)\//.test(file.path)) {
      others.push(file);
      continue;
    }
    if (file.path.startsWith('config/catalogs/')) {
      const { problem, manifests } = checkCatalogFile(bundle, file);
      if (problem) problems.push(problem);
      catalogs.push(...manifests);
      continue;
    }
    const { problem, manifests } = checkSignatureFile(bundle, file, subject, trust);
    if (problem) problems.push(problem);
    for (const manifest of manifests) signatures.set(manifest.path, manifest);
  }
  // Without metadata.json, the repository of the release image is unknown. It is usually next to
  // its components.
  const near = bundle.described ? [] : [...subject.repositories].map((repository) => `${dirname(repository)}/`);
  // The user names the registry, which gets no more than these images by their digests.
  const extras = bundle.metadata.extraImages.map(repositoryIn);
  const mirrors = checkMirrorFiles(others, new Set([...subject.repositories, ...near, ...extras]));
  problems.push(...mirrors.problems);
  return { problems, signatures: [...signatures.values()], mirrors: mirrors.manifests, catalogs };
}

/**
 * A CatalogSource or ClusterCatalog must be, byte for byte, what this project writes for an extra image of the bundle.
 */
function checkCatalogFile({ described, metadata }: ConfiguredBundle, { path, text, objects }: ConfigFile): FileVerdict {
  const [object] = objects;
  const { name } = fieldsAt(object, 'metadata');
  const image = fieldsAt(object, 'spec')['image'] ?? fieldsAt(object, 'spec', 'source', 'image')['ref'];
  const isListed = described && typeof image === 'string' && metadata.extraImages.includes(image);
  if (isListed && typeof name === 'string' && /^[a-z0-9][a-z0-9-]{0,62}$/.test(name)) {
    const written = [catalogSourceManifest(name, image), clusterCatalogManifest(name, image)];
    const same = written.find((each) => each.path === path && formatManifest(each.object) === text);
    if (same) return { manifests: [same] };
  }
  const words = `${path} is not the catalog of an image of this bundle`;
  return { problem: describeProblem('unexpected', 'file', path, words), manifests: [] };
}

interface FileVerdict {
  readonly problem?: Problem;
  readonly manifests: readonly ConfigManifest[];
}

function checkSignatureFile(
  { form, described, metadata }: ConfiguredBundle,
  { path, text, objects, signatures }: ConfigFile,
  { digests }: ConfigSubject,
  { good, lenient }: ConfigTrust,
): FileVerdict {
  const refuse = (kind: Problem['kind'], words: string): FileVerdict => {
    return { problem: describeProblem(kind, 'file', path, `${path} ${words}`), manifests: [] };
  };
  if (signatures.size === 0 || !objects.every(isSignatures))
    return refuse('unexpected', 'is not a signature, and cannot be verified');
  const manifests: ConfigManifest[] = [];
  for (const [digest, list] of signatures) {
    const isOwn = digests.has(digest);
    const verified = good.filter((each) => each.digest === digest);
    if (!isOwn && (form === 'tar' || (verified.length === 0 && !lenient))) {
      const why = form === 'tar' ? 'which is not an image of this release' : 'which no trusted key has signed';
      return refuse('unexpected', `has a signature of ${digest}, ${why}`);
    }
    if (verified.length > 0 && !list.every((bytes) => verified.some((each) => each.bytes.equals(bytes)))) {
      return refuse('corrupt', `is corrupt: it has a signature of ${digest} that no trusted key made`);
    }
    const version = digests.get(digest) ?? objects.map(annotatedVersion).find((each) => each !== undefined);
    const signer = (verified[0] ?? metadata.signatures[digest]?.[0])?.fingerprint ?? '';
    manifests.push(signatureConfigMap(digest, list, { version, signer }));
  }
  const [only] = manifests;
  const isAsWritten = manifests.length === 1 && only?.path === path && formatManifest(only.object) === text;
  const isOwnForm =
    form === 'tar' || (described && path.startsWith('config/signature/') && isSubset(signatures, digests));
  return isAsWritten || (!isOwnForm && objects.every(isPlain)) ? { manifests } : refuse('corrupt', 'is corrupt');
}

function isSubset(signatures: ReadonlyMap<Digest, unknown>, digests: ConfigSubject['digests']): boolean {
  return [...signatures.keys()].every((digest) => digests.has(digest));
}

// The cluster reads signatures in this namespace. A ConfigMap with data would change more than signatures.
function isSignatures({ kind, metadata, data }: UnknownObject): boolean {
  const { labels, namespace } = (metadata ?? {}) as { labels?: Record<string, unknown> | null; namespace?: unknown };
  const isLabelled = labels?.[signatureLabel] !== undefined;
  return kind === 'ConfigMap' && namespace === 'openshift-config-managed' && isLabelled && data === undefined;
}

/** Returns whether a signature ConfigMap of another tool has nothing but signatures. */
function isPlain({ apiVersion, binaryData, ...object }: UnknownObject): boolean {
  const { metadata } = object as { metadata?: object };
  const keys = (value: object | null | undefined, allowed: readonly string[]): boolean =>
    Object.keys(value ?? {}).every((key) => allowed.includes(key));
  return (
    apiVersion === 'v1' &&
    keys(object, ['kind', 'metadata']) &&
    keys(metadata, ['name', 'namespace', 'labels', 'annotations', 'creationTimestamp']) &&
    Object.keys(binaryData ?? {}).every((key) => /^sha256-[0-9a-f]{64}(?:-\d{1,4})?$/.test(key))
  );
}

/** A manifest that names registries, which no signature covers. */
interface MirrorManifest {
  readonly manifest: ConfigManifest;
  /** The host and port of each registry. */
  readonly registries: readonly string[];
}

const setKinds: Readonly<Record<string, { kind: MirrorSetKind | 'itms'; field: string }>> = {
  imagedigestmirrorset: { kind: 'idms', field: 'imageDigestMirrors' },
  imagetagmirrorset: { kind: 'itms', field: 'imageTagMirrors' },
  imagecontentsourcepolicy: { kind: 'icsp', field: 'repositoryDigestMirrors' },
};
const setPath = /^config\/mirrors\/([a-z]+)(-[0-9a-f]{8})?\.yaml$/;
const servicePath = 'config/update-service/updateservice.yaml';

/**
 * Checks the files that mirroring writes in addition to signatures: a mirror set for repositories of the release, an
 * update service, and the CAs of its registries. Each is rebuilt from its own fields, and must be equal byte for byte.
 * `repositories` are those of the release and of the images beside it; a name that ends with a slash includes all
 * repositories below it.
 */
function checkMirrorFiles(
  files: readonly ConfigFile[],
  repositories: ReadonlySet<string>,
): { manifests: MirrorManifest[]; problems: Problem[] } {
  const manifests: MirrorManifest[] = [];
  const problems: Problem[] = [];
  // The CAs are those of the registries in the other files, so their file comes last.
  const sorted = files.toSorted(
    (a, b) => Number(a.path === registryAuthorityPath) - Number(b.path === registryAuthorityPath),
  );
  for (const { path, text, objects } of sorted) {
    const rebuilt = rebuild(path, objects, repositories, manifests);
    if (typeof rebuilt === 'object' && formatManifest(rebuilt.manifest.object) === text) manifests.push(rebuilt);
    else {
      const why = typeof rebuilt === 'string' ? rebuilt : 'differs from what mirroring writes';
      problems.push(describeProblem('unexpected', 'file', path, `${path} ${why}: it cannot be verified`));
    }
  }
  return { manifests, problems };
}

/**
 * Rebuilds a manifest from the fields of another one. Returns a reason if mirroring of this release does not write such
 * a manifest.
 */
function rebuild(
  path: string,
  [object, second]: readonly UnknownObject[],
  repositories: ReadonlySet<string>,
  earlier: readonly MirrorManifest[],
): MirrorManifest | string {
  const set = setKinds[setPath.exec(path)?.[1] ?? ''];
  if (!object || second || (!set && path !== servicePath && path !== registryAuthorityPath))
    return 'is not written by mirroring';
  try {
    if (set) return rebuildSet(path, set, object, repositories);
    return path === servicePath ? rebuildService(object) : rebuildAuthority(object, earlier);
  } catch (error) {
    if (!isPluginError(error)) throw error;
    return `is malformed (${error.message})`;
  }
}

function rebuildSet(
  path: string,
  { kind, field }: { kind: MirrorSetKind | 'itms'; field: string },
  { spec }: UnknownObject,
  repositories: ReadonlySet<string>,
): MirrorManifest | string {
  const entries = fieldsOf(spec)[field];
  if (!Array.isArray(entries) || entries.length === 0) return 'has no sources';
  const sources = entries.map((entry): MirroredSource => {
    const { source, mirrors } = fieldsOf(entry);
    return { source: String(source), mirrors: Array.isArray(mirrors) ? mirrors.map(String) : [] };
  });
  const foreign = sources.find(({ source }) => !repositories.has(source) && !repositories.has(`${dirname(source)}/`));
  if (foreign) return `is for ${foreign.source.slice(0, 200)}, which is not a repository of this release`;
  const registries = sources.flatMap(({ mirrors }) => mirrors.map((mirror) => parseRepository(mirror).registry));
  const manifest = mirrorSetManifest(kind, sources);
  return manifest.path === path
    ? { manifest, registries: [...new Set(registries)] }
    : 'has another name than its content';
}

function rebuildService({ spec }: UnknownObject): MirrorManifest | string {
  const { releases, graphDataImage } = fieldsOf(spec);
  const options = { releases: String(releases), graphDataImage: String(graphDataImage) };
  const [manifest] = updateServiceManifests(options);
  if (!manifest) return 'is not written by mirroring';
  const places = [parseRepository(options.releases), parseReference(options.graphDataImage)];
  return { manifest, registries: [...new Set(places.map(({ registry }) => registry))] };
}

function rebuildAuthority({ data }: UnknownObject, earlier: readonly MirrorManifest[]): MirrorManifest | string {
  const service = earlier.find(({ manifest }) => manifest.path === servicePath);
  if (!service) return `belongs to no ${servicePath}`;
  const [certificates] = Object.values(fieldsOf(data));
  const manifest = registryAuthorityConfigMap({ certificates: String(certificates), registries: service.registries });
  return { manifest, registries: service.registries };
}

import { isDeepStrictEqual } from 'node:util';
import { type Digest, parseJson } from '#content/oci';
import { PluginError, messageOf } from '#errors';
import { fieldsOf, isFields, listOf, textsOf, type Fields } from '#fields';
import type { UpdateRisk } from '#release/graph';
import type { SignedRelease } from '#release/load';
import type { Release } from '#release/release';
import { choice, count, findFault, list, mapping, object, optional, text, type Schema, type Static } from '#schema';

/** The name of the first entry of every bundle. */
export const metadataPath = 'metadata.json';

/** The largest metadata.json, in bytes: it describes about 30,000 images. */
export const metadataSizeLimit = 16 * 1024 * 1024;

/** The smallest space for reports after a bundle, in bytes: two of the largest reports. */
export const smallestReportSpace = 8 * 1024 * 1024;

/** States a list whose entries differ. */
function set<Value>(
  items: Schema<Value>,
  keyOf: (value: Value) => unknown = (value) => value,
): Schema<readonly Value[]> {
  return list(items, { where: (values) => new Set(values.map(keyOf)).size === values.length });
}

// These texts become names of objects and parts of messages before anything is verified.
const version = text({
  pattern: String.raw`^\d{1,5}\.\d{1,5}\.\d{1,6}(?:[-+][0-9A-Za-z][0-9A-Za-z.+-]{0,80})?$`,
});
const arch = text({ pattern: '^[a-z][a-z0-9_]{1,15}$' });
const pullspec = text({ pattern: String.raw`^[0-9A-Za-z[][0-9A-Za-z._:[\]/-]{0,400}@sha256:[0-9a-f]{64}$` });
const digest = text<Digest>({ pattern: '^sha256:[0-9a-f]{64}$' });
const components = mapping(text({ pattern: String.raw`^[0-9A-Za-z][\w.-]{0,127}$` }), pullspec);
// Texts of a bundle are printed on a terminal, so they must not have control characters.
const isPrintable = (value: string): boolean => value.length <= 1000 && !/\p{Cc}/u.test(value);
const line = text({ where: isPrintable });

const blob = object({ digest, size: count() });
const blobs = set(blob, (each) => each.digest);
const risks = list<UpdateRisk>(object({ name: line, message: line, url: line }));

const signature = object({
  /** The fingerprint of the primary key, in upper-case hex. */
  fingerprint: line,
  /** The user ID of the key. */
  signer: line,
});

const base = object({
  version,
  arch,
  /** The release image by digest. */
  release: pullspec,
  blobs,
  /** The images by digest that a site has according to its report, each with those of the blobs that it has. */
  images: optional(mapping(pullspec, set(digest))),
});

const skippedImage = object({
  /** The image as the catalog names it, which need not be a pullspec. */
  image: line,
  /** The names of the operator bundles that need it. */
  operators: set(line),
  /** The pullspec of the original catalog. */
  catalog: line,
});

const reports = object({
  /** The bytes after the bundle, on a drive without a file system, that reports are written to. */
  space: optional(count({ minimum: smallestReportSpace, where: (size) => size % 4096 === 0 })),
  /** The OpenPGP key that reports are encrypted to: its binary form, as base64. */
  key: optional(text({ pattern: '^[0-9A-Za-z+/]{64,22000}={0,2}$' })),
});

const release = object({
  version,
  release: pullspec,
  components,
  osImages: list(pullspec),
  previous: list(version),
  /** The known risks of the update to it from the release before it. */
  risks,
  /** The size of the blobs that no earlier release of the bundle has, in bytes. */
  bytes: count(),
});

/** The statement of metadata.json, with its keys in the order in which `create` writes them. */
export const metadataSchema = object({
  /** 2 for a bundle with several releases. */
  formatVersion: choice([1, 2]),
  version,
  arch,
  release: pullspec,
  /** All images of all releases, with the release images and the extra images. */
  images: set(pullspec),
  components,
  extraImages: set(pullspec),
  /** The images that nodes boot from. */
  osImages: list(pullspec),
  /** The versions that can update to this one. */
  previous: list(version),
  /** The good signatures of the release and, in a multi-architecture release, of its signed images, by digest. */
  signatures: mapping(digest, list(signature)),
  tool: line,
  /** The known risks of the update to it; absent if there are none, or several releases. */
  risks: optional(risks),
  /** The releases in the order of the updates; undefined if there is only one. */
  releases: optional(list(release)),
  /** The extra images that are OCI artifacts, which no image store takes; absent if there are none. */
  artifacts: optional(set(pullspec)),
  /** The images of operators that `create` could not use and was asked to skip; absent if there are none. */
  skippedImages: optional(set(skippedImage, ({ image }) => image)),
  /** How drives take reports; absent if the bundle says nothing about them. */
  reports: optional(reports),
  /** The base of a delta bundle; undefined if the bundle has all blobs. */
  base: optional(base),
  blobs,
  /** The size of the whole tar. */
  size: count(),
  /** The volumes of the tar, in order; undefined if it is one file. */
  volumes: optional(
    list(object({ name: text({ pattern: String.raw`^[^/]+\.tar\.\d{3}$`, where: isPrintable }), size: count() })),
  ),
});

/**
 * The content of metadata.json. `version`, `arch`, `release` and `images` have the names of jhernand/upgrade-tool. All
 * pullspecs are by digest, and all sizes in bytes. With several releases, the fields of a release are those of the
 * last.
 */
export type BundleMetadata = Static<typeof metadataSchema>;

/** A blob by its digest, with its size in bytes. */
export type BlobRecord = Static<typeof blob>;

/** A signature that was valid when the bundle was created. */
export type SignatureRecord = Static<typeof signature>;

/** The base release of a delta bundle, and the blobs that the bundle lacks. */
export type BundleBase = Static<typeof base>;

/** An image of operators that a bundle lacks. */
export type SkippedImage = Static<typeof skippedImage>;

/** How a drive with the bundle takes reports of the site, if the site allows that. */
export type ReportPlace = Static<typeof reports>;

/** One release of a bundle with several releases. */
export type BundledRelease = Static<typeof release>;

/**
 * Formats metadata.json, with the keys in the order of the one form that parseMetadata accepts. Its `size` is the size
 * of the whole tar, which `tarSize` computes from the length of metadata.json. `split` computes the volumes of a tar of
 * that size.
 */
export function formatMetadata(
  metadata: Omit<BundleMetadata, 'size'>,
  tarSize: (length: number) => number,
  split: (size: number) => BundleMetadata['volumes'] = () => metadata.volumes,
): Buffer {
  let size = 0;
  for (;;) {
    const bytes = encodeMetadata({ ...metadata, size, volumes: split(size) });
    const actual = tarSize(bytes.length);
    // More digits or volumes may make metadata.json longer, and so the tar. The next round then settles.
    if (actual === size) return bytes;
    size = actual;
  }
}

/** Returns the only bytes of metadata.json that parseMetadata reads as this metadata. */
export function encodeMetadata(metadata: BundleMetadata): Buffer {
  return Buffer.from(`${JSON.stringify(arrange(metadataSchema, metadata), null, 2)}\n`);
}

/**
 * Returns the metadata of each release of a bundle in the order of the updates, as if it were a bundle of that release
 * and the extra images only. The blobs and signatures are those of the whole bundle.
 */
export function splitReleases(metadata: BundleMetadata): [BundleMetadata, ...BundleMetadata[]] {
  const { releases, ...shared } = metadata;
  const [first, ...others] = (releases ?? []).map(({ version, release, components, osImages, previous, risks }) => {
    const images = [...new Set([release, ...Object.values(components), ...metadata.extraImages])];
    return { ...shared, formatVersion: 1, version, release, images, components, osImages, previous, risks } as const;
  });
  return first ? [first, ...others] : [metadata];
}

/**
 * Parses metadata.json. Accepts only the bytes that formatMetadata writes, so that no reader can find another meaning.
 * Throws `invalid-bundle` with the invalid field, and `too-large`. `where` is for messages.
 */
export function parseMetadata(bytes: Buffer, where: string): BundleMetadata {
  if (bytes.length > metadataSizeLimit) {
    const sizes = `${bytes.length} bytes, more than the limit of ${metadataSizeLimit}`;
    const hint = 'It lists too many images. Divide the extra images and the operators among several bundles.';
    throw new PluginError('too-large', `metadata.json in ${where} has ${sizes}`, { hint });
  }
  let value: unknown;
  try {
    value = parseJson(bytes.toString());
  } catch (cause) {
    throw invalid(where, `is not JSON: ${messageOf(cause)}`, cause);
  }
  checkMetadata(value, where);
  const written = encodeMetadata(value);
  if (written.equals(bytes)) return value;
  const end = written.findIndex((byte, index) => byte !== bytes[index]);
  const line = written.subarray(0, end).toString().split('\n').length;
  const why = `from line ${line} on it has unknown or repeated keys, or another order or spelling`;
  throw invalid(where, `is not in the form that create writes: ${why}`);
}

function checkMetadata(value: unknown, where: string): asserts value is BundleMetadata {
  if (!isFields(value)) throw invalid(where, 'is not an object');
  const format = value['formatVersion'];
  if (format !== 1 && format !== 2) {
    const isLater = typeof format === 'number' && format > 0 && format < 100;
    const which = isLater ? `formatVersion ${Math.floor(format)}` : 'no formatVersion';
    throw invalid(where, `has ${which}; this program reads 1 and 2`);
  }
  const fault = findFault(metadataSchema, value)?.[0] ?? findContradiction(value);
  if (fault !== undefined) throw invalid(where, `has malformed ${fault}`);
}

/** Returns the name of a field of the right form that contradicts another one, or is empty or too short. */
function findContradiction(value: Fields): string | undefined {
  const { extraImages, artifacts, volumes } = value;
  if (!isReleases(value)) return 'releases';
  const own = listSigned([value, ...listOf(value['releases'])]);
  if (textsOf(extraImages).some((image) => own.includes(image))) return 'extraImages';
  if (textsOf(artifacts).some((image) => !textsOf(extraImages).includes(image))) return 'artifacts';
  if (Array.isArray(volumes) && volumes.length < 2) return 'volumes';
  return ['risks', 'artifacts', 'skippedImages'].find(
    (field) => Array.isArray(value[field]) && value[field].length === 0,
  );
}

/** Returns a value with the stated keys only, in the order of their statement. */
function arrange({ items, properties, additionalProperties }: Schema, value: unknown): unknown {
  const arrangeEach = (schema: Schema | undefined, each: unknown): unknown => (schema ? arrange(schema, each) : each);
  if (Array.isArray(value)) return value.map((each) => arrangeEach(items, each));
  if (!isFields(value)) return value;
  const entries = properties
    ? Object.entries(properties).map(([key, schema]) => [key, arrangeEach(schema, value[key])] as const)
    : Object.entries(value).map(([key, each]) => [key, arrangeEach(additionalProperties, each)] as const);
  return Object.fromEntries(entries.filter(([, each]) => each !== undefined));
}

/** The largest number of releases in a bundle. */
export const releaseLimit = 16;

/**
 * Returns whether the releases are distinct, the last one is the release of the other fields, and `images` has the
 * images of all of them. A bundle with one release has no list of them.
 */
function isReleases({ formatVersion, releases, ...last }: Fields): boolean {
  if (formatVersion === 1 || releases === undefined) return formatVersion === 1 && releases === undefined;
  const all = listOf(releases);
  if (all.length < 2 || all.length > releaseLimit || last['risks'] !== undefined) return false;
  const shared = ['version', 'release', 'components', 'osImages', 'previous'];
  const images = [...listSigned(all), ...textsOf(last['extraImages'])];
  return (
    ['version', 'release'].every((field) => new Set(all.map((each) => each[field])).size === all.length) &&
    shared.every((field) => isDeepStrictEqual(all.at(-1)?.[field], last[field])) &&
    isDeepStrictEqual(new Set(textsOf(last['images'])), new Set(images))
  );
}

function listSigned(releases: readonly Fields[]): unknown[] {
  return releases.flatMap(({ release, components }) => [release, ...Object.values(fieldsOf(components))]);
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-bundle', `metadata.json in ${where} ${why}`, { cause });
}

/** The part of metadata.json that describes the release, without the blobs. */
export type MetadataFacts = Omit<BundleMetadata, 'formatVersion' | 'size' | 'blobs' | 'volumes'>;

/** Returns the part of metadata.json that describes a release. `extras` are pullspecs by digest. */
export function describeRelease(
  { release, signatures }: SignedRelease,
  extras: readonly string[],
  tool: string,
): MetadataFacts {
  const { version, arch, pullspec, osImages, previous } = release;
  const components = describeComponents(release);
  return {
    version,
    arch,
    release: pullspec,
    images: [...new Set([pullspec, ...Object.values(components), ...extras])],
    components,
    extraImages: extras,
    osImages: osImages.flatMap((name) => components[name] ?? []),
    previous,
    signatures: describeSignatures(signatures),
    tool,
  };
}

/** Returns verified signatures in the form of metadata.json. */
export function describeSignatures(signatures: SignedRelease['signatures']): BundleMetadata['signatures'] {
  return Object.fromEntries(
    [...signatures].map(([digest, good]) => [
      digest,
      good.map(({ fingerprint, userId }) => ({ fingerprint, signer: userId })),
    ]),
  );
}

/**
 * Returns the same for several releases in the order of the updates: the facts about the last one, the images and
 * signatures of all, and the list of releases. `more` has the risks and bytes of each release.
 */
export function describeReleases(
  signed: readonly SignedRelease[],
  extras: readonly string[],
  tool: string,
  more: readonly Pick<BundledRelease, 'risks' | 'bytes'>[],
): MetadataFacts {
  const all = signed.map((each) => describeRelease(each, extras, tool));
  const last = all.at(-1);
  if (!last) throw new PluginError('internal', 'a bundle without a release');
  const [first] = more;
  if (all.length === 1) return { ...last, ...(first && first.risks.length > 0 && { risks: first.risks }) };
  return {
    ...last,
    images: [...new Set(all.flatMap(({ images }) => images))],
    signatures: Object.assign({}, ...all.map(({ signatures }) => signatures)) as MetadataFacts['signatures'],
    releases: all.map(({ version, release, components, osImages, previous }, index) => {
      const { risks, bytes } = more[index] ?? { risks: [], bytes: 0 };
      return { version, release, components, osImages, previous, risks, bytes };
    }),
  };
}

/** Returns the pullspecs of the components of a release by name, in the form of metadata.json. */
export function describeComponents({ images }: Pick<Release, 'images'>): BundleMetadata['components'] {
  return Object.fromEntries([...images].map(([name, { pullspec }]) => [name, pullspec]));
}

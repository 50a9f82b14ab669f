import { isDeepStrictEqual } from 'node:util';
import { type Digest, parseJson } from '#content/oci';
import { PluginError, messageOf } from '#errors';
import { fieldsOf, isFields, listOf, textsOf, type Fields } from '#fields';
import type { UpdateRisk } from '#release/graph';
import type { SignedRelease } from '#release/load';
import type { Release } from '#release/release';

/** The name of the first entry of every bundle. */
export const metadataPath = 'metadata.json';

/** The largest metadata.json, in bytes: it describes about 30,000 images. */
export const metadataSizeLimit = 16 * 1024 * 1024;

/** The smallest space for reports after a bundle, in bytes: two of the largest reports. */
export const smallestReportSpace = 8 * 1024 * 1024;

/** A signature that was valid when the bundle was created. */
export interface SignatureRecord {
  /** The fingerprint of the primary key, in upper-case hex. */
  readonly fingerprint: string;
  /** The user ID of the key. */
  readonly signer: string;
}

/** A blob by its digest, with its size in bytes. */
export interface BlobRecord {
  readonly digest: Digest;
  readonly size: number;
}

/** The base release of a delta bundle, and the blobs that the bundle lacks. */
export interface BundleBase {
  readonly version: string;
  readonly arch: string;
  /** The release image by digest. */
  readonly release: string;
  readonly blobs: readonly BlobRecord[];
  /** The images by digest that a site has according to its report, each with those of the blobs that it has. */
  readonly images?: Readonly<Record<string, readonly Digest[]>>;
}

/** An image of operators that a bundle lacks. */
export interface SkippedImage {
  /** The image as the catalog names it, which need not be a pullspec. */
  readonly image: string;
  /** The names of the operator bundles that need it. */
  readonly operators: readonly string[];
  /** The pullspec of the original catalog. */
  readonly catalog: string;
}

/** How a drive with the bundle takes reports of the site, if the site allows that. */
export interface ReportPlace {
  /** The bytes after the bundle, on a drive without a file system, that reports are written to. */
  readonly space?: number;
  /** The OpenPGP key that reports are encrypted to: its binary form, as base64. */
  readonly key?: string;
}

/** One release of a bundle with several releases. */
export interface BundledRelease extends Pick<
  BundleMetadata,
  'version' | 'release' | 'components' | 'osImages' | 'previous'
> {
  /** The known risks of the update to it from the release before it. */
  readonly risks: readonly UpdateRisk[];
  /** The size of the blobs that no earlier release of the bundle has, in bytes. */
  readonly bytes: number;
}

/**
 * The content of metadata.json. `version`, `arch`, `release` and `images` have the names of jhernand/upgrade-tool. All
 * pullspecs are by digest, and all sizes in bytes. With several releases, the fields of a release are those of the
 * last.
 */
export interface BundleMetadata {
  /** 2 for a bundle with several releases. */
  readonly formatVersion: 1 | 2;
  readonly version: string;
  readonly arch: string;
  readonly release: string;
  /** All images of all releases, with the release images and the extra images. */
  readonly images: readonly string[];
  readonly components: Readonly<Record<string, string>>;
  readonly extraImages: readonly string[];
  /** The extra images that are OCI artifacts, which no image store takes; absent if there are none. */
  readonly artifacts?: readonly string[];
  /** The images of operators that `create` could not use and was asked to skip; absent if there are none. */
  readonly skippedImages?: readonly SkippedImage[];
  /** The images that nodes boot from. */
  readonly osImages: readonly string[];
  /** The versions that can update to this one. */
  readonly previous: readonly string[];
  /** The size of the whole tar. */
  readonly size: number;
  readonly blobs: readonly BlobRecord[];
  /** The base of a delta bundle; undefined if the bundle has all blobs. */
  readonly base?: BundleBase;
  /** The good signatures of the release and, in a multi-architecture release, of its signed images, by digest. */
  readonly signatures: Readonly<Record<string, readonly SignatureRecord[]>>;
  readonly tool: string;
  /** The releases in the order of the updates; undefined if there is only one. */
  readonly releases?: readonly BundledRelease[];
  /** The known risks of the update to it; absent if there are none, or several releases. */
  readonly risks?: readonly UpdateRisk[];
  /** How drives take reports; absent if the bundle says nothing about them. */
  readonly reports?: ReportPlace;
  /** The volumes of the tar, in order; undefined if it is one file. */
  readonly volumes?: readonly { readonly name: string; readonly size: number }[];
}

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
  return Buffer.from(`${JSON.stringify(whole.arrange(metadata), null, 2)}\n`);
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
  const fault = whole.findFault(value) ?? findContradiction(value);
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

/** The form of a value in metadata.json. */
interface Shape {
  readonly isValid: (value: unknown) => boolean;
  /** Returns a value with the known keys only, in the order in which `create` writes them. */
  readonly arrange: (value: unknown) => unknown;
  /** The paths of the single values in it, such as `[].digest`. `*` is any key. */
  readonly paths: readonly string[];
}

function single(isValid: (value: unknown) => boolean): Shape {
  return { isValid, arrange: (value) => value, paths: [''] };
}

/** `identify`: entries must differ in what it returns. */
function list(entry: Shape, identify?: (value: unknown) => unknown): Shape {
  return {
    isValid: (value) =>
      Array.isArray(value) &&
      value.every((each) => entry.isValid(each)) &&
      (!identify || new Set(value.map(identify)).size === value.length),
    arrange: (value) => (Array.isArray(value) ? value.map((each) => entry.arrange(each)) : value),
    paths: entry.paths.map((path) => `[]${path}`),
  };
}

function mapping(isKey: (key: unknown) => boolean, entry: Shape): Shape {
  return {
    isValid: (value) =>
      isFields(value) && Object.entries(value).every(([key, each]) => isKey(key) && entry.isValid(each)),
    arrange: (value) =>
      isFields(value)
        ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, entry.arrange(each)]))
        : value,
    paths: entry.paths.map((path) => `.*${path}`),
  };
}

/** `optional`: the fields that may be absent. */
function record<Key extends string>(
  fields: Readonly<Record<Key, Shape>>,
  optional: readonly Key[] = [],
): Shape & { findFault(value: Fields): string | undefined } {
  const all = Object.entries<Shape>(fields);
  const isPresent = (value: Fields, name: string): boolean =>
    value[name] !== undefined || !optional.some((each) => each === name);
  const findFault = (value: Fields): string | undefined =>
    all.find(([name, form]) => isPresent(value, name) && !form.isValid(value[name]))?.[0];
  return {
    findFault,
    isValid: (value) => isFields(value) && findFault(value) === undefined,
    arrange: (value) =>
      isFields(value)
        ? Object.fromEntries(
            all.filter(([name]) => value[name] !== undefined).map(([name, form]) => [name, form.arrange(value[name])]),
          )
        : value,
    paths: all.flatMap(([name, form]) => form.paths.map((path) => `.${name}${path}`)),
  };
}

const itself = (value: unknown): unknown => value;
// These texts become names of objects and parts of messages before anything is verified.
const version = single(matches(/^\d{1,5}\.\d{1,5}\.\d{1,6}(?:[-+][0-9A-Za-z][0-9A-Za-z.+-]{0,80})?$/));
const arch = single(matches(/^[a-z][a-z0-9_]{1,15}$/));
const isPullspec = matches(/^[0-9A-Za-z[][0-9A-Za-z._:[\]/-]{0,400}@sha256:[0-9a-f]{64}$/);
const pullspec = single(isPullspec);
const digest = single(matches(/^sha256:[0-9a-f]{64}$/));
const components = mapping(matches(/^[0-9A-Za-z][\w.-]{0,127}$/), pullspec);
// Texts of a bundle are printed on a terminal, so they must not have control characters.
const text = single((value) => typeof value === 'string' && value.length <= 1000 && !/\p{Cc}/u.test(value));
const size = single((value) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0);
const blob: Record<keyof BlobRecord, Shape> = { digest, size };
const blobs = list(record(blob), (each) => fieldsOf(each)['digest']);
const risks = list(record({ name: text, message: text, url: text } satisfies Record<keyof UpdateRisk, Shape>));
const signature: Record<keyof SignatureRecord, Shape> = { fingerprint: text, signer: text };
const volume: Record<keyof NonNullable<BundleMetadata['volumes']>[number], Shape> = {
  name: single((value) => text.isValid(value) && /^[^/]+\.tar\.\d{3}$/.test(String(value))),
  size,
};
const base: Record<keyof BundleBase, Shape> = {
  version,
  arch,
  release: pullspec,
  blobs,
  images: mapping(isPullspec, list(digest, itself)),
};
const reports: Record<keyof ReportPlace, Shape> = {
  space: single((value) => size.isValid(value) && Number(value) >= smallestReportSpace && Number(value) % 4096 === 0),
  key: single(matches(/^[0-9A-Za-z+/]{64,22000}={0,2}$/)),
};
const skipped: Record<keyof SkippedImage, Shape> = { image: text, operators: list(text, itself), catalog: text };
const release: Record<keyof BundledRelease, Shape> = {
  version,
  release: pullspec,
  components,
  osImages: list(pullspec),
  previous: list(version),
  risks,
  bytes: size,
};

/** The form of metadata.json, with its keys in the order in which `create` writes them. */
const fields: Record<keyof BundleMetadata, Shape> = {
  formatVersion: single((value) => value === 1 || value === 2),
  version,
  arch,
  release: pullspec,
  images: list(pullspec, itself),
  components,
  extraImages: list(pullspec, itself),
  osImages: list(pullspec),
  previous: list(version),
  signatures: mapping(digest.isValid, list(record(signature))),
  tool: text,
  risks,
  releases: list(record(release)),
  artifacts: list(pullspec, itself),
  skippedImages: list(record(skipped), (each) => fieldsOf(each)['image']),
  reports: record(reports, ['space', 'key']),
  base: record(base, ['images']),
  blobs,
  size,
  volumes: list(record(volume)),
};
const whole = record(fields, ['risks', 'releases', 'artifacts', 'skippedImages', 'reports', 'base', 'volumes']);

/** The paths of all values in metadata.json, such as `blobs[].digest`. docs/trust.md says what each one proves. */
export const metadataValues: readonly string[] = whole.paths.map((path) => path.slice(1));

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

function matches(pattern: RegExp): (value: unknown) => boolean {
  return (value) => typeof value === 'string' && pattern.test(value);
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

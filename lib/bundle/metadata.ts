import { isDeepStrictEqual } from 'node:util';
import { fieldsOf, isFields, listOf, textsOf } from '../fields.ts';
import { PluginError, messageOf } from '../errors.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { parseJson } from '../oci/syntax.ts';
import type { UpdateRisk } from '../release/graph/updateGraph.ts';

/** The name of the first entry of every bundle. */
export const metadataPath = 'metadata.json';

/** The largest metadata.json, in bytes. */
export const metadataSizeLimit = 4 * 1024 * 1024;

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
 * pullspecs are by digest, and all sizes in bytes. With several releases, the fields of a release are those of the last.
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
  /** The images that nodes boot from. */
  readonly osImages: readonly string[];
  /** The versions that can update to this one. */
  readonly previous: readonly string[];
  /** The size of the whole tar. */
  readonly size: number;
  /** The blobs in the tar. */
  readonly blobs: readonly BlobRecord[];
  /** The base of a delta bundle; undefined if the bundle has all blobs. */
  readonly base?: BundleBase | undefined;
  /** The good signatures of the release and, in a multi-architecture release, of its signed images, by digest. */
  readonly signatures: Readonly<Record<string, readonly SignatureRecord[]>>;
  readonly tool: string;
  /** The releases in the order of the updates; undefined if there is only one. */
  readonly releases?: readonly BundledRelease[] | undefined;
  /** The known risks of the update to it; absent if there are none, or several releases. */
  readonly risks?: readonly UpdateRisk[] | undefined;
  /** The volumes of the tar, in order; undefined if it is one file. */
  readonly volumes?: readonly { readonly name: string; readonly size: number }[] | undefined;
}

/**
 * Formats metadata.json. Its `size` is the size of the whole tar, which `tarSize` computes from the length of
 * metadata.json. `split` computes the volumes of a tar of that size.
 */
export function formatMetadata(
  metadata: Omit<BundleMetadata, 'size'>,
  tarSize: (length: number) => number,
  split: (size: number) => BundleMetadata['volumes'] = () => metadata.volumes,
): Buffer {
  let size = 0;
  for (;;) {
    const bytes = Buffer.from(`${JSON.stringify({ ...metadata, size, volumes: split(size) }, null, 2)}\n`);
    const actual = tarSize(bytes.length);
    // More digits or volumes may make metadata.json longer, and so the tar. The next round then settles.
    if (actual === size) return bytes;
    size = actual;
  }
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

/** Parses metadata.json. Throws `invalid-bundle` with the invalid field, and `too-large`. `where` is for messages. */
export function parseMetadata(bytes: Buffer, where: string): BundleMetadata {
  if (bytes.length > metadataSizeLimit) {
    const sizes = `${bytes.length} bytes, more than the limit of ${metadataSizeLimit}`;
    throw new PluginError('too-large', `metadata.json in ${where} has ${sizes}`);
  }
  let value: unknown;
  try {
    value = parseJson(bytes.toString());
  } catch (cause) {
    throw invalid(where, `is not JSON: ${messageOf(cause)}`, cause);
  }
  checkMetadata(value, where);
  return value;
}

function checkMetadata(value: unknown, where: string): asserts value is BundleMetadata {
  if (!isFields(value)) throw invalid(where, 'is not an object');
  const format = value['formatVersion'];
  if (format !== 1 && format !== 2) {
    const which =
      typeof format === 'number' && format > 0 && format < 100
        ? `formatVersion ${Math.floor(format)}`
        : 'no formatVersion';
    throw invalid(where, `has ${which}; this program reads 1 and 2`);
  }
  if ((format === 2) !== (value['releases'] !== undefined)) throw invalid(where, 'has malformed releases');
  if (!isText(value['tool'])) throw invalid(where, 'has no tool');
  const fault = findBadName(value);
  if (fault !== undefined) throw invalid(where, `has a malformed ${fault}`);
  if (!isSize(value['size'])) throw invalid(where, 'has a malformed size');
  if (!isList(value['blobs'], isBlob)) throw invalid(where, 'has malformed blobs');
  if (value['base'] !== undefined && !isBase(value['base'])) throw invalid(where, 'has a malformed base');
  if (value['volumes'] !== undefined && !isVolumes(value['volumes'])) throw invalid(where, 'has malformed volumes');
  if (
    !isFields(value['signatures']) ||
    !isList(Object.values(value['signatures']), (list) => isList(list, isSignature))
  ) {
    throw invalid(where, 'has malformed signatures');
  }
}

const version = /^\d{1,5}\.\d{1,5}\.\d{1,6}(?:[-+][0-9A-Za-z][0-9A-Za-z.+-]{0,80})?$/;
const pullspec = /^[0-9A-Za-z[][0-9A-Za-z._:[\]/-]{0,400}@sha256:[0-9a-f]{64}$/;
const component = /^[0-9A-Za-z][\w.-]{0,127}$/;
const releaseNames = { version, arch: /^[a-z][a-z0-9_]{1,15}$/, release: pullspec };

/**
 * Returns the field of some metadata with an invalid version, architecture, pullspec or component name; undefined if
 * all are valid. These texts become names of objects and parts of messages before anything is verified.
 */
function findBadName(value: Record<string, unknown>): string | undefined {
  const { components, base } = value;
  const lists = { previous: version, images: pullspec, extraImages: pullspec, osImages: pullspec };
  if (value['artifacts'] !== undefined && !isList(value['artifacts'], matches(pullspec))) return 'artifacts';
  const bad =
    Object.entries(releaseNames).find(([field, pattern]) => !matches(pattern)(value[field])) ??
    Object.entries(lists).find(([field, pattern]) => !isList(value[field], matches(pattern)));
  if (bad) return bad[0];
  if (!isComponents(components)) return 'components';
  if (value['risks'] !== undefined && !isList(value['risks'], isRisk)) return 'risks';
  if (value['releases'] !== undefined && !isReleases(value)) return 'releases';
  const isGood = (each: Record<string, unknown>): boolean =>
    Object.entries(releaseNames).every(([field, pattern]) => matches(pattern)(each[field]));
  return base === undefined || (isFields(base) && isGood(base)) ? undefined : 'base';
}

function isComponents(value: unknown): boolean {
  if (!isFields(value) || !isList(Object.keys(value), matches(component))) return false;
  return isList(Object.values(value), matches(pullspec));
}

/** The largest number of releases in a bundle. */
export const releaseLimit = 16;

/**
 * Returns whether the releases are well formed and distinct, the last one is the release of the other fields, and
 * `images` has the images of all of them.
 */
function isReleases(value: Record<string, unknown>): boolean {
  const { releases, extraImages, images } = value;
  if (!isList(releases, isRelease)) return false;
  const all = listOf(releases);
  if (all.length < 2 || all.length > releaseLimit) return false;
  const isDistinct = ['version', 'release'].every(
    (field) => new Set(all.map((each) => each[field])).size === all.length,
  );
  const fields = ['version', 'release', 'components', 'osImages', 'previous'];
  const last = all.at(-1) ?? {};
  const needed = all.flatMap(({ release, components }) => [release, ...Object.values(fieldsOf(components))]);
  const listed = new Set(textsOf(images));
  return (
    isDistinct &&
    fields.every((field) => isDeepStrictEqual(last[field], value[field])) &&
    isDeepStrictEqual(listed, new Set([...needed, ...textsOf(extraImages)]))
  );
}

function isRelease(value: unknown): boolean {
  if (!isFields(value)) return false;
  const lists = { previous: version, osImages: pullspec };
  return (
    matches(version)(value['version']) &&
    matches(pullspec)(value['release']) &&
    isComponents(value['components']) &&
    Object.entries(lists).every(([field, pattern]) => isList(value[field], matches(pattern))) &&
    isList(value['risks'], isRisk) &&
    isSize(value['bytes'])
  );
}

function isRisk(value: unknown): boolean {
  return isFields(value) && isText(value['name']) && isText(value['message']) && isText(value['url']);
}

function matches(pattern: RegExp): (text: unknown) => boolean {
  return (text) => typeof text === 'string' && pattern.test(text);
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-bundle', `metadata.json in ${where} ${why}`, { cause });
}

// Texts of a bundle are printed on a terminal, so they must not have control characters.
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= 1000 && !/\p{Cc}/u.test(value);
}

function isList(value: unknown, isEntry: (entry: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(isEntry);
}

function isSize(value: unknown): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function isBlob(value: unknown): boolean {
  return isFields(value) && typeof value['digest'] === 'string' && isDigest(value['digest']) && isSize(value['size']);
}

function isBase(value: unknown): boolean {
  if (!isFields(value) || !isList(value['blobs'], isBlob)) return false;
  const { images } = value;
  if (images === undefined) return true;
  if (!isFields(images) || !isList(Object.keys(images), matches(pullspec))) return false;
  return isList(Object.values(images), (blobs) => isList(blobs, matches(/^sha256:[0-9a-f]{64}$/)));
}

function isVolumes(value: unknown): boolean {
  return isList(value, isVolume) && listOf(value).length > 1;
}

function isVolume(value: unknown): boolean {
  return isFields(value) && isText(value['name']) && /^[^/]+\.tar\.\d{3}$/.test(value['name']) && isSize(value['size']);
}

function isSignature(value: unknown): boolean {
  return isFields(value) && isText(value['fingerprint']) && isText(value['signer']);
}

import { type Digest, formatReference, parseReference, type Reference, parseJson } from '#content/oci';
import { PluginError, messageOf } from '#errors';
import { parseVersion } from '../version.ts';
import type { PayloadFiles } from './payload.ts';

/** One image of a release. */
export interface ComponentImage {
  /** The name of the component: `etcd`. It is safe in tags and file names. */
  readonly name: string;
  readonly reference: Reference;
  /** The reference as text, by digest. */
  readonly pullspec: string;
  readonly digest: Digest;
}

// A component name becomes part of a tag and of file names, so it must not have separators or leading dots.
const componentName = /^[a-z0-9][a-z0-9._-]{0,127}$/;

/**
 * Reads the version and the images of a release from its `image-references`, an ImageStream of image.openshift.io/v1
 * whose tags name images by digest. Throws `invalid-release` with the invalid tag. `where` is for messages.
 */
export function readImageReferences(
  files: PayloadFiles,
  where: string,
): { version: string; images: ReadonlyMap<string, ComponentImage> } {
  const stream = parseObject(files, 'image-references', where);
  if (stream['kind'] !== 'ImageStream' || stream['apiVersion'] !== 'image.openshift.io/v1') {
    throw invalid(where, 'image-references is not an ImageStream of image.openshift.io/v1');
  }
  const name = objectOf(stream['metadata'])['name'];
  const tags = objectOf(stream['spec'])['tags'];
  if (!Array.isArray(tags) || tags.length === 0) throw invalid(where, 'image-references has no tags');
  const images = new Map<string, ComponentImage>();
  for (const tag of tags as unknown[]) {
    const image = readTag(objectOf(tag), where);
    if (images.has(image.name)) throw invalid(where, `image-references has the tag “${image.name}” twice`);
    images.set(image.name, image);
  }
  return { version: readVersion(name, where), images };
}

/**
 * The content of `release-metadata`: the versions that can update to the release, and whether it is multi-architecture.
 */
export interface ReleaseMetadata {
  readonly previous: readonly string[];
  readonly multi: boolean;
}

/** Reads `release-metadata`, which some payloads lack. Throws `invalid-release`. */
export function readReleaseMetadata(files: PayloadFiles, where: string): ReleaseMetadata {
  if (!files.has('release-metadata')) return { previous: [], multi: false };
  const { previous = [], metadata } = parseObject(files, 'release-metadata', where);
  if (!Array.isArray(previous) || !previous.every((version) => typeof version === 'string')) {
    throw invalid(where, 'release-metadata has previous versions that are not a list of texts');
  }
  return { previous, multi: objectOf(metadata)['release.openshift.io/architecture'] === 'multi' };
}

function readTag(tag: Record<string, unknown>, where: string): ComponentImage {
  const { name } = tag;
  const from = objectOf(tag['from']);
  const label = `the tag “${typeof name === 'string' ? name.slice(0, 100) : ''}” of image-references`;
  if (typeof name !== 'string' || !componentName.test(name))
    throw invalid(where, `${label} has a name that cannot be a component’s`);
  if (from['kind'] !== 'DockerImage' || typeof from['name'] !== 'string')
    throw invalid(where, `${label} is not an image`);
  try {
    const { registry, repository, digest } = parseReference(from['name']);
    if (digest === undefined) throw invalid(where, `${label} is not by digest: ${from['name']}`);
    const reference = { registry, repository, digest };
    return { name, reference, pullspec: formatReference(reference), digest };
  } catch (cause) {
    if (cause instanceof PluginError && cause.code === 'invalid-release') throw cause;
    throw invalid(where, `${label} is malformed: ${messageOf(cause)}`, cause);
  }
}

function readVersion(name: unknown, where: string): string {
  try {
    return parseVersion(String(name));
  } catch (cause) {
    throw invalid(where, `its name is not a version: ${messageOf(cause)}`, cause);
  }
}

function parseObject(files: PayloadFiles, name: string, where: string): Record<string, unknown> {
  try {
    return objectOf(parseJson(files.get(name)?.toString('utf8') ?? ''));
  } catch (cause) {
    throw invalid(where, `${name} is not JSON`, cause);
  }
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function invalid(where: string, what: string, cause?: unknown): PluginError {
  return new PluginError('invalid-release', `${where} is not a valid release payload: ${what}`, { cause });
}

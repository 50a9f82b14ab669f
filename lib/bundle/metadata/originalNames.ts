import type { RootFolder } from '#content/files';
import {
  isDigest,
  type Digest,
  formatReference,
  parseReference,
  parseRepository,
  type Reference,
  isTag,
  parseJson,
  attachedTo,
} from '#content/oci';
import type { Context } from '#context';
import { ignoring, asFailure, ignoreFailure, PluginError, nameSome } from '#errors';
import type { SignedRelease } from '#release/load';
import type { Bundle } from '../open/bundle.ts';
import { type BundleImage, listImages } from './images.ts';

/** The original name of an additional image, with its tag if it was named by tag. */
export type AdditionalImageName = Reference & { readonly digest: Digest };

/** The file of a mirror directory with the original names of the images that were added to its releases. */
export const additionalImagesPath = 'additional-images.json';

/**
 * The file of a mirror directory with the repositories that its releases came from, if they are not the default
 * repository.
 */
export const repositoriesPath = 'release-repositories.json';

const sizeLimit = 1024 * 1024;

/** Reads the original names of the additional images of a mirror directory. They are not signed. */
export function readAdditionalImages(folder: RootFolder): Promise<AdditionalImageName[]> {
  return readNames(folder, additionalImagesPath, [], (names) =>
    Array.isArray(names) ? names.flatMap((name) => parseName(String(name))) : [],
  );
}

/** Reads the repositories that the releases of a mirror directory came from, by digest. They are not signed. */
export function readReleaseRepositories(folder: RootFolder): Promise<ReadonlyMap<Digest, string>> {
  return readNames(folder, repositoriesPath, new Map<Digest, string>(), (names) => {
    const entries = Object.entries(names as object);
    return new Map(
      entries.flatMap(([digest, name]) =>
        isDigest(digest) ? [[digest, formatReference(parseRepository(String(name)))] as const] : [],
      ),
    );
  });
}

/** Formats the file that `readAdditionalImages` reads, each name once. */
export function formatAdditionalImages(images: readonly AdditionalImageName[]): string {
  return `${JSON.stringify([...new Set(images.map(formatReference))].sort(), null, 2)}\n`;
}

/** Formats the file that `readReleaseRepositories` reads. */
export function formatReleaseRepositories(repositories: ReadonlyMap<Digest, string>): string {
  const sorted = [...repositories].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`;
}

/** Reads a file of names. A missing or invalid file has no names, because they only describe. */
async function readNames<T>(folder: RootFolder, path: string, none: T, parse: (names: unknown) => T): Promise<T> {
  const bytes = await folder.read(path, sizeLimit).catch(ignoring('not-found'));
  if (!bytes) return none;
  try {
    return parse(parseJson(bytes.toString()));
  } catch {
    return none;
  }
}

function parseName(text: string): AdditionalImageName[] {
  const { digest, ...reference } = parseReference(text);
  return digest ? [{ ...reference, digest }] : [];
}

/**
 * Lists the images of each release of a bundle with their tags: the images of the signed payload, and the extra images
 * with the tags that `create` gives them.
 */
export function listSignedImages(
  { metadata }: Pick<Bundle, 'metadata'>,
  releases: readonly Pick<SignedRelease, 'release'>[],
): BundleImage[][] {
  const extras = metadata.extraImages.flatMap((name) => {
    const { registry, repository, digest } = parseReference(name);
    return digest ? [{ name, reference: { registry, repository, digest } }] : [];
  });
  return listImages(releases, extras);
}

/**
 * Returns the tags of the images of a bundle by the signed payloads, never by the tag files of the bundle. Skips a tag
 * whose image cannot be read, with a warning. Throws `invalid-bundle` for a tag file that names another image than the
 * payload.
 */
export async function readBundleTags(
  bundle: Bundle,
  releases: readonly SignedRelease[],
  context: Context,
): Promise<ReadonlyMap<string, Digest>> {
  const { content, path } = bundle;
  const expected = new Map<string, Digest>();
  for (const { tag, reference } of listSignedImages(bundle, releases).flat()) {
    if (!expected.has(tag)) expected.set(tag, reference.digest);
  }
  const files = new Set(await content.tags());
  const tags = new Map<string, Digest>();
  for (const [tag, digest] of expected) {
    const taggedDigest = files.has(tag) ? await resolveTag(content, tag) : undefined;
    if (taggedDigest !== undefined && taggedDigest !== digest) {
      throw new PluginError('invalid-bundle', `${path}: the tag ${tag} leads to ${taggedDigest} instead of ${digest}`);
    }
    const error = taggedDigest ? undefined : await findFault(content, digest);
    if (error) context.log('warn', `the tag ${tag} is left out: ${error.message}`);
    else tags.set(tag, digest);
  }
  const others = [...files].filter((tag) => isTag(tag) && !expected.has(tag) && !attachedTo(tag)).sort();
  if (others.length > 0) context.log('warn', `${nameSome(others)}: left out, because no signed release has such a tag`);
  return tags;
}

/** Returns the digest of a tag file; undefined if its image cannot be read. */
async function resolveTag(content: Bundle['content'], tag: string): Promise<Digest | undefined> {
  return (await content.resolve(tag).catch(ignoreFailure))?.digest;
}

async function findFault(content: Bundle['content'], digest: Digest): Promise<PluginError | undefined> {
  return content.resolve(digest).then(() => undefined, asFailure);
}

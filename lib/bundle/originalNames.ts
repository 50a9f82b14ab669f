import { ignoring } from '../errors.ts';
import type { RootFolder } from '../content/files/rootFolder.ts';
import { isDigest, type Digest } from '../content/oci/digest.ts';
import { formatReference, parseReference, parseRepository, type Reference } from '../content/oci/reference.ts';
import { parseJson } from '../content/oci/syntax.ts';

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

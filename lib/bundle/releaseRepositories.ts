import { isPluginError } from '../errors.ts';
import type { RootFolder } from '../files/rootFolder.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { formatReference, parseRepository } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';

/**
 * The file of a mirror directory with the repositories that its releases came from, if they are not the default
 * repository.
 */
export const repositoriesPath = 'release-repositories.json';

const sizeLimit = 1024 * 1024;

/** Reads the repositories that the releases of a mirror directory came from, by digest. They are not signed. */
export async function readReleaseRepositories(folder: RootFolder): Promise<ReadonlyMap<Digest, string>> {
  const bytes = await folder.read(repositoriesPath, sizeLimit).catch((error: unknown) => {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  });
  if (!bytes) return new Map();
  try {
    const entries = Object.entries(parseJson(bytes.toString()) as object);
    return new Map(
      entries.flatMap(([digest, name]) =>
        isDigest(digest) ? [[digest, formatReference(parseRepository(String(name)))] as const] : [],
      ),
    );
  } catch {
    return new Map();
  }
}

/** Formats the file that `readReleaseRepositories` reads. */
export function formatReleaseRepositories(repositories: ReadonlyMap<Digest, string>): string {
  const sorted = [...repositories].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`;
}

import { isPluginError } from '../errors.ts';
import type { RootFolder } from '../files/rootFolder.ts';
import type { Digest } from '../oci/digest.ts';
import { formatReference, parseReference, type Reference } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';

/** The original name of an additional image, with its tag if it was named by tag. */
export type AdditionalImageName = Reference & { readonly digest: Digest };

/** The file of a mirror directory with the original names of the images that were added to its releases. */
export const additionalImagesPath = 'additional-images.json';

const sizeLimit = 1024 * 1024;

/** Reads the original names of the additional images of a mirror directory. They are not signed. */
export async function readAdditionalImages(folder: RootFolder): Promise<AdditionalImageName[]> {
  const bytes = await folder.read(additionalImagesPath, sizeLimit).catch((error: unknown) => {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  });
  try {
    const names: unknown = parseJson(bytes?.toString() ?? '[]');
    return Array.isArray(names) ? names.flatMap((name) => parseName(String(name))) : [];
  } catch {
    return [];
  }
}

/** Formats the file that `readAdditionalImages` reads, each name once. */
export function formatAdditionalImages(images: readonly AdditionalImageName[]): string {
  return `${JSON.stringify([...new Set(images.map(formatReference))].sort(), null, 2)}\n`;
}

function parseName(text: string): AdditionalImageName[] {
  const { digest, ...reference } = parseReference(text);
  return digest ? [{ ...reference, digest }] : [];
}

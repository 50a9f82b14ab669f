import { fieldsAt, fieldsOf, listOf, textOf } from '../../fields.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import { readDocuments } from '../../content/files/documents.ts';
import { isByDigest, normalizeImage } from './image.ts';

/** The images of a release, by its `image-references`. */
export interface ReleaseImages {
  /** The name of the list: in a release, its version. */
  readonly version: string | undefined;
  /** Returns the component that has an image; undefined if none has. */
  componentOf(image: string): string | undefined;
}

/** The name of the file that lists the images of a release, or that an operator’s sources have for the release to fill in. */
export const imageReferences = 'image-references';

const limits = { length: 16 * 1024 * 1024, tokens: 60_000 };

/**
 * Reads the images of `image-references` files. In a release they are digests, in the sources of an operator the names that
 * the release replaces by digests. Files that cannot be read count as empty, because an operator may have several.
 */
export function readReleaseImages(texts: readonly string[], release?: string): ReleaseImages | undefined {
  const streams = texts.map(readStream);
  const components = new Map(streams.flatMap(readTags));
  if (components.size === 0) return undefined;
  if (release !== undefined) components.set(keyOf(release), 'release');
  return {
    version: textOf(fieldsAt(streams[0], 'metadata')['name']),
    componentOf: (image) => components.get(keyOf(image)),
  };
}

/** Mirrors keep the digest and change the repository. */
function keyOf(image: string): string {
  return isByDigest(image) ? image.slice(image.indexOf('@')) : normalizeImage(image);
}

function readTags(stream: unknown): [key: string, component: string][] {
  return listOf(fieldsAt(stream, 'spec')['tags']).flatMap(({ name, from }) => {
    const image = textOf(fieldsOf(from)['name']);
    return image === undefined ? [] : [[keyOf(image), String(name)]];
  });
}

function readStream(text: string): unknown {
  try {
    return text.trimStart().startsWith('{') ? parseJson(text) : readDocuments(text, limits).values[0];
  } catch {
    return undefined;
  }
}

import type { Digest } from '../content/oci/digest.ts';
import { releaseRepository } from '../content/store/directory.ts';
import { digestNamed, isTagFile } from '../content/store/directoryNames.ts';
import { metadataPath } from './metadata.ts';
import type { BundleFile, BundlePart } from './bundle.ts';

/** The kind of a file of a bundle, by its path. A file of kind `other` does not belong in a bundle. */
export type EntryKind =
  | { readonly kind: 'metadata' | 'config' | 'other' }
  | { readonly kind: 'manifest' | 'blob'; readonly digest: Digest }
  | { readonly kind: 'tag'; readonly name: string };

const inRepository = new RegExp(`^v2/${releaseRepository}/(manifests|blobs)/([^/]+)$`);

/**
 * Returns the kind of a file. A symbolic link is a tag or `other`, and a special file is `other`. A tag may be a copy of its manifest, because some
 * file systems have no links.
 */
export function entryKindOf({ path, target, isSpecial }: Omit<BundleFile, 'size'>): EntryKind {
  if (isSpecial) return { kind: 'other' };
  const [, folder, name = ''] = inRepository.exec(path) ?? [];
  if (target === undefined) {
    if (path === metadataPath) return { kind: 'metadata' };
    if (path.startsWith('config/')) return { kind: 'config' };
    const digest = digestNamed(name);
    if (folder !== undefined && digest) return { kind: folder === 'blobs' ? 'blob' : 'manifest', digest };
  }
  return folder === 'manifests' && isTagFile(name) ? { kind: 'tag', name } : { kind: 'other' };
}

/** Returns the name under which the reads of a part are compared: of headers, metadata.json and configuration. */
export function comparedName(part: BundlePart): string | undefined {
  if (typeof part === 'string') return part === 'header' ? part : undefined;
  return ['metadata', 'config'].includes(entryKindOf(part).kind) ? part.path : undefined;
}

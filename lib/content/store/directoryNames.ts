import { hexOf, isDigest, type Digest } from '../oci/digest.ts';
import { isTag } from '../oci/reference.ts';

/** The lock file of a mirror directory that this program writes to. */
export const directoryLock = '.mirror.lock';

/** Returns the digest in the name of a file in a mirror directory. The name has a colon, or a dash as on Windows. */
export function digestNamed(name: string): Digest | undefined {
  const digest = name.replace(/^sha256-/, 'sha256:');
  return isDigest(digest) ? digest : undefined;
}

/** Returns the name of the file of a digest. On Windows, a colon in a file name has another meaning, so oc writes a dash. */
export function fileNameOf(digest: Digest): string {
  return process.platform === 'win32' ? `sha256-${hexOf(digest)}` : digest;
}

/** Returns whether a tag can be the name of a file in a mirror directory, beside its unfinished files. */
export function isTagFile(name: string): boolean {
  return isTag(name) && !/\.(?:download|partial)$/.test(name);
}

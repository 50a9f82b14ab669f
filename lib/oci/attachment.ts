import { hexOf, isDigest, type Digest } from './digest.ts';

/**
 * Returns the tag of an image’s sigstore signature, in the image’s repository, as cosign names it: `sha256-<hex>.sig`.
 */
export function attachmentTag(subject: Digest): string {
  return `sha256-${hexOf(subject)}.sig`;
}

/** Returns the image to which a tag attaches a sigstore signature; undefined for any other tag. */
export function attachedTo(tag: string): Digest | undefined {
  const digest = tag.replace(/^sha256-(.*)\.sig$/, 'sha256:$1');
  return digest !== tag && isDigest(digest) ? digest : undefined;
}

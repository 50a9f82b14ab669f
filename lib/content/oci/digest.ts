import { createHash } from 'node:crypto';
import { PluginError } from '#errors';

/** A content digest in the form `sha256:<64 lower-case hex digits>` (OCI image-spec, descriptor.md). */
export type Digest = `sha256:${string}`;

const pattern = /^sha256:[0-9a-f]{64}$/;

/** Returns whether a text is a well-formed sha256 digest. */
export function isDigest(text: string): text is Digest {
  return pattern.test(text);
}

/** Parses a digest. Throws `invalid-reference` unless it is `sha256:` and 64 lower-case hex digits. */
export function parseDigest(text: string): Digest {
  if (!isDigest(text)) throw new PluginError('invalid-reference', `“${text.slice(0, 100)}” is not a sha256 digest`);
  return text;
}

/** Returns the digest of some bytes in memory. */
export function digestOf(bytes: Uint8Array | string): Digest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** Returns the hex digits of a digest, without `sha256:`. */
export function hexOf(digest: Digest): string {
  return digest.slice('sha256:'.length);
}

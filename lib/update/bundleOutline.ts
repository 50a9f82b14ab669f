import type { BundleOutline } from '../node/contentCheck.ts';
import { isDigest } from '../content/oci/digest.ts';

/** An outline in a record: the size of the bundle in bytes, and `<size>:<digest>` of what is before its first blob. */
export interface RecordedOutline {
  readonly size?: number;
  readonly head?: string;
}

/** Returns the fields for a record. */
export function formatOutline({ size, head }: BundleOutline): RecordedOutline {
  return { size, ...(head && { head: `${head.size}:${head.digest}` }) };
}

/** Reads the outline of a record; undefined if it has none, or an invalid one. */
export function parseOutline({ size, head }: { readonly size?: unknown; readonly head?: unknown } = {}):
  | BundleOutline
  | undefined {
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size <= 0) return undefined;
  if (typeof head !== 'string' || head === '') return { size };
  const [, bytes = '', digest = ''] = /^(\d{1,15}):(sha256:[0-9a-f]{64})$/.exec(head) ?? [];
  if (!isDigest(digest) || Number(bytes) > size) return undefined;
  return { size, head: { size: Number(bytes), digest } };
}

import { checkInterrupted, type Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import { sumSizes } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import type { BlobRecord } from '../metadata.ts';
import { baseHint, descriptorOf, listMissingBlobs } from '../deltaBase.ts';
import type { Bundle } from '../bundle.ts';
import { describeProblem, type Problem } from '../problem.ts';
import type { ScannedContent, ScannedItem } from './scan.ts';

/** Adds the blobs of the base to the scanned content of a delta bundle, without reading them. */
export function assumeBase({ metadata }: Bundle, scanned: ScannedContent): ScannedContent {
  const leftOut = metadata.base?.blobs ?? [];
  const assumed = leftOut.map(({ digest, size }): [Digest, ScannedItem] => [digest, { path: digest, size }]);
  return { ...scanned, blobs: new Map([...assumed, ...scanned.blobs]) };
}

/** The scanned content with that of the base, and the blobs that only the nodes of a site have. */
export interface CompletedScan {
  readonly scanned: ScannedContent;
  readonly heldBySite: readonly BlobRecord[];
}

/**
 * Reads and checks the blobs that a delta bundle lacks if a base has them, and adds them to the scanned content. Adds the
 * blobs that the nodes of its site have without reading them.
 */
export async function scanBase(bundle: Bundle, scanned: ScannedContent, context: Context): Promise<CompletedScan> {
  const { base } = bundle.metadata;
  if (!base) return { scanned, heldBySite: [] };
  const absent = await listMissingBlobs(bundle);
  const lacking = new Set(absent.map(({ digest }) => digest));
  const unscannedBlobs = base.blobs.filter(({ digest }) => !lacking.has(digest) && !scanned.blobs.has(digest));
  const bytes = sumSizes(unscannedBlobs);
  const total = scanned.bytes + bytes;
  context.onEvent({ kind: 'plan', images: 0, blobs: unscannedBlobs.length, bytes: total, present: 0 });
  const blobs = new Map(scanned.blobs);
  for (const blob of unscannedBlobs) {
    checkInterrupted(context.signal);
    let size = 0;
    try {
      for await (const chunk of await bundle.content.fetch(descriptorOf(blob))) {
        size += (chunk as Buffer).length;
        context.onEvent({ kind: 'bytes', digest: blob.digest, bytes: (chunk as Buffer).length });
      }
      blobs.set(blob.digest, { path: blob.digest, size });
    } catch (error) {
      if (!isPluginError(error) || !['digest-mismatch', 'size-mismatch'].includes(error.code)) throw error;
      blobs.set(blob.digest, { path: blob.digest, size, fault: 'corrupt' });
    }
  }
  const heldBySite = base.images ? absent : [];
  for (const { digest, size } of heldBySite) blobs.set(digest, { path: digest, size });
  return { scanned: { ...scanned, bytes: scanned.bytes + bytes, blobs }, heldBySite };
}

/** Adds the base to a problem of a blob that a delta bundle lacks. */
export function explainByBase({ metadata }: Bundle, problem: Problem): Problem {
  const { subject, what, kind, images } = problem;
  if (subject !== 'blob' || !metadata.base?.blobs.some(({ digest }) => digest === what)) return problem;
  const words = `the blob ${what} is ${kind === 'missing' ? 'missing' : 'corrupt'} in the base ${metadata.base.version}`;
  return { ...describeProblem(kind, subject, what, words, baseHint(metadata)), images };
}

import { childrenOf, isManifest } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import type { ReadManifest } from './repository.ts';

/** Returns the blobs that manifests name, with their sizes in bytes. */
export function blobsIn(manifests: Iterable<ReadManifest>): Map<Digest, number> {
  const blobs = [...manifests].flatMap(({ manifest }) => childrenOf(manifest).filter((child) => !isManifest(child)));
  return new Map(blobs.map(({ digest, size }) => [digest, size]));
}

import { makeLayer } from '../../archive/layer.ts';
import { hexOf, type Digest } from '../../oci/digest.ts';
import type { Layer } from '../../store/derivedImage.ts';
import type { GraphData } from './graphArchive.ts';

/** Release signatures by the digests of the releases. */
export type ReleaseSignatures = ReadonlyMap<Digest, readonly Uint8Array[]>;

/** The folder of the data in a graph-data image, from the root. */
export const graphDataFolder = 'var/lib/cincinnati-graph-data';

/**
 * Returns the layer of graph data, with release signatures as `signatures/sha256/<hex>/signature-N`, where the update
 * service (cincinnati, metadata-helper) looks for them.
 */
export function makeGraphLayer(data: GraphData, signatures: ReleaseSignatures): Layer {
  const files = [...addSignatures(data, signatures)];
  return makeLayer(new Map(files.map(([path, content]) => [`${graphDataFolder}/${path}`, content])));
}

/** Adds signatures to the signatures of the data, each once. */
function addSignatures(data: GraphData, signatures: ReleaseSignatures): GraphData {
  const files = new Map(data);
  for (const [digest, list] of signatures) {
    const prefix = `signatures/sha256/${hexOf(digest)}/signature-`;
    let number = 1;
    for (const signature of list) {
      const bytes = Buffer.from(signature);
      const taken = (): Buffer | undefined => files.get(`${prefix}${number}`);
      while (taken() && !taken()?.equals(bytes)) number += 1;
      files.set(`${prefix}${number}`, bytes);
    }
  }
  return files;
}

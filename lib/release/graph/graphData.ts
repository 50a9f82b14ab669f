import type { Context } from '../../context.ts';
import { deriveImage, type BaseImage, type DerivedImage, type Layer } from '../../content/store/derivedImage.ts';
import { fetchGraphData, readGraphData, type GraphData } from './graphArchive.ts';
import type { FetchFile } from '../../content/http/fetchFile.ts';
import { makeLayer } from '../../content/archive/layer.ts';
import { hexOf, type Digest } from '../../content/oci/digest.ts';

/** The content of a graph-data image. */
export interface GraphDataOptions {
  /** The graph-data archive: its bytes, a path, or a file or http(s) URL. */
  readonly archive: Buffer | string;
  /** Release signatures that the update service serves, by the digests of the releases. */
  readonly signatures: ReleaseSignatures;
  /**
   * The base of the image: an image or a manifest list, with `/bin/bash` and `cp`, because the update service runs it
   * to copy the data. The `cli` image of a release is always available.
   */
  readonly base: BaseImage;
  readonly fetchFile: FetchFile;
}

/** The folder of the data in a graph-data image, from the root. */
const graphDataFolder = 'var/lib/cincinnati-graph-data';

// The operator mounts here the volume that the update service reads (cincinnati-operator,
// `newGraphDataInitContainer`).
const command = ['/bin/bash', '-c', `exec cp -rp /${graphDataFolder}/* /var/lib/cincinnati/graph-data`];

/**
 * Builds the image with the graph data for an update service in a cluster, and release signatures as
 * `signatures/sha256/<hex>/signature-N`. It is one layer on the base, for each architecture of the base. The same
 * inputs give the same bytes on every machine. Throws the errors of `fetchGraphData` and `readGraphData`,
 * `invalid-manifest` for an unusable base, and the errors of its source.
 */
export async function buildGraphDataImage(options: GraphDataOptions, context: Context): Promise<DerivedImage> {
  const { archive, signatures, base, fetchFile } = options;
  const { bytes, where } =
    typeof archive === 'string'
      ? await fetchGraphData(archive, fetchFile)
      : { bytes: archive, where: 'the given archive' };
  const data = await readGraphData(bytes, where, (message) => context.log('warn', message));
  const layer = makeGraphLayer(data, signatures);
  context.log('debug', `graph data: ${data.size} files, a layer of ${layer.bytes.length} bytes`);
  return deriveImage(base, {
    what: 'the graph-data image',
    layer,
    createdBy: 'graph data',
    // No entrypoint of the base: it would get the command as its arguments.
    configure: ({ Env = [] }) => ({ Env, Cmd: command }),
    hint: 'Build it on an image for linux that has bash and cp, such as the cli image of a release.',
  });
}

type ReleaseSignatures = ReadonlyMap<Digest, readonly Uint8Array[]>;

/**
 * Returns the layer of graph data, with release signatures as `signatures/sha256/<hex>/signature-N`, where the update
 * service (cincinnati, metadata-helper) looks for them.
 */
function makeGraphLayer(data: GraphData, signatures: ReleaseSignatures): Layer {
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

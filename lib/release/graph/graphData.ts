import type { Context } from '../../context.ts';
import { deriveImage, type BaseImage, type DerivedImage } from '../../store/derivedImage.ts';
import { fetchGraphData, readGraphData } from './graphArchive.ts';
import { graphDataFolder, makeGraphLayer, type ReleaseSignatures } from './graphLayer.ts';
import type { FetchFile } from '../../http/fetchFile.ts';

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

import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { isIndex, mediaTypes, parseManifest, type Descriptor, type Manifest } from '../../oci/descriptor.ts';
import { parseJson } from '../../oci/syntax.ts';
import { readContent, type ContentSource } from '../../store/store.ts';
import { fetchGraphData, readGraphData } from './graphArchive.ts';
import { graphDataFolder, makeLayer, type Layer, type ReleaseSignatures } from './graphLayer.ts';
import { Overlay } from './overlay.ts';
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
  readonly base: { readonly source: ContentSource; readonly root: Descriptor };
  readonly fetchFile: FetchFile;
}

/** An image to copy. Its new content is in memory, and the rest is in its base. */
export interface GraphDataImage {
  readonly root: Descriptor;
  readonly source: ContentSource;
}

// The operator mounts here the volume that the update service reads (cincinnati-operator,
// `newGraphDataInitContainer`).
const command = ['/bin/bash', '-c', `exec cp -rp /${graphDataFolder}/* /var/lib/cincinnati/graph-data`];

// A constant, as in the tar of a bundle: the same inputs give the same image.
const created = '1980-01-01T00:00:00Z';

/**
 * Builds the image with the graph data for an update service in a cluster, and release signatures as
 * `signatures/sha256/<hex>/signature-N`. It is one layer on the base, for each architecture of the base. The same
 * inputs give the same bytes on every machine. Throws the errors of `fetchGraphData` and `readGraphData`,
 * `invalid-manifest` for an unusable base, and the errors of its source.
 */
export async function buildGraphDataImage(options: GraphDataOptions, context: Context): Promise<GraphDataImage> {
  const { archive, signatures, base, fetchFile } = options;
  const { bytes, where } =
    typeof archive === 'string'
      ? await fetchGraphData(archive, fetchFile)
      : { bytes: archive, where: 'the given archive' };
  const data = await readGraphData(bytes, where, (message) => context.log('warn', message));
  const layer = makeLayer(data, signatures);
  context.log('debug', `graph data: ${data.size} files, a layer of ${layer.bytes.length} bytes`);
  const source = new Overlay(`graph data on ${base.source.name}`, base.source);
  return { root: await build(base.source, base.root, layer, source), source };
}

async function build(base: ContentSource, root: Descriptor, layer: Layer, overlay: Overlay): Promise<Descriptor> {
  const where = `${root.digest} in ${base.name}`;
  const manifest = parseManifest(await readContent(base, root), where);
  if (!isIndex(manifest)) return buildImage(base, manifest, layer, overlay, where);
  const manifests: Descriptor[] = [];
  for (const child of manifest.manifests) {
    // Other manifests are attestations about the images of the base.
    if (isIndex(child) || child.platform?.os !== 'linux') continue;
    manifests.push({ ...(await build(base, child, layer, overlay)), platform: child.platform });
  }
  if (manifests.length === 0) throw unusable(where, 'it is a list without an image for linux');
  return addJson(overlay, manifest.mediaType, { schemaVersion: 2, mediaType: manifest.mediaType, manifests });
}

async function buildImage(
  base: ContentSource,
  manifest: Manifest,
  layer: Layer,
  overlay: Overlay,
  where: string,
): Promise<Descriptor> {
  if (!manifest.config) throw unusable(where, 'it has no configuration');
  const config = parseConfig(await readContent(base, manifest.config), where);
  if (config.diffIds.length !== manifest.layers.length || manifest.layers.length === 0) {
    throw unusable(where, 'its configuration does not match its layers');
  }
  const isDocker = manifest.mediaType === mediaTypes.dockerManifest;
  const added = overlay.add(
    isDocker ? 'application/vnd.docker.image.rootfs.diff.tar.gzip' : 'application/vnd.oci.image.layer.v1.tar+gzip',
    layer.bytes,
  );
  const { platform, env, history } = config;
  return addJson(overlay, manifest.mediaType, {
    schemaVersion: 2,
    mediaType: manifest.mediaType,
    config: addJson(overlay, manifest.config.mediaType, {
      ...platform,
      created,
      // Without the entrypoint of the base, which would get the command as its arguments.
      config: { Env: env, Cmd: command },
      rootfs: { type: 'layers', diff_ids: [...config.diffIds, layer.diffId] },
      ...(history && { history: [...history, { created, created_by: 'graph data' }] }),
    }),
    layers: [...manifest.layers, added],
  });
}

interface BaseConfig {
  readonly platform: Readonly<Record<string, unknown>>;
  readonly env: unknown;
  readonly diffIds: readonly unknown[];
  readonly history: readonly unknown[] | undefined;
}

function parseConfig(bytes: Buffer, where: string): BaseConfig {
  let value: Record<string, unknown>;
  try {
    value = (parseJson(bytes.toString('utf8')) ?? {}) as Record<string, unknown>;
  } catch (cause) {
    throw unusable(where, 'its configuration is not JSON', cause);
  }
  const { architecture, os, variant, config, rootfs, history } = value;
  if (typeof architecture !== 'string' || os !== 'linux') throw unusable(where, 'it is not for linux');
  const diffIds = (rootfs as { diff_ids?: unknown } | undefined)?.diff_ids;
  return {
    platform: { architecture, os, ...(variant !== undefined && { variant }) },
    env: (config as { Env?: unknown } | null | undefined)?.Env ?? [],
    diffIds: Array.isArray(diffIds) ? (diffIds as unknown[]) : [],
    history: Array.isArray(history) ? (history as unknown[]) : undefined,
  };
}

function addJson(overlay: Overlay, mediaType: string, value: object): Descriptor {
  return overlay.add(mediaType, Buffer.from(JSON.stringify(value)));
}

function unusable(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-manifest', `the graph-data image cannot be built on ${where}: ${why}`, {
    hint: 'Build it on an image for linux that has bash and cp, such as the cli image of a release.',
    cause,
  });
}

import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';

/** The digests of an image's parts. */
export interface SmallImage {
  manifest: Digest;
  layer: Digest;
  config: Digest;
}

/** Adds an image with one random layer of 1000 bytes to a repository under a tag. Only its digests are useful. */
export function putImage(content: RegistryContent, name: string, tag: string): SmallImage {
  const unpacked = randomBytes(1000);
  const layer = gzipSync(unpacked);
  const config = Buffer.from(
    JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { type: 'layers', diff_ids: [digestOf(unpacked)] } }),
  );
  for (const blob of [layer, config]) content.blobs.set(digestOf(blob), blob);
  const bytes = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(config), size: config.length },
      layers: [
        { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: digestOf(layer), size: layer.length },
      ],
    }),
  );
  const manifest = digestOf(bytes);
  repositoryOf(content, name).manifests.set(manifest, { mediaType: mediaTypes.ociManifest, bytes });
  repositoryOf(content, name).tags.set(tag, manifest);
  return { manifest, layer: digestOf(layer), config: digestOf(config) };
}

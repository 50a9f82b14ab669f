import { Readable } from 'node:stream';
import { mediaTypes, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Overlay } from '../../../lib/content/store/derivedImage.ts';
import { emptyContent, repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';
import { created, makeBlob, type TestBlob, type TestLayer } from './layers.ts';

/** Docker schema 2, as in OpenShift's own payloads, or OCI. */
export type ImageFormat = 'docker' | 'oci';

/** The content of an image, lowest layer first. `architecture` is Go's name (amd64, arm64, …). */
export interface ImageOptions {
  readonly architecture: string;
  readonly layers: readonly TestLayer[];
  readonly labels?: Readonly<Record<string, string>>;
  /** Variables in addition to PATH: `NAME=value`. */
  readonly env?: readonly string[];
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  readonly user?: string;
  readonly format?: ImageFormat;
}

const blobTypes = {
  docker: {
    config: 'application/vnd.docker.container.image.v1+json',
    layer: 'application/vnd.docker.image.rootfs.diff.tar.gzip',
  },
  oci: { config: 'application/vnd.oci.image.config.v1+json', layer: 'application/vnd.oci.image.layer.v1.tar+gzip' },
};

/** Repositories with their manifests, tags and blobs. Tests add content. */
export class TestContent {
  /** The content for a test registry. */
  readonly content: RegistryContent = emptyContent();
  readonly blobs = new Map<Digest, TestBlob>();

  addBlob(blob: TestBlob): void {
    const { digest, size, lazy = false } = blob;
    if (this.blobs.has(digest)) return;
    this.blobs.set(digest, blob);
    const open = (start: number): Readable => Readable.from([blob.read().subarray(start)]);
    this.content.blobs.set(digest, lazy ? { size, open } : blob.read());
  }

  /** Adds a manifest or a manifest list, from an object that becomes its JSON. */
  addManifest(repository: string, mediaType: string, manifest: object, tag?: string): Descriptor {
    const bytes = Buffer.from(JSON.stringify(manifest, null, 3));
    const digest = digestOf(bytes);
    const into = repositoryOf(this.content, repository);
    into.manifests.set(digest, { mediaType, bytes });
    if (tag !== undefined) into.tags.set(tag, digest);
    return { mediaType, digest, size: bytes.length };
  }

  /** Adds an image: its layers, its configuration and its manifest. */
  addImage(repository: string, options: ImageOptions, tag?: string): Descriptor {
    const {
      architecture,
      layers,
      format = 'docker',
      entrypoint = ['/usr/bin/test'],
      command,
      user,
      labels = {},
      env = [],
    } = options;
    const types = blobTypes[format];
    const config = makeBlob(
      Buffer.from(
        JSON.stringify({
          architecture,
          os: 'linux',
          created,
          config: {
            Env: ['PATH=/usr/bin:/bin', ...env],
            Entrypoint: entrypoint,
            Cmd: command,
            User: user,
            Labels: labels,
          },
          rootfs: { type: 'layers', diff_ids: layers.map((layer) => layer.diffId) },
          history: layers.map(() => ({ created, created_by: '/bin/sh -c test' })),
        }),
      ),
    );
    this.addBlob(config);
    for (const layer of layers) this.addBlob(layer);
    const mediaType = format === 'docker' ? mediaTypes.dockerManifest : mediaTypes.ociManifest;
    const descriptor = this.addManifest(
      repository,
      mediaType,
      {
        schemaVersion: 2,
        mediaType,
        config: { mediaType: types.config, size: config.size, digest: config.digest },
        layers: layers.map(({ size, digest }) => ({ mediaType: types.layer, size, digest })),
      },
      tag,
    );
    return { ...descriptor, platform: { architecture, os: 'linux' } };
  }

  /** Adds a manifest list of existing images. Their descriptors have their platforms. */
  addList(repository: string, images: readonly Descriptor[], format: ImageFormat = 'docker', tag?: string): Descriptor {
    const mediaType = format === 'docker' ? mediaTypes.dockerList : mediaTypes.ociIndex;
    return this.addManifest(repository, mediaType, { schemaVersion: 2, mediaType, manifests: images }, tag);
  }

  /** Returns a source in memory with everything of a repository. Its tags are not in it. */
  sourceOf(repository: string): Overlay {
    const manifests = [...repositoryOf(this.content, repository).manifests].map(
      ([digest, { bytes }]) => [digest as Digest, bytes] as const,
    );
    const blobs = [...this.blobs].map(([digest, blob]) => [digest, blob.read()] as const);
    return new Overlay(`quay.io/${repository}`, undefined, new Map([...blobs, ...manifests]));
  }

  /** Adds everything to the content of a test registry. */
  addTo(content: RegistryContent): void {
    for (const [digest, body] of this.content.blobs) content.blobs.set(digest, body);
    for (const [name, { manifests, tags }] of this.content.repositories) {
      const into = repositoryOf(content, name);
      for (const [digest, manifest] of manifests) into.manifests.set(digest, manifest);
      for (const [tag, digest] of tags) into.tags.set(tag, digest);
    }
  }
}

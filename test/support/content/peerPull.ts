import { createHash } from 'node:crypto';
import { RegistryClientV2 } from 'oci-registry-client';
import type { TestContent } from './image.ts';

/** The sizes of manifests and blobs in bytes, by the SHA-256 of their bytes. */
export type Sizes = Readonly<Record<string, number>>;

/**
 * Pulls images with their indexes, configurations and layers from a repository (`http://127.0.0.1:5000/site/release`)
 * by the client of oci-registry-client, over its own HTTP. Follows what each manifest names. The client compares no
 * bytes with a digest, so this hashes what arrives.
 */
export async function pullByPeer(repository: string, digests: Iterable<string>): Promise<Sizes> {
  const client = new RegistryClientV2({ name: repository, acceptManifestLists: true, acceptOCIManifests: true });
  const pulled: Record<string, number> = {};
  const requested = new Set<string>();
  const pullBlob = async (digest: string): Promise<void> => {
    if (requested.has(digest)) return;
    requested.add(digest);
    const { stream } = await client.createBlobReadStream({ digest });
    const hash = createHash('sha256');
    let size = 0;
    for await (const chunk of stream) {
      const bytes = Buffer.from(chunk);
      hash.update(bytes);
      size += bytes.length;
    }
    pulled[`sha256:${hash.digest('hex')}`] = size;
  };
  const pullImage = async (digest: string): Promise<void> => {
    if (requested.has(digest)) return;
    requested.add(digest);
    const { resp, manifest } = await client.getManifest({ ref: digest });
    const bytes = await resp.dockerBody();
    pulled[`sha256:${createHash('sha256').update(bytes).digest('hex')}`] = bytes.length;
    if ('manifests' in manifest) for (const child of manifest.manifests) await pullImage(child.digest);
    else for (const blob of [manifest.config, ...manifest.layers]) await pullBlob(blob.digest);
  };
  for (const digest of digests) await pullImage(digest);
  return pulled;
}

/** Lists all manifests and blobs of a release, or of other test content. */
export function sizesOf({ content, blobs }: Pick<TestContent, 'content' | 'blobs'>): Sizes {
  const manifests = [...content.repositories.values()].flatMap((repository) => [...repository.manifests]);
  return Object.fromEntries<number>([
    ...manifests.map(([digest, { bytes }]) => [digest, bytes.length] as const),
    ...[...blobs.values()].map(({ digest, size }) => [digest, size] as const),
  ]);
}

/** Lists the digests of the manifests in repositories of test content; in all of them by default. */
export function manifestsOf({ content }: Pick<TestContent, 'content'>, repository?: string): string[] {
  return [...content.repositories]
    .filter(([name]) => repository === undefined || name === repository)
    .flatMap(([, { manifests }]) => [...manifests.keys()]);
}

// Serves a release of a given size with a real registry, and sends its location to the parent process.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { childrenOf, isManifest, parseManifest } from '../../lib/content/oci/descriptor.ts';
import { pushRelease } from '../support/content/push.ts';
import { startDockerRegistry } from '../support/dockerRegistry.ts';
import { buildRelease, pullspecsOf } from '../support/release/release.ts';
import { makeSigningKey, signatureStore, signDigest, writeSignatureStore } from '../support/release/signing.ts';

/** The location and the content of the release. */
export interface BenchRegistry {
  readonly host: string;
  readonly repository: string;
  readonly fingerprint: string;
  readonly keyring: string;
  readonly store: string;
  /** The URLs of all blobs. */
  readonly urls: readonly string[];
  readonly pullspecs: readonly string[];
  /** The sigstore signatures of the images, by tag. */
  readonly attachments: readonly string[];
  readonly bytes: number;
}

const [folder = '', images = '60', megabytes = '1500'] = process.argv.slice(2);
const layers = 2;
const storage = join(folder, 'registry');
await mkdir(storage);
const registry = await startDockerRegistry({ storage });
const key = await makeSigningKey({ name: 'Benchmark' });
const release = buildRelease({
  version: '4.20.3',
  components: Array.from({ length: Number(images) - 1 }, (_, index) => `component-${index}`),
  layers,
  layerSize: Math.floor((Number(megabytes) * 1e6) / (Number(images) * layers)),
  registry: registry.host,
  lazy: true,
  verification: { publicKey: key.publicKey, stores: [] },
});
await pushRelease(release, registry.url);
const store = join(folder, 'signatures');
const keyring = join(folder, 'key.asc');
await writeSignatureStore(store, signatureStore(new Map([[release.digest, [await signDigest(key, release.digest)]]])));
await writeFile(keyring, key.publicKey);

const urls = new Map<string, string>();
for (const [name, { manifests }] of release.content.repositories) {
  for (const { bytes } of manifests.values()) {
    for (const { digest, mediaType } of childrenOf(parseManifest(bytes, name))) {
      if (!isManifest({ mediaType })) urls.set(digest, `${registry.url}/v2/${name}/blobs/${digest}`);
    }
  }
}

const parent = process.send?.bind(process);
parent?.({
  host: registry.host,
  repository: release.releaseRepository,
  fingerprint: key.fingerprint,
  keyring,
  store,
  urls: [...urls.values()],
  pullspecs: pullspecsOf(release),
  attachments: [...release.content.repositories].flatMap(([name, { tags }]) =>
    [...tags.keys()].filter((tag) => tag.endsWith('.sig')).map((tag) => `${registry.host}/${name}:${tag}`),
  ),
  bytes: [...release.blobs.values()].reduce((sum, { size }) => sum + size, 0),
} satisfies BenchRegistry);
process.once('SIGTERM', () => void registry.stop().then(() => process.exit(0)));

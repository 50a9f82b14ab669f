import { join } from 'node:path';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { createRegistryBundle } from '../../../lib/registry-host/releases/registryBundle.ts';
import { TestContent } from '../../support/content/image.ts';
import { openProvider } from '../../support/content/provider.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { makeContext } from '../../support/context.ts';
import { TestRegistry } from '../registry/registry.ts';

/** A bundle by its path, the name of its Quay image, and another bundle with other images of the same names. */
export interface TestRegistryBundle {
  readonly path: string;
  readonly quay: string;
  readonly respun: string;
}

/** A registry with images of 2.0.11, by the names of their components. */
export interface ReleaseImages extends AsyncDisposable {
  readonly server: TestRegistry;
  readonly images: Readonly<Record<'quay' | 'redis' | 'pause', string>>;
  /** Puts other images under the same names, and returns the digest of the one of Quay. */
  renew(): Digest;
}

/** Starts a registry with small images in the repositories of a release. */
export async function serveReleaseImages(): Promise<ReleaseImages> {
  const { content } = new TestContent();
  const server = new TestRegistry({ content });
  await server.start();
  const names = [
    ['quay/quay-rhel8', 'v3.12.18'],
    ['rhel8/redis-6', '1-1766406130'],
    ['ubi8/pause', '8.10-5'],
  ] as const;
  const [quay = '', redis = '', pause = ''] = names.map((name) => `${server.host}/${name.join(':')}`);
  const renew = (): Digest => {
    const [first] = names.map(([repository, tag]) => putImage(content, repository, tag).manifest);
    return first ?? digestOf('');
  };
  renew();
  return { server, images: { quay, redis, pause }, renew, [Symbol.asyncDispose]: () => server.stop() };
}

/** Creates two bundles of 2.0.11 from small images. */
export async function makeRegistryBundle(folder: string): Promise<TestRegistryBundle> {
  // A host without a network has no other registry than its own.
  await using source = await serveReleaseImages();
  const { images } = source;
  const context = makeContext();
  const make = async (output: string): Promise<string> => {
    source.renew();
    // One origin requests a tag only once.
    await using origin = openProvider(context);
    const request = { version: '2.0.11', arch: 'x86_64', images, output, tool: 'test' } as const;
    return (await createRegistryBundle(request, origin, context)).path;
  };
  return { path: await make(folder), quay: images.quay, respun: await make(join(folder, 'respun')) };
}

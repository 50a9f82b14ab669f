import { join } from 'node:path';
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

/** Creates two bundles of 2.0.11 from small images. */
export async function makeRegistryBundle(folder: string): Promise<TestRegistryBundle> {
  const { content } = new TestContent();
  const source = new TestRegistry({ content });
  await source.start();
  const images = {
    quay: `${source.host}/quay/quay-rhel8:v3.12.18`,
    redis: `${source.host}/rhel8/redis-6:1-1766406130`,
    pause: `${source.host}/ubi8/pause:8.10-5`,
  };
  const context = makeContext();
  const make = async (output: string): Promise<string> => {
    for (const image of Object.values(images)) {
      const [, name = '', tag = ''] = /^[^/]+\/(.*):([^:]+)$/.exec(image) ?? [];
      putImage(content, name, tag);
    }
    // One origin requests a tag only once.
    const origin = openProvider(context);
    const request = { version: '2.0.11', arch: 'x86_64', images, output, tool: 'test' } as const;
    const { path } = await createRegistryBundle(request, origin, context);
    await origin[Symbol.asyncDispose]();
    return path;
  };
  try {
    return { path: await make(folder), quay: images.quay, respun: await make(join(folder, 'respun')) };
  } finally {
    // A host without a network has no other registry than its own.
    await source.stop();
  }
}

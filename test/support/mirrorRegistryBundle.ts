import { createRegistryBundle } from '../../lib/host/registryBundle.ts';
import { makeContext } from './context.ts';
import { TestContent } from './image.ts';
import { openOrigin } from './origin.ts';
import { TestRegistry } from './registry.ts';
import { putImage } from './smallImage.ts';

/** Makes a bundle with a 2.0.11 out of small images. Its path, and what its Quay is called. */
export async function makeRegistryBundle(folder: string): Promise<{ path: string; quay: string }> {
  const { content } = new TestContent();
  for (const [name, tag] of [
    ['quay/quay-rhel8', 'v3.12.18'],
    ['rhel8/redis-6', '1-1766406130'],
    ['ubi8/pause', '8.10-5'],
  ] as const) {
    putImage(content, name, tag);
  }
  const source = new TestRegistry({ content });
  await source.start();
  const images = {
    quay: `${source.host}/quay/quay-rhel8:v3.12.18`,
    redis: `${source.host}/rhel8/redis-6:1-1766406130`,
    pause: `${source.host}/ubi8/pause:8.10-5`,
  };
  const context = makeContext();
  const origin = await openOrigin(context);
  try {
    const request = { version: '2.0.11', arch: 'x86_64', images, output: folder, tool: 'test' } as const;
    const { path } = await createRegistryBundle(request, origin, context);
    return { path, quay: images.quay };
  } finally {
    await origin.close();
    // A host without a network has no registry but its own.
    await source.stop();
  }
}

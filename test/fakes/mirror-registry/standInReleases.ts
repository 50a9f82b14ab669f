import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createRegistryBundle } from '../../../lib/registry-host/releases/registryBundle.ts';
import { TestContent } from '../../support/content/image.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { TestRegistry } from '../registry/registry.ts';
import { imagesOf } from './mirrorRegistryUnits.ts';
import { makeStandInLayer, standInEntrypoint } from './standInImage.ts';

type Images = Readonly<Record<'quay' | 'redis' | 'pause', string>>;

/** The images of two releases, and a bundle of the newer one. */
export interface StandInReleases {
  /** Release 2.0.7, under its own names. */
  readonly old: Images;
  /** Release 2.0.11. Its bundle has these names. */
  readonly fresh: Images;
  readonly bundle: string;
}

/** Makes images that stand in for two releases. Calls `load` with an archive of each image of the old one. */
export async function makeStandInReleases(
  folder: string,
  load: (archive: string) => Promise<unknown>,
): Promise<StandInReleases> {
  const source = new TestRegistry({ content: (await publish()).content });
  await source.start();
  const origin = openProvider(makeContext());
  try {
    const { quay, redis, pause } = imagesOf('2.0.7');
    const old = { quay, redis, pause };
    const fresh = {
      quay: `${source.host}/quay/quay-rhel8:v3.12.18`,
      redis: `${source.host}/rhel8/redis-6:1-1766406130`,
      pause: `${source.host}/ubi8/pause:8.10-6`,
    };
    for (const image of [quay, redis, pause]) {
      const archive = join(folder, 'old.tar');
      const from = ['--src-tls-verify=false', `docker://${source.host}/${image.slice(image.indexOf('/') + 1)}`];
      await runSuccessfully('skopeo', ['copy', '--insecure-policy', ...from, `oci-archive:${archive}:${image}`]);
      await load(archive);
      await rm(archive);
    }
    const request = { version: '2.0.11', arch: 'x86_64', images: fresh, output: folder, tool: 'test' } as const;
    return { old, fresh, bundle: (await createRegistryBundle(request, origin, makeContext())).path };
  } finally {
    await origin[Symbol.asyncDispose]();
    await source.stop();
  }
}

async function publish(): Promise<TestContent> {
  const test = new TestContent();
  const layers = [await makeStandInLayer()];
  for (const [name, tag] of [
    ['quay/quay-rhel8', 'v3.12.10'],
    ['quay/quay-rhel8', 'v3.12.18'],
    ['rhel8/redis-6', '1-190'],
    ['rhel8/redis-6', '1-1766406130'],
    ['ubi8/pause', '8.10-5'],
    ['ubi8/pause', '8.10-6'],
  ] as const) {
    const entrypoint = standInEntrypoint(tag);
    test.addImage(name, { architecture: 'amd64', layers, entrypoint, user: '1001', format: 'oci' }, tag);
  }
  return test;
}

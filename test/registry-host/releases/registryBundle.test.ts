import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { createRegistryBundle, imagesOfBundle } from '../../../lib/registry-host/releases/registryBundle.ts';
import { serveReleaseImages, type ReleaseImages } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('createRegistryBundle', () => {
  const context = makeContext();
  let source: ReleaseImages;
  let folder: string;
  before(async () => {
    source = await serveReleaseImages();
    folder = await mkdtemp(join(tmpdir(), 'registry-bundle-'));
  });
  after(async () => {
    await source[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  it('puts the images of a mirror registry into one file, by tag and digest', async () => {
    const { images } = source;
    const manifest = source.renew();
    await using origin = openProvider(context);
    const request = { version: '2.0.11', arch: 'x86_64', images, output: folder, tool: 'test' } as const;
    const { path } = await createRegistryBundle(request, origin, context);
    expect(path).to.equal(join(folder, 'mirror-registry-2.0.11-x86_64.tar'));
    await runSuccessfully('sha256sum', ['-c', `${path}.sha256`], { cwd: folder });

    const bundle = await openBundle(path, context);
    expect(imagesOfBundle(bundle.metadata, path).quay).to.deep.equal({ image: images.quay, digest: manifest });
    expect((await bundle.content.tags()).sort()).to.deep.equal([
      '2.0.11-x86_64',
      '2.0.11-x86_64-pause',
      '2.0.11-x86_64-redis',
    ]);
    await bundle[Symbol.asyncDispose]();

    const bytes = await readFile(path);
    await createRegistryBundle(request, origin, context);
    expect((await readFile(path)).equals(bytes)).to.equal(true);
  });

  it('reads everything from the mirrors of an ImageTagMirrorSet, blobs by digest included', async () => {
    // Nothing listens at port 1.
    const { server, images } = source;
    const policy = 'NeverContactSource';
    const mirrors = { source: 'localhost:1', mirrors: [server.host], mirrorSourcePolicy: policy };
    const spec = { imageTagMirrors: [mirrors] };
    const file = join(folder, 'itms.json');
    await writeFile(file, JSON.stringify({ apiVersion: 'config.openshift.io/v1', kind: 'ImageTagMirrorSet', spec }));
    const moved = (image: string): string => image.replace(server.host, 'localhost:1');
    const targets = Object.entries(images).map(([name, image]) => `--target-${name}=${moved(image)}`);
    const args = ['--version=2.0.11', '--insecure', `--output=${folder}/mirrored`, `--idms-file=${file}`, ...targets];
    const { code, stdout, stderr } = await executeProgram('oc-adm_mirror_registry', ['bundle', 'create', ...args]);
    expect(code, stdout + stderr).to.equal(0);
  });

  it('wants tags, by which a registry’s version is known', async () => {
    await using origin = openProvider(context);
    const image = `${source.server.host}/a/b@sha256:${'a'.repeat(64)}`;
    const images = { quay: image, redis: image, pause: image };
    const request = { version: '2.0.11', arch: 'x86_64', images, output: folder, tool: 'test' } as const;
    await failureOf(createRegistryBundle(request, origin, context), 'usage');
  });
});

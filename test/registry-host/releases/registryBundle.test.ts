import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { createRegistryBundle, imagesOfBundle } from '../../../lib/registry-host/releases/registryBundle.ts';
import { TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { openProvider } from '../../support/content/provider.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { makeContext } from '../../support/context.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('createRegistryBundle', () => {
  const { content } = new TestContent();
  const registry = new TestRegistry({ content });
  const context = makeContext();
  let folder: string;
  before(async () => {
    await registry.start();
    folder = await mkdtemp(join(tmpdir(), 'registry-bundle-'));
  });
  after(async () => {
    await registry.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('puts the images of a mirror registry into one file, by tag and digest', async () => {
    const { manifest } = putImage(content, 'quay/quay-rhel8', 'v3.12.18');
    putImage(content, 'rhel8/redis-6', '1-2');
    putImage(content, 'ubi8/pause', '8.10-5');
    const images = {
      quay: `${registry.host}/quay/quay-rhel8:v3.12.18`,
      redis: `${registry.host}/rhel8/redis-6:1-2`,
      pause: `${registry.host}/ubi8/pause:8.10-5`,
    };
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

    const inspected = await executeProgram('oc-adm_mirror_registry', ['bundle', 'inspect', path]);
    expect(inspected.stdout, inspected.stderr).to.include(images.quay).and.not.to.include('incomplete');
    const targets = Object.entries(images).map(([name, image]) => `--target-${name}=${image}`);
    const output = join(folder, 'again');
    const args = ['bundle', 'create', '--version=2.0.11', '--insecure', `--output=${output}`, ...targets, '-o', 'json'];
    const { stdout, stderr } = await executeProgram('oc-adm_mirror_registry', args);
    const created = JSON.parse(stdout || '{}') as { path: string; metadata: object };
    expect(created.path, stderr).to.equal(join(output, 'mirror-registry-2.0.11-x86_64.tar'));
    expect(created.metadata).to.include({ version: '2.0.11', arch: 'x86_64' });

    const bytes = await readFile(path);
    await createRegistryBundle(request, origin, context);
    expect((await readFile(path)).equals(bytes)).to.equal(true);
  });

  it('reads everything from the mirrors of an ImageTagMirrorSet, blobs by digest included', async () => {
    const names = ['quay/quay-rhel8:v3.12.18', 'rhel8/redis-6:1-2', 'ubi8/pause:8.10-5'];
    for (const name of names) {
      const [repository = '', tag = ''] = name.split(':');
      putImage(content, repository, tag);
    }
    // Nothing listens at port 1.
    const spec = { imageTagMirrors: [{ source: 'localhost:1', mirrors: [registry.host] }] };
    const file = join(folder, 'itms.json');
    await writeFile(file, JSON.stringify({ apiVersion: 'config.openshift.io/v1', kind: 'ImageTagMirrorSet', spec }));
    const targets = ['quay', 'redis', 'pause'].map((name, index) => `--target-${name}=localhost:1/${names[index]}`);
    const args = ['--version=2.0.11', '--insecure', `--output=${folder}/mirrored`, `--idms-file=${file}`, ...targets];
    const { code, stdout, stderr } = await executeProgram('oc-adm_mirror_registry', ['bundle', 'create', ...args]);
    expect(code, stdout + stderr).to.equal(0);
  });

  it('wants tags, by which a registry’s version is known', async () => {
    await using origin = openProvider(context);
    const image = `${registry.host}/a/b@sha256:${'a'.repeat(64)}`;
    const images = { quay: image, redis: image, pause: image };
    const request = { version: '2.0.11', arch: 'x86_64', images, output: folder, tool: 'test' } as const;
    await failureOf(createRegistryBundle(request, origin, context), 'usage');
  });

  it('is refused as a bundle for a mirror registry when it is another', async () => {
    const { code, stderr } = await executeProgram('oc-adm_mirror_registry', ['bundle', 'inspect']);
    expect([code, stderr]).to.deep.equal([2, stderr]);
    expect(stderr).to.include('name a bundle');
  });
});

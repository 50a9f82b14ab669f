import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { serveReleaseImages, type ReleaseImages } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';

describe('bundle of a mirror registry', () => {
  let source: ReleaseImages;
  let folder: string;
  let path: string;
  const call = (...args: string[]): Promise<Execution> => executeProgram('oc-adm_mirror_registry', ['bundle', ...args]);
  const create = (output: string, ...args: string[]): Promise<Execution> => {
    const targets = Object.entries(source.images).map(([name, image]) => `--target-${name}=${image}`);
    return call('create', '--version=2.0.11', '--insecure', `--output=${join(folder, output)}`, ...targets, ...args);
  };

  before(async () => {
    source = await serveReleaseImages();
    folder = await mkdtemp(join(tmpdir(), 'registry-bundle-'));
    await create('.');
    path = join(folder, 'mirror-registry-2.0.11-x86_64.tar');
  });
  after(async () => {
    await source[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  it('creates one from named images, and prints its path and its digest', async () => {
    const { stdout, stderr } = await create('again', '--arch=arm64', '-o', 'json');
    const created = JSON.parse(stdout || '{}') as { path: string; metadata: object };
    expect(created.path, stderr).to.equal(join(folder, 'again/mirror-registry-2.0.11-aarch64.tar'));
    expect(created.metadata).to.include({ version: '2.0.11', arch: 'aarch64' });
    const { stdout: words } = await create('again', '--arch=arm64');
    expect(words).to.match(/^Wrote \/.*\.tar, [\d.]+ KiB\nsha256:[0-9a-f]{64}\n$/);
  });

  it('shows the images of a bundle, their sizes, and that nothing is verified', async () => {
    const { stdout, stderr } = await call('inspect', path);
    expect(stdout, stderr).to.match(/^Mirror registry 2\.0\.11 for x86_64, [\d.]+ KiB, not verified\n/);
    for (const [name, image] of Object.entries(source.images))
      expect(stdout).to.match(new RegExp(`^${name} +${image} +[\\d.]+ KiB$`, 'm'));
    expect(stdout).not.to.contain('incomplete');
  });

  it('pushes it as one tag, whose images it shows too', async () => {
    const repository = `${source.server.host}/site/release`;
    const where = ['--insecure', `--root=${folder}`];
    const { stdout, stderr } = await call('push', path, `--to=${repository}`, ...where);
    const [title, digest = '', next] = stdout.split('\n');
    expect(title, stderr).to.equal(`Pushed ${repository}:2.0.11`);
    expect(next).to.equal(
      `On the host of the registry: oc adm-mirror-registry upgrade --bundle=${repository}:2.0.11 --digest=${digest}`,
    );
    const inspected = await call('inspect', repository, '--insecure', '-o', 'json');
    const { images, ...release } = JSON.parse(inspected.stdout) as { images: { name: string; image: string }[] };
    expect(release).to.include({ version: '2.0.11', arch: 'x86_64', verified: false });
    expect(Object.fromEntries(images.map(({ name, image }) => [name, image]))).to.deep.equal(source.images);
  });

  const refused: [title: string, args: string[], message: string][] = [
    ['an action without a bundle', ['inspect'], '<file> is missing: name a bundle'],
    ['a push without a destination', ['push', 'a.tar'], '--to is missing: REGISTRY/REPOSITORY'],
    ['a bundle to create from', ['create', 'a.tar'], '“a.tar” is an unexpected argument'],
    ['a new bundle without a version', ['create'], '--version is missing'],
    ['a version without known images', ['create', '--version=9.9.9'], 'the images of release 9.9.9 are unknown'],
    [
      'a version with only some images named',
      ['create', '--version=9.9.9', '--target-quay=a.example/b:1', '--target-redis=a.example/c:1'],
      'the images of release 9.9.9 are unknown',
    ],
    [
      'a digest that it does not compare',
      ['push', 'a.tar', `--digest=${'a'.repeat(64)}`],
      '--digest goes only with load',
    ],
  ];
  for (const [title, args, message] of refused)
    it(`refuses ${title}`, async () => {
      const { code, stderr } = await call(...args);
      expect([code, stderr.split('\n')[0]]).to.deep.equal([2, `error (usage): ${message}`]);
    });
});

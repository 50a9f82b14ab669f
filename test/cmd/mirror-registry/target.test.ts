import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { noTarget, openTarget, targetImages, upgradeOptions, withBundle } from '../../../cmd/mirror-registry/target.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { detectInstallation } from '../../../lib/registry-host/detect/detect.ts';
import { imagesOfVersion } from '../../../lib/registry-host/installation/versions.ts';
import { makeFixture, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('the target of an upgrade', () => {
  let folder: string;
  let bundle: TestRegistryBundle;
  let fixture: Fixture;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'target-'));
    bundle = await makeRegistryBundle(folder);
    fixture = await makeFixture({ age: '2.0.7' });
  });
  after(async () => {
    await fixture.remove();
    await rm(folder, { recursive: true });
  });
  const open = async (changes: Partial<Parameters<typeof openTarget>[0]>) => {
    const files = new HostFiles(fixture.root);
    const { installation } = await detectInstallation(files, { scope: 'auto', home: fixture.home });
    return openTarget({ ...noTarget, bundle: undefined, ...changes }, { files, installation }, {}, makeContext());
  };

  it('has the images of a known release, or the named ones instead', () => {
    const release = imagesOfVersion('2.0.11');
    const args = { ...noTarget, version: '2.0.11' };
    expect(targetImages(args)).to.deep.equal(release);
    const named = { targetQuay: 'a.example/quay:1', targetPause: 'a.example/pause:1' };
    expect(targetImages({ ...args, ...named })).to.deep.equal({
      quay: 'a.example/quay:1',
      redis: release?.redis,
      pause: 'a.example/pause:1',
    });
    expect(targetImages({ ...noTarget, targetRedis: 'a.example/redis:1' })).to.deep.equal({
      redis: 'a.example/redis:1',
    });
    expect(targetImages(noTarget)).to.deep.equal({});
  });

  it('has the images of a bundle, and its release, which the caller closes', async () => {
    const { target, release } = await open({ bundle: bundle.path });
    await using _release = release;
    expect(target.quay).to.equal(bundle.quay);
    expect(Object.keys(target)).to.deep.equal(['quay', 'redis', 'pause']);
    expect(release).to.include({ kind: 'bundle', version: '2.0.11' });
  });

  it('has no release without a bundle', async () => {
    expect(await open({})).to.deep.equal({ target: {}, release: undefined });
    expect((await open({ version: '2.0.11' })).target).to.deep.equal(imagesOfVersion('2.0.11'));
  });

  it('is refused if the release is unknown', async () => {
    const { message, hint } = await failureOf(open({ version: '9.9.9' }), 'usage');
    expect(message).to.equal('release 9.9.9 of the mirror registry is unknown');
    expect(hint).to.contain('--target-quay');
  });

  for (const named of [{ version: '2.0.11' }, { targetPause: 'a.example/pause:1' }])
    it(`is refused if a bundle and ${Object.keys(named).join()} name it`, async () => {
      const { message } = await failureOf(open({ bundle: bundle.path, ...named }), 'usage');
      expect(message).to.equal('--bundle does not go with --version and --target-…');
    });

  it('takes the bundle as an argument or an option, but not as both', () => {
    expect(withBundle({ target: 'a.tar' })).to.deep.equal({ target: 'a.tar', bundle: 'a.tar' });
    expect(withBundle({ bundle: 'b.tar' })).to.deep.equal({ bundle: 'b.tar' });
    expect(() => withBundle({ target: 'a.tar', bundle: 'a.tar' })).to.throw(
      'give only one of the argument and --bundle',
    );
  });

  it('has its database in a volume or in an absolute folder', () => {
    const { check } = upgradeOptions['sqlite-storage'];
    for (const word of ['sqlite-storage', '/srv/my.db', 'a_1']) check(word);
    for (const word of ['', './db', '-a', '/srv/a b', 'a:b', '/'])
      expect(() => check(word), word).to.throw('is not the name of a volume or an absolute path');
  });
});

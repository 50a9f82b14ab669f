import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import {
  findReplaced,
  keepReplaced,
  loadReplaced,
  releaseReplaced,
  renameReplaced,
  requireReplaced,
  versionOfReplaced,
} from '../../../lib/registry-host/change/replacedImages.ts';
import type { ReplacedImage, UpgradeJournal } from '../../../lib/registry-host/change/upgradeJournal.ts';
import type { RegistryRelease } from '../../../lib/registry-host/releases/images.ts';
import { openRegistryRelease } from '../../../lib/registry-host/releases/registryRelease.ts';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import type { MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const { quay, redis } = imagesOf('2.0.7');

describe('the images that a change replaces', function () {
  requirePeer(this, 'docker-registry', 'openssl');
  let folder: string;
  let bundle: TestRegistryBundle;
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  let commands: HostCommands;
  let context: TestContext;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'replaced-'));
    bundle = await makeRegistryBundle(folder);
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(async () => {
    registry = await startMirrorRegistry();
    ({ host } = registry);
    context = makeContext();
    const programs = join(registry.fixture.root, 'programs');
    const { signal } = context;
    const [podman, systemctl] = [join(programs, 'podman'), join(programs, 'systemctl')];
    commands = new HostCommands({ podman, systemctl, environment: process.env, signal }, 'system');
  });
  afterEach(() => registry.stop());

  const journal = (...replaced: ReplacedImage[]): UpgradeJournal => ({
    id: '000001-20261120T100000Z',
    title: 'the upgrade',
    phase: 'writing',
    files: [],
    restart: [],
    containers: [],
    names: [],
    replaced,
    wasHealthy: true,
  });
  /** Opens the release of the bundle, or that of another path. */
  const open = (path = bundle.path): Promise<RegistryRelease> =>
    openRegistryRelease(path, () => expect.fail('no registry is asked'), context);

  it('are found by their IDs, with a warning of each that podman does not have', async () => {
    const found = await findReplaced(commands, [quay, 'quay.local/gone:1'], context);
    expect(found).to.deep.equal([{ name: quay, id: 'old quay-app' }]);
    expect(context.lines).to.deep.equal(['warn: podman does not have quay.local/gone:1, which a rollback needs']);
  });

  it('stay in podman until their backup is removed, also if all unused images are pruned', async () => {
    const change = journal(...(await findReplaced(commands, [quay, redis], context)));
    await keepReplaced(commands, change);
    const tag = 'localhost/oc-mirror-registry/rollback:000001-20261120t100000z-0';
    expect(host.images.get(tag)).to.equal('old quay-app');
    expect(host.rollbackIds()).to.deep.equal(['old quay-app', 'old quay-redis']);
    const unusable = host.calls.filter((call) => call.startsWith('podman create'));
    expect(unusable.every((call) => call.includes('--pull=never --network=none'))).to.equal(true);
    await releaseReplaced(commands, change);
    expect([host.rollbackIds(), host.images.has(tag)]).to.deep.equal([[], false]);
    // The tags may be gone already.
    host.fails = (call) => call.startsWith('podman untag');
    await releaseReplaced(commands, change);
  });

  it('are required by their IDs, and the release that has them is named', async () => {
    const change = journal({ name: quay, id: 'old quay-app' }, { name: redis, id: 'c0ffee'.repeat(5) });
    await requireReplaced(commands, journal(change.replaced[0] ?? expect.fail()));
    const { message, hint, settings } = await failureOf(requireReplaced(commands, change), 'not-found');
    expect(message).to.equal(`podman no longer has ${redis} (ID c0ffeec0ffee), which a rollback needs`);
    expect(hint).to.match(/^Give a bundle of release 2\.0\.7\. Or force it/);
    expect(settings).to.deep.equal(['bundle', 'force']);
    expect(versionOfReplaced(journal({ name: redis, id: '' }))).to.equal(undefined);
  });

  it('get their names back, unless podman lost them', async () => {
    host.images.set(quay, 'newer');
    host.images.set('kept', 'old quay-app');
    const change = journal({ name: quay, id: 'old quay-app' }, { name: redis, id: 'lost' });
    await renameReplaced(commands, change);
    expect([host.images.get(quay), host.images.get(redis)]).to.deep.equal(['old quay-app', 'old quay-redis']);
    const tags = host.calls.filter((call) => call.startsWith('podman tag')).length;
    await renameReplaced(commands, change);
    expect(host.calls.filter((call) => call.startsWith('podman tag'))).to.have.length(tags);
  });

  it('are loaded from a release that has the missing ones, with their new IDs', async () => {
    const change = journal({ name: bundle.quay, id: 'gone' }, { name: redis, id: 'old quay-redis' });
    await using release = await open();
    const loaded = await loadReplaced(commands, change, release, undefined, context);
    const [first, second] = loaded.replaced;
    expect([first?.name, second]).to.deep.equal([bundle.quay, change.replaced[1]]);
    expect(first?.id).to.match(/^[0-9a-f]{64}$/);
    await requireReplaced(commands, loaded);
    await renameReplaced(commands, loaded);
    expect(host.images.get(bundle.quay)).to.equal(first?.id);
    const pulls = host.calls.length;
    expect(await loadReplaced(commands, loaded, release, undefined, context)).to.equal(loaded);
    expect(host.calls.slice(pulls).filter((call) => !call.startsWith('podman image '))).to.deep.equal([]);
  });

  it('are refused from a release that does not have them, before anything is loaded', async () => {
    const change = journal({ name: quay, id: 'gone' });
    await using release = await open();
    const { message, hint } = await failureOf(loadReplaced(commands, change, release, undefined, context), 'not-found');
    expect(message).to.equal(`${release.name} does not have ${quay}, which a rollback needs`);
    expect(hint).to.equal('Give a bundle of release 2.0.7.');
    const other = journal({ name: bundle.quay, id: 'gone' });
    await failureOf(loadReplaced(commands, other, release, `sha256:${'0'.repeat(64)}`, context), 'digest-mismatch');
    expect(host.calls.filter((call) => call.startsWith('podman pull'))).to.deep.equal([]);
  });
});

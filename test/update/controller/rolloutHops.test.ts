import { expect } from 'chai';
import { resumeUpdate, abortUpdate } from '../../../lib/update/bundleRecord.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { connectTo } from '../../support/cluster.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { firstRelease, makeHops, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

const usual = ['Verified', 'Loading', 'Loaded', 'Pinned', 'Upgrading'];

describe('controlRollout of a bundle with several releases', () => {
  let rollout: RolloutSite;
  beforeEach(async () => {
    rollout = await RolloutSite.start();
    rollout.facts = makeHops();
  });
  afterEach(() => rollout.close());

  const put = (spec: Json = {}): void => void rollout.server.put(upgradeBundle(undefined, spec));
  const hops = (): string[] =>
    (rollout.bundle()?.status?.hops ?? []).map(({ version, phase }) => `${version} ${phase}`);
  const requests = (): unknown[] =>
    rollout.site.requests.map((request) => (request as { image: string; version: string }).version);
  /** Returns the pinned releases, each once. */
  const pinned = (): string[] => [
    ...new Set(
      rollout
        .all('PinnedImageSet')
        .map(({ metadata }) => String((metadata['annotations'] as Json)['upgrade-bundle.openshift.io/release'])),
    ),
  ];

  it('leads each update through all phases, and keeps the pins of the release before', async () => {
    put();
    await rollout.control();
    await rollout.until(() => hops()[1] === '4.20.3 Pinned');
    expect(pinned()).to.have.members([firstRelease, release]);
    await rollout.untilPhase('Completed');
    expect(rollout.told).to.deep.equal([...usual, ...usual, 'Completed']);
    expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Completed']);
    expect(requests()).to.deep.equal(['4.19.4', '4.20.3']);
    expect(rollout.bundle()?.status).to.include({ version: '4.20.3', release, nodesReady: '3/3' });
    expect(rollout.condition('Verified')).to.equal('True Verified: it is 4.19.4, 4.20.3');
    const signed = rollout.all('ConfigMap').filter(({ metadata }) => metadata.namespace === 'openshift-config-managed');
    expect(signed).to.have.length(2);
  });

  it('continues after the controller crashes between two updates', async () => {
    rollout.site.updating = false;
    put();
    const first = await rollout.control();
    await rollout.untilPhase('Upgrading');
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.until(() => hops()[0] === '4.19.4 Completed');
    first.crash();
    await rollout.control('worker-0');
    await rollout.untilPhase('Completed');
    expect(requests()).to.deep.equal(['4.19.4', '4.20.3']);
  });

  it('skips a release that the cluster has already', async () => {
    rollout.edit('ClusterVersion', 'version', {
      status: { history: [{ state: 'Completed', version: '4.19.4', image: firstRelease }] },
    });
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(hops()).to.deep.equal(['4.19.4 Skipped', '4.20.3 Completed']);
    expect(requests()).to.deep.equal(['4.20.3']);
  });

  it('holds between two updates until it is resumed, and can be aborted there', async () => {
    put({ holdBetween: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Held']);
    expect(rollout.condition('Updated')).to.match(/spec\.holdBetween delays the update/);
    const connected = await connectTo(rollout.server);
    try {
      const bundle = rollout.bundle();
      if (bundle) await resumeUpdate(connected.cluster, bundle);
      await rollout.untilPhase('Completed');
    } finally {
      await connected.close();
    }
  });

  it('can be aborted between two updates', async () => {
    put({ holdBetween: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    const connected = await connectTo(rollout.server);
    try {
      const bundle = rollout.bundle();
      if (bundle) await abortUpdate(connected.cluster, bundle);
      await rollout.untilPhase('Failed');
      expect(rollout.condition('Updated')).to.match(/^False Aborted: .*the cluster runs 4\.19\.4/);
      expect(requests()).to.deep.equal(['4.19.4']);
      await rollout.until(() => !pinned().includes(release));
      expect(pinned()).to.deep.equal([firstRelease]);
    } finally {
      await connected.close();
    }
  });
});

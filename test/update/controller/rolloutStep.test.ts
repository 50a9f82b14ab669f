import { expect } from 'chai';
import { awaitBackup, type BackupState } from '../../../lib/update/controller/rolloutStep.ts';
import { isRecentBackup } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { platformImage, node } from '../../fakes/cluster/site.ts';
import { makeFacts, release, upgradeBundle, makeBackup, makeHops } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';

describe('the backup before an update', () => {
  let rollout: RolloutSite;
  beforeEach(async () => {
    rollout = await RolloutSite.start();
  });
  afterEach(() => rollout.close());
  const put = (spec: Json = {}): void => {
    rollout.server.put(upgradeBundle(undefined, spec));
  };
  const backedUp = (): string => rollout.condition('BackedUp');

  it('is made and recorded before the update is requested', async () => {
    rollout.site.backingUp = false;
    await rollout.control();
    put();
    await rollout.until(() => rollout.bundle()?.status?.backupNode !== undefined);
    expect(backedUp()).to.equal('False BackingUp: master-0 backs up etcd and the static pods of 4.19.3');
    expect(rollout.bundle()?.status?.backupNode).to.equal('master-0');
    expect(rollout.site.requests).to.deep.equal([]);
    rollout.site.backingUp = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    const { backups = [], backupNode } = rollout.bundle()?.status ?? {};
    expect(backupNode).to.equal(undefined);
    expect(backups.map(({ node, version }) => `${node} ${version}`)).to.deep.equal(['master-0 4.19.3']);
    expect(backups[0]?.pools?.map(({ name }) => name)).to.have.members(['master', 'worker']);
    expect(backedUp()).to.match(
      /^True BackedUp: etcd and the static pods of 4\.19\.3 are in \/home\/core\/.* on master-0$/,
    );
  });

  it('blocks the update with the reason if it fails, and continues when it succeeds', async () => {
    rollout.site.backupFailure = 'the disk is full';
    await rollout.control();
    put();
    await rollout.until(() => backedUp().includes('BackupFailed'));
    expect(backedUp()).to.equal('False BackupFailed: master-0 cannot back up etcd before the update: the disk is full');
    expect(rollout.site.requests).to.deep.equal([]);
    rollout.site.backupFailure = undefined;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
  });

  it('is not asked for if spec.backup is off', async () => {
    rollout.site.backingUp = false;
    await rollout.control();
    put({ backup: 'off' });
    await rollout.untilPhase('Completed');
    expect(backedUp()).to.equal('False Off: spec.backup is off: there is no backup of this update');
    expect(rollout.bundle()?.status?.backups).to.equal(undefined);
  });

  it('does not count if it is of another version', async () => {
    rollout.site.backupVersion = '4.18.9';
    await rollout.control();
    put();
    await rollout.until(() => backedUp().includes('BackingUp'));
    expect(rollout.site.requests).to.deep.equal([]);
    rollout.site.backupVersion = undefined;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
  });

  it('is made on another node of the control plane if its node is not ready', async () => {
    rollout.site.backingUp = false;
    rollout.server.put(node('master-1', 'master'));
    await rollout.control('master-1');
    put();
    await rollout.until(() => rollout.bundle()?.status?.backupNode === 'master-0');
    rollout.edit('Node', 'master-0', { status: { conditions: [] } });
    await rollout.until(() => rollout.condition('Ready').startsWith('False Blocked'));
    rollout.remove('Node', 'master-0');
    await rollout.until(() => rollout.bundle()?.status?.backupNode === 'master-1');
    rollout.site.backingUp = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
  });

  it('is made again before each of several updates, and the record has both', async () => {
    rollout.facts = makeHops();
    await rollout.control();
    put();
    await rollout.untilPhase('Completed');
    const { backups = [] } = rollout.bundle()?.status ?? {};
    expect(backups.map(({ version }) => version)).to.deep.equal(['4.19.3', '4.19.4']);
  });

  it('is reported as a long wait after its limit', async () => {
    rollout.site.backingUp = false;
    const controller = await rollout.control();
    put();
    await rollout.until(() => backedUp().includes('BackingUp'));
    await controller.stop();
    const lastProgressTime = new Date(Date.now() - 31 * 60_000).toISOString().replace(/\.\d+/, '');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { status: { lastProgressTime } });
    await rollout.control();
    await rollout.until(() => rollout.condition('Stalled').startsWith('True'));
    expect(rollout.condition('Stalled')).to.match(
      /^True NoProgress: .*\(limit: 30 minutes\); waiting: master-0 backs up etcd/,
    );
  });

  it('is recent for six hours', () => {
    const now = Date.now();
    const old = { ...makeBackup(), time: new Date(now - 7 * 3_600_000).toISOString() };
    expect([isRecentBackup(makeBackup(), now), isRecentBackup(old, now)]).to.deep.equal([true, false]);
  });
});

describe('awaitBackup', () => {
  it('chooses a node that is ready and has an agent that reports, and counts its recent backup', () => {
    const nodes = [
      node('master-0', 'master', { conditions: [{ type: 'Ready', status: 'False' }] }),
      node('master-1', 'master'),
      node('master-2', 'master'),
      node('infra-0', 'worker'),
    ];
    const reports = new Map<string, object>(
      nodes.map(({ metadata }) => [metadata.name, { isRecent: metadata.name !== 'master-1' }]),
    );
    const clusterVersion = { status: { desired: { version: '4.19.3' } } };
    const ask = (status?: object): BackupState =>
      awaitBackup({ bundle: { spec: {}, status }, site: { nodes, clusterVersion, pools: [] }, reports } as never);
    for (const status of [undefined, { backupNode: 'master-0' }]) expect(ask(status).backupNode).to.equal('master-2');
    const made = { ...makeBackup(), version: '4.19.3' };
    for (const [age, reason] of [
      [0, 'BackedUp'],
      [7 * 3_600_000, 'BackingUp'],
    ] as const) {
      const time = new Date(Date.now() - age).toISOString();
      reports.set('master-2', { isRecent: true, backup: { made: { ...made, time } } });
      expect(ask().condition.reason).to.equal(reason);
    }
  });
});

describe('the pins of an update', () => {
  let rollout: RolloutSite;
  const start = async (options: ApiServerOptions = {}): Promise<void> => {
    rollout = await RolloutSite.start(options);
  };
  afterEach(() => rollout.close());

  const put = (spec: Json = {}, metadata: Json = {}, name?: string): void => {
    rollout.server.put(upgradeBundle(name, spec, metadata));
  };
  const pins = (): string[] => rollout.all('PinnedImageSet').map(({ metadata }) => metadata.name);
  /** Returns the paused objects, in a few words. */
  const paused = (): string[] => [
    ...rollout.all('MachineHealthCheck').map(({ metadata }) => JSON.stringify(metadata['annotations'])),
    ...rollout
      .all('ClusterAutoscaler')
      .map(({ metadata, spec }) => JSON.stringify([metadata['annotations'] ?? {}, spec])),
  ];

  it('pins the release that the cluster runs, if it has the bundle of it, and keeps the pins', async () => {
    await start();
    const present = `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}`;
    rollout.facts = makeFacts({ version: '4.19.3', release: present, images: [present] });
    put({ hold: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    const annotations = { 'upgrade-bundle.openshift.io/abort': 'true' };
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { metadata: { annotations } });
    await rollout.untilPhase('Failed');
    expect(pins()).to.have.length(2);
    put({}, {}, 'again');
    await rollout.untilPhase('Completed', 'again');
    expect(pins()).to.have.length(2);
    expect(rollout.site.requests).to.deep.equal([]);
  });

  describe('keeps pinned', () => {
    const pinned = (name: string, image: string): void => {
      const labels = { 'app.kubernetes.io/managed-by': 'oc-upgrade-bundle' };
      const annotations = { 'upgrade-bundle.openshift.io/release': image };
      const apiVersion = 'machineconfiguration.openshift.io/v1';
      const metadata = { name, labels, annotations };
      rollout.server.put({ apiVersion, kind: 'PinnedImageSet', metadata, spec: { pinnedImages: [] } });
    };

    it('the requested release, if the UpgradeBundle is deleted before the version operator begins', async () => {
      await start();
      rollout.site.noticing = false;
      put();
      await rollout.control();
      await rollout.untilPhase('Upgrading');
      rollout.remove('UpgradeBundle', 'upgrade-4.19.4-amd64');
      await rollout.until(() => !JSON.stringify(paused()).includes('paused-for'));
      pinned('unneeded', platformImage('9'));
      put({ bundle: {} }, {}, 'proposal');
      await rollout.until(() => !pins().includes('unneeded'));
      expect(pins()).to.have.length(2);
    });

    it('the previous release until the next update begins', async () => {
      await start();
      pinned('previous', `mirror.example.com/release@sha256:${'1'.repeat(64)}`);
      put();
      await rollout.control();
      await rollout.untilPhase('Completed');
      pinned('unneeded', platformImage('9'));
      put({ bundle: {} }, {}, 'proposal');
      await rollout.until(() => !pins().includes('unneeded'));
      expect(pins()).to.include('previous');
      expect(pins()).to.have.length(3);
      rollout.site.silent.add('worker-1');
      const next = { image: platformImage('3'), version: '4.19.5' };
      rollout.facts = makeFacts({
        version: next.version,
        release: next.image,
        previous: ['4.19.4'],
        images: [next.image],
      });
      rollout.remove('UpgradeBundle', 'proposal');
      put({}, {}, 'next');
      await rollout.untilPhase('Loading', 'next');
      await rollout.until(() => !pins().includes('previous'));
      expect(pins()).to.have.length(2);
    });
  });

  it('has the agents pin if the cluster cannot, and lets its pools wait until it can', async () => {
    await start({ openshift: '4.18.3' });
    rollout.facts = makeFacts({ previous: ['4.18.3'] });
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    expect(rollout.condition('Pinned')).to.match(/^True PinnedByAgents: /);
    const specs = (): unknown[] => rollout.all('MachineConfigPool').map(({ spec }) => spec);
    expect(specs()).to.deep.equal([{ paused: true }, { paused: true }]);
    rollout.site.pinning = false;
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.until(() => pins().length === 2 && rollout.condition('Updated').includes('pool worker is paused'));
    expect(specs()).to.deep.equal([{ paused: true }, { paused: true }]);
    rollout.site.pinning = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(specs()).to.deep.equal([{}, {}]);
  });

  it('pauses no pool for pins that the release never serves, and refuses it without a mirror', async () => {
    await start({ openshift: '4.18.3' });
    rollout.facts = { ...makeFacts({ previous: ['4.18.3'] }), pinsIn: ['TechPreviewNoUpgrade'] };
    rollout.site.pinning = false;
    put();
    await rollout.control();
    await rollout.until(() => rollout.condition('Ready').startsWith('False Blocked'));
    expect(rollout.condition('Ready')).to.contain('nodes fetch the operating system of 4.19.4 from a registry');
    const spec = {
      imageDigestMirrors: [{ source: 'quay.io/openshift-release-dev', mirrors: ['mirror.example.com/a'] }],
    };
    const kind = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet' };
    rollout.server.put({ ...kind, metadata: { name: 'site' }, spec });
    rollout.site.updating = false;
    await rollout.untilPhase('Upgrading');
    expect(rollout.all('MachineConfigPool').map(({ spec: own }) => own)).to.deep.equal([{}, {}]);
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
  });

  it('names the images that no set can hold', async () => {
    await start();
    rollout.facts = makeFacts({ images: [release, `registry.example.com:5000/a/b/c@sha256:${'c'.repeat(64)}`] });
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Pinned')).to.match(/^True Pinned: .* except names .*registry.example.com:5000\/a\/b\/c@/);
  });
});

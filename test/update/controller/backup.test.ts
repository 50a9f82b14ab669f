import { expect } from 'chai';
import { awaitBackup, type BackupState } from '../../../lib/update/controller/rolloutStep.ts';
import { isRecentBackup } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node } from '../../fakes/cluster/site.ts';
import { makeBackup, makeHops, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';

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

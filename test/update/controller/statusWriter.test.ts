import { expect } from 'chai';
import {
  RecordWriter,
  type Step,
  describeLongWait,
  ProgressClock,
} from '../../../lib/update/controller/statusWriter.ts';
import type { BundleCondition } from '../../../lib/update/record/conditions.ts';
import {
  upgradeBundleKind,
  type UpgradeBundle,
  type Phase,
  type UpgradeBundleStatus,
} from '../../../lib/update/record/upgradeBundle.ts';
import { RolloutSite, type TestController } from '../../fakes/cluster/rollout.ts';
import { upgradeBundle, makeFacts, makeHops } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { TestRegistry } from '../../fakes/registry/registry.ts';
import { connectTo } from '../../support/cluster.ts';

describe('RecordWriter', () => {
  it('writes nothing to an UpgradeBundle that was changed since it was read', async () => {
    await using rollout = await RolloutSite.start();
    await using connected = await connectTo(rollout.server);
    const { cluster, context } = connected;
    rollout.server.put(upgradeBundle('record'));
    const writer = new RecordWriter(cluster, 'master-0', context);
    const reference = { ...upgradeBundleKind, metadata: { name: 'record' } };
    const read = (await cluster.read(reference)) as UpgradeBundle;
    rollout.edit('UpgradeBundle', 'record', { spec: { hold: true } });
    await writer.writeStall(read, 'an old reason');
    expect(rollout.condition('Stalled')).to.equal(' : ');
    expect(context.lines.join()).to.match(/^debug: .*modified/);
    await writer.writeStall((await cluster.read(reference)) as UpgradeBundle, 'a new reason');
    expect(rollout.condition('Stalled')).to.equal('True Failing: a new reason');
  });
});

interface Wait {
  /** The condition that waits, as `Type status Reason`. */
  readonly condition: string;
  /** Its limit in minutes; undefined for a decision of an administrator. */
  readonly limit: number | undefined;
  /** Words of the remedy. */
  readonly remedy?: string;
  /** The version of the cluster; by default that of the site. */
  readonly openshift?: string;
  readonly spec?: Json;
  begin?(rollout: RolloutSite): unknown;
  /** Leads the update to the wait, once the controller runs. */
  lead?(rollout: RolloutSite): Promise<void>;
  end(rollout: RolloutSite): void;
}

const setReady = (rollout: RolloutSite, isReady: boolean): void =>
  rollout.edit('Node', 'worker-1', { status: { conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }] } });
const setSpec = (rollout: RolloutSite, spec: Json): void => {
  rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec });
};

let mirror: TestRegistry;

const waits: Readonly<Record<string, Wait>> = {
  'a bundle that no node has': {
    condition: 'Verified False NotFound',
    limit: 60,
    remedy: 'insert a USB drive',
    begin: (rollout) => (rollout.facts = undefined),
    end: (rollout) => (rollout.facts = makeFacts()),
  },
  'a bundle of another version than the allowed one': {
    condition: 'Verified False OtherBundle',
    limit: 60,
    remedy: 'allow another bundle',
    spec: { bundle: { digest: makeFacts().digest, version: '4.19.3' } },
    end: (rollout) => {
      rollout.remove('UpgradeBundle', 'upgrade-4.19.4-amd64');
      rollout.server.put(upgradeBundle());
    },
  },
  'a node that is not ready': {
    condition: 'Ready False Blocked',
    limit: 60,
    remedy: 'fix what the condition Ready names',
    begin: (rollout) => setReady(rollout, false),
    end: (rollout) => setReady(rollout, true),
  },
  'an agent that is silent': {
    condition: 'Loaded False NodesMissing',
    limit: 60,
    remedy: 'check the agents of these nodes',
    begin: ({ site }) => site.silent.add('worker-1'),
    end: ({ site }) => site.silent.delete('worker-1'),
  },
  'a node that cannot load': {
    condition: 'Loaded False NodesFailed',
    limit: 60,
    remedy: 'check the agents of these nodes',
    begin: ({ site }) => site.failing.set('worker-1', 'the disk is full'),
    end: ({ site }) => site.failing.delete('worker-1'),
  },
  'pins that no daemon makes': {
    condition: 'Pinned False Pinning',
    limit: 120,
    remedy: 'see the conditions of these nodes',
    begin: ({ site }) => (site.pinning = false),
    end: ({ site }) => (site.pinning = true),
  },
  'a backup that does not end': {
    condition: 'BackedUp False BackingUp',
    limit: 30,
    remedy: 'do without a backup',
    begin: ({ site }) => (site.backingUp = false),
    end: ({ site }) => (site.backingUp = true),
  },
  'a backup that fails': {
    condition: 'BackedUp False BackupFailed',
    limit: 30,
    remedy: 'fix what the message says',
    begin: ({ site }) => (site.backupFailure = 'the disk is full'),
    end: ({ site }) => (site.backupFailure = undefined),
  },
  'a version operator that does not notice the request': {
    condition: 'Updated False Updating',
    limit: 120,
    remedy: 'see “oc adm upgrade”',
    begin: ({ site }) => (site.noticing = false),
    end: ({ site }) => (site.noticing = true),
  },
  'a version operator without progress': {
    condition: 'Updated False Updating',
    limit: 120,
    remedy: 'see “oc adm upgrade”',
    begin: ({ site }) => (site.updating = false),
    end: ({ site }) => (site.updating = true),
  },
  'a version operator that refuses the release': {
    condition: 'Updated False NotAccepted',
    limit: 120,
    remedy: 'see “oc adm upgrade”',
    begin: ({ site }) => (site.refusing = true),
    end: ({ site }) => (site.refusing = false),
  },
  'a mirror on the control plane without the images': {
    condition: 'Updated False MirrorNotReady',
    limit: 120,
    remedy: 'see “oc adm upgrade”',
    begin: async (rollout) => void (mirror = await rollout.addMirror()),
    end: () => mirror.fault(/manifests/, { answer: { status: 200 } }),
  },
  'pools that do not follow': {
    condition: 'Updated False WaitingForNodes',
    limit: 120,
    remedy: '“oc get machineconfigpool”',
    begin: ({ site }) => (site.controller.running = false),
    end: ({ site }) => (site.controller.running = true),
  },
  'pools of workers whose pins are lost': {
    limit: 120,
    remedy: '“oc get machineconfigpool”',
    condition:
      'Updated False ResumingPools: the control plane is updated; next are the pools worker, once the images are ' +
      'pinned on worker-1',
    openshift: '4.18.3',
    spec: { controlPlaneOnly: true, holdBetween: true },
    begin: (rollout) => (rollout.facts = makeHops([], '4.18.3')),
    lead: async (rollout) => {
      await rollout.untilPhase('Held');
      Object.assign(rollout.site, { updating: false, pinning: false });
      setSpec(rollout, { holdBetween: false });
      await rollout.untilPhase('Upgrading');
      const conditions = [{ type: 'PinnedImageSetsProgressing', status: 'True' }];
      rollout.edit('MachineConfigNode', 'worker-1', { status: { conditions } });
      rollout.site.updating = true;
      rollout.site.wake();
    },
    end: ({ site }) => (site.pinning = true),
  },
  'a digest that is not allowed': {
    condition: 'Verified False NotAllowed',
    limit: undefined,
    spec: { bundle: {} },
    end: (rollout) => setSpec(rollout, { bundle: { digest: makeFacts().digest } }),
  },
  'a held update': {
    condition: 'Updated False Held',
    limit: undefined,
    spec: { hold: true },
    end: (rollout) => setSpec(rollout, { hold: false }),
  },
  'an acknowledgement': {
    condition: 'Ready False AcknowledgementRequired',
    limit: undefined,
    begin: (rollout) => {
      rollout.facts = makeFacts({ version: '4.20.3', previous: ['4.19.3'] });
      const metadata = { name: 'admin-gates', namespace: 'openshift-config-managed' };
      const data = { 'ack-4.19-x': 'Check this.' };
      rollout.server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
    },
    end: (rollout) => setSpec(rollout, { acknowledge: ['ack-4.19-x'] }),
  },
  'a known risk': {
    condition: 'Ready False RiskNotAccepted',
    limit: undefined,
    begin: (rollout) =>
      (rollout.facts = makeFacts({ risks: [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }] })),
    end: (rollout) => setSpec(rollout, { acceptRisks: ['SlowDisks'] }),
  },
};

describe('a wait of the controller', () => {
  let rollout: RolloutSite;
  let controller: TestController;
  afterEach(() => rollout.close());

  const isWaiting = ({ condition }: Wait): boolean => {
    const [type = '', ...state] = condition.split(' ');
    return rollout.condition(type).startsWith(state.join(' '));
  };
  /** Lets a new controller find that the last progress was some minutes ago. */
  const passMinutes = async (minutes: number): Promise<void> => {
    await controller.stop();
    const lastProgressTime = new Date(Date.now() - minutes * 60_000).toISOString().replace(/\.\d+/, '');
    const status = { ...(rollout.bundle()?.status as Json), lastProgressTime };
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { status });
    controller = await rollout.control();
  };
  const rounds = async (): Promise<void> => {
    // Each round lists the budgets, or reads the record again.
    const count = (): number => rollout.server.requests.filter(({ path }) => path.includes('upgradebundles/')).length;
    const before = count();
    await rollout.until(() => count() >= before + 3);
  };

  for (const [what, wait] of Object.entries(waits)) {
    const { limit, remedy = '' } = wait;
    it(`for ${what} ${limit === undefined ? 'has no limit' : `is reported after ${limit} minutes, and ends afterwards`}`, async () => {
      const { openshift } = wait;
      rollout = await RolloutSite.start({ ...(openshift !== undefined && { openshift }) });
      await wait.begin?.(rollout);
      rollout.server.put(upgradeBundle(undefined, wait.spec));
      controller = await rollout.control();
      await wait.lead?.(rollout);
      await rollout.until(() => isWaiting(wait));
      await passMinutes((limit ?? 1000) - 2);
      await rounds();
      expect(rollout.condition('Stalled')).not.to.match(/^True/);
      if (limit !== undefined) {
        await passMinutes(limit + 1);
        await rollout.until(() => rollout.condition('Stalled').startsWith('True NoProgress'));
        expect(rollout.condition('Stalled'))
          .to.contain(`(limit: ${limit} minutes); waiting: `)
          .and.to.contain(remedy)
          .and.to.contain('docs/how-to/update-stands-still.md');
        expect(isWaiting(wait)).to.equal(true);
      }
      wait.end(rollout);
      rollout.site.wake();
      await rollout.until(() => !isWaiting(wait) && !rollout.condition('Stalled').startsWith('True'));
    });
  }
});

describe('the time of the last progress', () => {
  const now = Date.parse('2026-11-26T12:00:00Z');
  const hour = 3600_000;
  const at = (time: number): string => new Date(time).toISOString();
  const observe = (
    clock: ProgressClock,
    phase: Phase,
    status: UpgradeBundleStatus,
    step: Partial<Step> = {},
    time = now,
    uid = 'a',
  ): number => {
    const bundle = { metadata: { name: 'a', uid }, status: { phase: 'Loading', ...status } as const };
    return clock.observe(
      { bundle, load: { nodes: [] }, site: { pools: [] } },
      { phase, conditions: [], ...step },
      time,
    );
  };

  it('is that of the status in the same phase, unless it is to come', () => {
    const times = [{ lastProgressTime: at(now - hour) }, { lastProgressTime: at(now + hour) }, {}];
    expect(times.map((status) => observe(new ProgressClock(), 'Loading', status))).to.deep.equal([
      now - hour,
      now,
      now,
    ]);
    expect(observe(new ProgressClock(), 'Loaded', { lastProgressTime: at(now - hour) })).to.equal(now);
  });

  it('changes with the progress, and with the UpgradeBundle', () => {
    const clock = new ProgressClock();
    expect(observe(clock, 'Loading', {})).to.equal(now);
    expect(observe(clock, 'Loading', {}, {}, now + 1000)).to.equal(now);
    expect(observe(clock, 'Loading', {}, { progress: '10%' }, now + 2000)).to.equal(now + 2000);
    const other = { lastProgressTime: at(now - hour) };
    expect(observe(clock, 'Loading', other, { progress: '10%' }, now + 3000, 'b')).to.equal(now - hour);
  });

  it('is too long ago from the limit of the last condition that waits, until the end', () => {
    type Type = BundleCondition['type'];
    const waiting = (type: Type): BundleCondition => ({
      type,
      status: 'False',
      reason: 'Waits',
      message: `waits for ${type}`,
    });
    const describeAfter = (minutes: number, phase: Phase, ...types: Type[]): string | undefined =>
      describeLongWait({ phase, conditions: types.map(waiting) }, now - minutes * 60_000, now);
    expect(describeAfter(60, 'Loading', 'Ready', 'Loaded')).to.include('waits for Loaded');
    expect(describeAfter(59.9, 'Loading', 'Ready', 'Loaded')).to.equal(undefined);
    const paused = { ...waiting('PoolsPaused'), status: 'True', reason: 'Pinning' } as const;
    const pinning: Step = { phase: 'Pinned', conditions: [paused, waiting('Pinned')] };
    expect(describeLongWait(pinning, now - 3 * hour, now)).to.include('set spec.paused to false');
    for (const phase of ['Completed', 'Failed'] as const)
      expect(describeAfter(600, phase, 'Loaded')).to.equal(undefined);
  });
});

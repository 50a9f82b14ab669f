import { expect } from 'chai';
import { abortUpdate } from '../../../lib/update/record/bundleRecord.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { withConditions } from '../../fakes/cluster/site.ts';
import { makeHops, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { connectTo } from '../../support/cluster.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const waiting = 'True ControlPlaneOnly: paused until the control plane runs 4.20.3: infra, worker';

describe('controlRollout of updates of the control plane only', () => {
  let rollout: RolloutSite;
  /** The paused pools at each change, with the releases that were installed by then. */
  let seen: string[];

  const start = async (openshift = '4.18.3'): Promise<void> => {
    rollout = await RolloutSite.start({ openshift });
    rollout.facts = makeHops([], openshift);
    rollout.server.put(withConditions(machines, 'MachineConfigPool', 'infra', { Updated: 'True' }));
    seen = [];
    rollout.server.objects.on('change', () => {
      const [version] = rollout.all('ClusterVersion');
      const history = (version?.['status'] as { history: Json[] }).history;
      const { version: installed } = history.find(({ state }) => state === 'Completed') ?? {};
      const state = `${String(installed)}: ${paused().join(' ')}`.trim();
      if (seen.at(-1) !== state) seen.push(state);
    });
  };
  afterEach(() => rollout.close());

  const put = (spec: Json = {}): void =>
    void rollout.server.put(upgradeBundle(undefined, { controlPlaneOnly: true, ...spec }));
  const paused = (): string[] =>
    rollout
      .all('MachineConfigPool')
      .filter(({ spec }) => (spec as Json)['paused'] === true)
      .map(({ metadata }) => metadata.name);
  const hops = (): string[] =>
    (rollout.bundle()?.status?.hops ?? []).map(({ version, phase }) => `${version} ${phase}`);
  const nodeChecks = (): string => JSON.stringify(rollout.all('MachineHealthCheck')[0]?.metadata['annotations']);
  const held = async (): Promise<void> => {
    put({ holdBetween: true });
    await rollout.control();
    await rollout.until(() => hops()[1] === '4.20.3 Held');
  };

  it('pauses the other pools from the first update until the control plane has the last one', async () => {
    await start();
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(seen).to.deep.equal([
      // The pool of the control plane waits for pins, which 4.18 does not have.
      '4.18.3:',
      '4.18.3: infra',
      '4.18.3: infra master',
      '4.18.3: infra master worker',
      '4.19.4: infra master worker',
      '4.19.4: infra worker',
      '4.20.3: infra worker',
      '4.20.3: worker',
      '4.20.3:',
    ]);
    expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Completed']);
    expect(rollout.condition('PoolsPaused')).to.equal('False Resumed: no pool is paused for this update');
    for (const { spec, metadata } of rollout.all('MachineConfigPool'))
      expect([spec, metadata['annotations']]).to.deep.equal([{}, {}]);
  });

  it('keeps them paused while the next update is held, and reports them', async () => {
    await start();
    await held();
    await rollout.until(() => rollout.condition('PoolsPaused') === waiting);
    await rollout.until(() => nodeChecks() === '{"mine":"yes"}');
    await rollout.collectGarbage();
    expect(paused()).to.deep.equal(['infra', 'worker']);
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { controlPlaneOnly: false } });
    await rollout.until(() => paused().length === 0);
    await rollout.until(() => rollout.condition('PoolsPaused').startsWith('False Resumed'));
  });

  it('resumes them if it is aborted between the updates, or its record is deleted', async () => {
    await start();
    await held();
    const connected = await connectTo(rollout.server);
    try {
      const bundle = rollout.bundle();
      if (bundle) await abortUpdate(connected.cluster, bundle);
      await rollout.untilPhase('Failed');
      expect(rollout.condition('PoolsPaused')).to.match(/^False Resumed/);
      expect(paused()).to.deep.equal([]);
    } finally {
      await connected.close();
    }
    await rollout.close();
    await start();
    await held();
    rollout.remove('UpgradeBundle', 'upgrade-4.19.4-amd64');
    await rollout.until(() => paused().length === 0);
  });

  it('continues after the controller crashes at any of its steps', async () => {
    await start();
    put();
    for (const state of ['4.19.4 Upgrading', '4.20.3 Loading', '4.20.3 Upgrading']) {
      const controller = await rollout.control(state);
      await rollout.until(() => hops().includes(state));
      controller.crash();
    }
    await rollout.control('worker-0');
    await rollout.untilPhase('Completed');
    expect(seen.slice(seen.indexOf('4.19.4: infra worker'), seen.indexOf('4.20.3: infra worker'))).to.deep.equal([
      '4.19.4: infra worker',
    ]);
    expect(paused()).to.deep.equal([]);
  });

  it('resumes them during an update if that is removed from the spec, also on a cluster without pins', async () => {
    await start('4.14.3');
    const apiVersion = 'config.openshift.io/v1';
    const imageDigestMirrors = [{ source: 'quay.io/openshift-release-dev', mirrors: ['r.test/x'] }];
    rollout.server.put({
      apiVersion,
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'm' },
      spec: { imageDigestMirrors },
    });
    const rename = (version: string): string => version.replace('4.19.', '4.15.').replace('4.20.', '4.16.');
    const { hops: made = [], ...facts } = makeHops([], '4.14.3');
    rollout.facts = {
      ...facts,
      hops: made.map(({ metadata, ...hop }) => {
        const [version, previous] = [rename(metadata.version), metadata.previous.map(rename)];
        return { ...hop, pinsIn: [], metadata: { ...metadata, version, previous } };
      }),
    };
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.until(() => hops()[0] === '4.15.4 Upgrading');
    expect(paused()).to.deep.equal(['infra', 'worker']);
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { controlPlaneOnly: false } });
    await rollout.until(() => paused().length === 0);
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(hops()).to.deep.equal(['4.15.4 Completed', '4.16.3 Completed']);
  });

  it('resumes them before an update that is blocked if that is removed from the spec', async () => {
    await start();
    rollout.site.gates.set('4.19.4', { 'ack-4.19-x': 'Update the workers first.' });
    put();
    await rollout.control();
    await rollout.until(() => rollout.condition('Ready').startsWith('False AcknowledgementRequired'));
    expect(paused()).to.deep.equal(['infra', 'worker']);
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { controlPlaneOnly: false } });
    await rollout.until(() => paused().length === 0);
    expect(hops()[1]).to.equal('4.20.3 Verified');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { acknowledge: ['ack-4.19-x'] } });
    await rollout.untilPhase('Completed');
    expect(seen).not.to.include('4.20.3: infra worker');
  });

  it('leaves a pool alone that an administrator resumes, and waits for it', async () => {
    await start();
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    rollout.edit('MachineConfigPool', 'infra', { spec: { paused: false } });
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(seen).to.include('4.20.3: worker').and.not.to.include('4.20.3: infra worker');
  });

  it('refuses other paths than from one extended release to the next one', async () => {
    await start('4.19.3');
    put();
    await rollout.control();
    await rollout.until(() => rollout.condition('Ready').startsWith('False NotControlPlaneOnly'));
    expect(rollout.condition('Ready')).to.contain('the bundle leads from 4.19.3 to 4.20.3: remove it from the spec');
    expect(paused()).to.deep.equal([]);
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { controlPlaneOnly: false } });
    await rollout.untilPhase('Completed');
    expect(seen.join()).not.to.contain('worker');
  });
});

import { expect } from 'chai';
import { resumeUpdate, abortUpdate } from '../../../lib/update/record/bundleRecord.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { firstRelease, makeFacts, makeHops, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { connectTo } from '../../support/cluster.ts';

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
    expect(rollout.phases).to.deep.equal([...usual, ...usual, 'Completed']);
    expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Completed']);
    expect(requests()).to.deep.equal(['4.19.4', '4.20.3']);
    expect(rollout.bundle()?.status).to.include({ version: '4.20.3', release, nodesReady: '3/3' });
    expect(rollout.condition('Verified')).to.equal('True Verified: it is 4.19.4, 4.20.3');
    const signed = rollout.all('ConfigMap').filter(({ metadata }) => metadata.namespace === 'openshift-config-managed');
    expect(signed).to.have.length(2);
  });

  it('removes the pins of a release when the update after the next one begins', async () => {
    const { hops: [first, last] = [], ...facts } = makeHops();
    if (!first || !last) throw new Error('there are not two hops');
    const [signed, third] = [`sha256:${'4'.repeat(64)}`, firstRelease.replace('3'.repeat(64), '4'.repeat(64))] as const;
    const images = [third, platformImage('d')];
    const added = makeFacts({ version: '4.20.5', release: third, previous: ['4.20.3'], images });
    const signatures = new Map([[signed, [...last.signatures.values()].flat()]]);
    rollout.facts = { ...facts, metadata: added.metadata, hops: [first, last, { ...added, signatures }] };
    put({ holdBetween: true });
    await rollout.control();
    for (const [version, kept] of [
      ['4.20.3', [firstRelease, release]] as const,
      ['4.20.5', [release, third]] as const,
    ]) {
      await rollout.until(() => hops().includes(`${version} Held`));
      await rollout.until(() => !pinned().includes(version === '4.20.5' ? firstRelease : third));
      expect(pinned()).to.have.members(kept);
      const { metadata } = rollout.bundle() ?? {};
      rollout.edit('UpgradeBundle', metadata?.name ?? '', {
        metadata: { annotations: { 'upgrade-bundle.openshift.io/resume': version } },
      });
    }
    await rollout.untilPhase('Completed');
    expect(pinned()).to.have.members([release, third]);
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

  describe('with a gate of the first release', () => {
    const name = 'ack-4.19-kube-1.33-api-removals-in-4.20';
    const text = 'Kubernetes 1.33 removes an API.';
    beforeEach(() => {
      rollout.facts = makeHops([{ name, text }]);
      rollout.site.gates.set('4.19.4', { [name]: text, 'ack-4.20-later': 'Not yet.' });
    });
    const given = (): unknown =>
      rollout.all('ConfigMap').find(({ metadata }) => metadata.name === 'admin-acks')?.['data'];
    const lackingBeside = (...others: string[]): string =>
      `False AcknowledgementRequired: the update to 4.20.3 requires the acknowledgement ${name}: “${text}”. ` +
      'Follow the text, then allow it: oc patch upgradebundle upgrade-4.19.4-amd64 --type=merge ' +
      `--patch='${JSON.stringify({ spec: { acknowledge: [...others, name] } })}'`;
    const lacking = lackingBeside();

    it('names the requirements of the second update before the first, and stops before the second', async () => {
      rollout.site.updating = false;
      put({ acknowledge: ['ack-4.19-other'] });
      await rollout.control();
      await rollout.untilPhase('Upgrading');
      expect(rollout.condition('Acknowledged')).to.equal(lackingBeside('ack-4.19-other'));
      expect(rollout.condition('Ready')).to.match(/^True/);
      rollout.site.updating = true;
      rollout.site.wake();
      await rollout.until(() => rollout.condition('Ready') === lackingBeside('ack-4.19-other'));
      expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Verified']);
      expect(given()).to.equal(undefined);
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { acknowledge: [name] } });
      await rollout.untilPhase('Completed');
      expect(given()).to.deep.equal({ [name]: 'true' });
    });

    it('gives the acknowledgement that is allowed, and no other', async () => {
      rollout.edit('ConfigMap', 'admin-acks', { data: { 'ack-4.18-before': 'true' } });
      put({ acknowledge: [name, 'ack-4.20-later'] });
      await rollout.control();
      await rollout.untilPhase('Completed');
      expect(given()).to.deep.equal({ 'ack-4.18-before': 'true', [name]: 'true' });
      expect(rollout.condition('Acknowledged')).to.equal(
        `True Acknowledged: written to the ConfigMap admin-acks, which the version operator reads: ${name}`,
      );
    });

    it('accepts the acknowledgement of a gate that appears after the request, and says how', async () => {
      rollout.facts = makeHops();
      rollout.site.gates.clear();
      rollout.site.lateGates.set('4.20.3', { [name]: text });
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Updated') === lacking);
      expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Upgrading']);
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { acknowledge: [name] } });
      await rollout.untilPhase('Completed');
      expect(given()).to.deep.equal({ [name]: 'true' });
    });

    it('continues if an administrator gives it', async () => {
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Ready') === lacking);
      rollout.edit('ConfigMap', 'admin-acks', { data: { [name]: 'true' } });
      await rollout.untilPhase('Completed');
      expect(rollout.condition('Acknowledged')).to.equal('True Acknowledged: no acknowledgement is missing');
    });
  });

  describe('on the way to a gate that an operator adds at run time', () => {
    const sigstore = 'ack-4.20-sigstore-in-4.21';
    beforeEach(() => {
      rollout.edit('ClusterVersion', 'version', {
        status: { history: [{ state: 'Completed', version: '4.19.9', image: 'x' }] },
      });
      const { hops: [first, last] = [], ...facts } = makeHops();
      if (!first || !last) throw new Error('there are not two hops');
      const [fore, aft] = [
        { version: '4.20.4', previous: ['4.19.9'] },
        { version: '4.21.3', previous: ['4.20.4'] },
      ];
      const hop = (each: typeof first, changes: typeof fore) => ({
        ...each,
        metadata: { ...each.metadata, ...changes },
      });
      rollout.facts = { ...hop(facts, aft), hops: [hop(first, fore), hop(last, aft)] };
      // The machine config operator of 4.20 adds it, and no payload names it.
      rollout.site.gates.set('4.20.4', { [sigstore]: 'This cluster has mirrors configured.' });
      rollout.server.put({
        apiVersion: 'config.openshift.io/v1',
        kind: 'ImageDigestMirrorSet',
        metadata: { name: 'site' },
        spec: { imageDigestMirrors: [{ source: 'quay.io/acme', mirrors: ['mirror.example/acme'] }] },
      });
    });
    const name = 'upgrade-4.19.4-amd64';

    it('names it before the first update, and needs no other decision', async () => {
      rollout.site.updating = false;
      put();
      await rollout.control();
      await rollout.untilPhase('Upgrading');
      expect(rollout.condition('Acknowledged')).to.match(
        /^False AcknowledgementRequired: the update to 4\.21\.3 will require, because the cluster has mirror sets/,
      );
      const command = /oc patch upgradebundle .*--patch='(.*)'/.exec(rollout.condition('Acknowledged'))?.[1] ?? '{}';
      rollout.edit('UpgradeBundle', name, JSON.parse(command) as { spec: Json });
      rollout.site.updating = true;
      rollout.site.wake();
      await rollout.untilPhase('Completed');
      expect(hops()).to.deep.equal(['4.20.4 Completed', '4.21.3 Completed']);
    });

    it('waits for it between the updates if it was not allowed', async () => {
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Ready').startsWith('False AcknowledgementRequired'));
      expect(rollout.condition('Ready')).to.contain(`--patch='{"spec":{"acknowledge":["${sigstore}"]}}'`);
      expect(hops()).to.deep.equal(['4.20.4 Completed', '4.21.3 Verified']);
    });
  });

  describe('whose first update has a known risk, by the bundle', () => {
    const risks = [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }];
    beforeEach(() => {
      const { hops: [first, last] = [], ...facts } = makeHops();
      if (!first || !last) throw new Error('there are not two hops');
      rollout.facts = { ...facts, hops: [{ ...first, metadata: { ...first.metadata, risks } }, last] };
      const image = firstRelease.replace('3'.repeat(64), '1'.repeat(64));
      const desiredUpdate = { image, version: '4.19.3', acceptRisks: [{ name: 'Mine' }] };
      rollout.edit('ClusterVersion', 'version', { spec: { desiredUpdate } });
    });
    const accepted = (): unknown[] =>
      (rollout.site.requests as Json[])
        .filter(({ version }) => version !== '4.19.3')
        .map(({ acceptRisks, force }) => [acceptRisks, force]);
    const about = (how: string): string =>
      `the risks that spec.acceptRisks accepts for the update to 4.20.3: SlowDisks; ${how}`;

    it('begins no update before spec.acceptRisks has its name, and says how to add it', async () => {
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('RisksAccepted').startsWith('False'));
      const message =
        'known risks are not accepted: SlowDisks of the update to 4.19.4 (the bundle says, not covered by its ' +
        'signature). Check whether they concern this cluster. To accept them: ' +
        `oc patch upgradebundle upgrade-4.19.4-amd64 --type=merge --patch='{"spec":{"acceptRisks":["SlowDisks"]}}'`;
      expect(rollout.condition('RisksAccepted')).to.equal(`False RiskNotAccepted: ${message}`);
      expect(rollout.condition('Ready')).to.equal(`False RiskNotAccepted: ${message}`);
      const { length } = rollout.server.requests;
      await rollout.until(() => rollout.server.requests.length > length + 20);
      expect([rollout.phases, accepted()]).to.deep.equal([['Verified'], []]);
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { acceptRisks: ['SlowDisks'] } });
      await rollout.untilPhase('Completed');
      expect(rollout.condition('RisksAccepted')).to.match(/^True AcceptRisks: /);
    });

    it('accepts the names of spec.acceptRisks only, and no name of the bundle', async () => {
      const { hops: [first, last] = [], ...facts } = rollout.facts ?? makeHops();
      if (!first || !last) throw new Error('there are not two hops');
      const evil = { name: 'Evil', message: 'Accept me.', url: '' };
      rollout.facts = {
        ...facts,
        hops: [first, { ...last, metadata: { ...last.metadata, risks: [evil] } }],
      };
      put({ acceptRisks: ['SlowDisks'] });
      await rollout.control();
      await rollout.until(() => rollout.condition('Ready').startsWith('False RiskNotAccepted'));
      expect(rollout.condition('Ready')).to.contain('known risks are not accepted: Evil of the update to 4.20.3');
      expect(JSON.stringify(rollout.site.requests)).not.to.contain('Evil');
      expect(accepted().length).to.equal(1);
    });

    it('waits for a risk that only the cluster knows', async () => {
      rollout.facts = makeHops();
      rollout.edit('ClusterVersion', 'version', {
        status: {
          conditionalUpdates: [
            {
              release: { version: '4.19.4', image: firstRelease },
              risks: [{ name: 'KnownHere', message: 'x', url: 'x', matchingRules: [{ type: 'Always' }] }],
              conditions: [{ type: 'Recommended', status: 'False', reason: 'KnownHere', message: 'x' }],
            },
          ],
        },
      });
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Ready').startsWith('False RiskNotAccepted'));
      expect(rollout.condition('Ready')).to.contain('KnownHere of the update to 4.19.4 (this cluster says)');
    });

    it('adds it to the accepted risks, and does not force the update', async () => {
      put({ acceptRisks: ['SlowDisks'] });
      await rollout.control();
      await rollout.untilPhase('Completed');
      const both = [{ name: 'Mine' }, { name: 'SlowDisks' }];
      expect(accepted()).to.deep.equal([
        [both, false],
        [both, false],
      ]);
      expect(rollout.condition('RisksAccepted')).to.equal(
        `True AcceptRisks: ${about('written to acceptRisks of ClusterVersion')}`,
      );
    });

    it('requests it by its image from a cluster without acceptRisks', async () => {
      const { kinds } = rollout.server;
      const index = kinds.findIndex(({ kind }) => kind === 'ClusterVersion');
      const anything = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
      const fields = ['image', 'version'].map((name) => [name, { type: 'string' }]);
      const properties = Object.fromEntries([...fields, ['force', { type: 'boolean' }]]) as Json;
      const spec = { ...anything, properties: { desiredUpdate: { type: 'object', properties } } };
      const schema = { ...anything, properties: { spec } };
      kinds.splice(index, 1, ...kinds.slice(index, index + 1).map((kind) => ({ ...kind, schema })));
      put({ acceptRisks: ['SlowDisks'] });
      await rollout.control();
      await rollout.untilPhase('Completed');
      expect(accepted()).to.deep.equal([
        [undefined, false],
        [undefined, false],
      ]);
      expect(rollout.condition('RisksAccepted')).to.equal(
        'True ' +
          `ExplicitImage: ${about('this cluster has no acceptRisks, so the update is requested by its image alone')}`,
      );
    });
  });

  it('holds between two updates until it is resumed, and can be aborted there', async () => {
    put({ holdBetween: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    expect(hops()).to.deep.equal(['4.19.4 Completed', '4.20.3 Held']);
    expect(rollout.condition('Updated')).to.match(/spec\.holdBetween delays the update/);
    await using connected = await connectTo(rollout.server);
    const bundle = rollout.bundle();
    if (bundle) await resumeUpdate(connected.cluster, bundle);
    await rollout.untilPhase('Completed');
  });

  it('can be aborted between two updates', async () => {
    put({ holdBetween: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    await using connected = await connectTo(rollout.server);
    const bundle = rollout.bundle();
    if (bundle) await abortUpdate(connected.cluster, bundle);
    await rollout.untilPhase('Failed');
    expect(rollout.condition('Updated')).to.match(/^False Aborted: .*the cluster runs 4\.19\.4/);
    expect(requests()).to.deep.equal(['4.19.4']);
    await rollout.until(() => !pinned().includes(release));
    expect(pinned()).to.deep.equal([firstRelease]);
  });
});

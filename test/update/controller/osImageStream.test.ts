import { expect } from 'chai';
import { streamAnnotations, type OSImageStreams } from '../../../lib/release/payload/osImageStreams.ts';
import { accountPolicies } from '../../../lib/update/install/accountPolicies.ts';
import { agentAccess } from '../../../lib/update/install/agentAccess.ts';
import { userOf } from '../../../lib/update/record/accountAccess.ts';
import type { BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import type { ControllerBuild, Outcome } from '../../fakes/cluster/machineConfigController.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { makeFacts, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import { readRights } from '../../fakes/kubernetes/apiRights.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const operator = platformImage('c');
const commit = 'd20efd9b9bdb278b533916ecc7c1e451e68cc3b8';
const streams: OSImageStreams = {
  version: '5.0.1',
  featureSets: ['Default'],
  commit,
  commitSource: 'image',
  problems: [],
  availableStreams: [
    { name: 'rhel-10', osImage: platformImage('3'), osExtensionsImage: platformImage('4') },
    { name: 'rhel-9', osImage: platformImage('1'), osExtensionsImage: platformImage('2') },
  ],
};

/** The facts of a bundle of 5.0.1, for clusters of 4.22.3 or 5.0.0. */
function factsOf(own: OSImageStreams | undefined = streams): BundleFacts {
  const made = makeFacts({ version: '5.0.1', previous: ['4.22.3', '5.0.0'] });
  const components = { ...made.metadata.components, 'machine-config-operator': operator };
  return { ...made, metadata: { ...made.metadata, components }, streams: own };
}

describe('the OSImageStream of an update', () => {
  let rollout: RolloutSite;
  const build: ControllerBuild = { version: '5.0.1', commit, image: operator, hasStreams: true };
  const start = async (openshift = '4.22.3', options = {}): Promise<void> => {
    rollout = await RolloutSite.start({ openshift, ...options });
    rollout.facts = factsOf();
    rollout.site.builds.set('5.0.1', build);
    rollout.site.controller.streams = streams.availableStreams;
    rollout.site.controller.deploy({
      version: openshift,
      commit: '0'.repeat(40),
      image: platformImage('9'),
      hasStreams: openshift.startsWith('5'),
    });
  };
  const begin = (): void => void rollout.server.put(upgradeBundle());
  const find = () => rollout.all('OSImageStream')[0];
  const attempt = (): Outcome => {
    const outcome = rollout.site.controller.attempt();
    rollout.site.wake();
    return outcome;
  };
  const notes = (): unknown => find()?.metadata['annotations'];
  const wanted = { [streamAnnotations.version]: commit, [streamAnnotations.payload]: release };
  const condition = (): string => rollout.condition('StreamsDescribed');
  /** An OSImageStream as the controller of 5.0.0 has made it. */
  const putEarlier = (): void => {
    const annotations = { [streamAnnotations.version]: '0'.repeat(40), [streamAnnotations.payload]: 'earlier' };
    const status = { availableStreams: [{ ...streams.availableStreams[1] }], defaultStream: 'rhel-9' };
    const object = { apiVersion: machines, kind: 'OSImageStream', metadata: { name: 'cluster', annotations } };
    rollout.server.put({ ...object, spec: { defaultStream: 'rhel-9' }, status });
  };
  /** Lets machine-config-controller have led for a time. */
  const leadFor = (minutes: number): void => {
    const { metadata } =
      rollout.all('Lease').find(({ metadata: { name } }) => name === 'machine-config-controller') ?? {};
    const acquireTime = new Date(Date.now() - minutes * 60_000).toISOString().replace('Z', '000Z');
    const spec = { holderIdentity: `${rollout.all('Pod').at(-1)?.metadata.name ?? ''}_1`, acquireTime };
    rollout.server.put({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { ...metadata }, spec });
  };
  const putMirrors = (name: string): void => {
    const mirror = { source: release.split('@')[0] ?? '', mirrors: ['mirror.example.com/ocp/release'] };
    const set = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata: { name } };
    rollout.server.put({ ...set, spec: { imageDigestMirrors: [mirror] } });
  };
  afterEach(() => rollout.close());

  it('is written before machine-config-controller of the release needs it, which asks no registry', async () => {
    await start();
    rollout.site.updating = false;
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Verified')).to.equal(
      'True Verified: it is 5.0.1; 5.0.1 needs its operating system streams described in the cluster',
    );
    expect(rollout.site.controller.requests).to.equal(0);
    expect(notes()).to.deep.equal(wanted);
    expect(find()?.['status']).to.deep.equal({
      availableStreams: streams.availableStreams,
      defaultStream: 'rhel-9',
    });
    expect(condition()).to.equal(
      'True Described: OSImageStream “cluster” has the streams of 5.0.1, commit d20efd9b9bdb',
    );
  });

  it('waits until the version operator accepts the release and defines OSImageStream', async () => {
    await start();
    rollout.site.builds.clear();
    Object.assign(rollout.site, { noticing: false, updating: false });
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('False NotRequested'));
    rollout.site.noticing = true;
    rollout.site.wake();
    await rollout.until(() => condition().startsWith('False NotServed'));
    expect(rollout.condition('Stalled')).not.to.match(/^True/);
    rollout.site.controller.define(build);
    await rollout.until(() => condition().startsWith('True Described'));
  });

  it('stays described while no pod of the controller runs', async () => {
    await start();
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    for (const { metadata } of rollout
      .all('Pod')
      .filter(({ metadata: { name } }) => name.startsWith('machine-config-controller')))
      rollout.remove('Pod', metadata.name, metadata.namespace);
    const reads = (): number =>
      rollout.server.requests.filter(({ path }) => path.endsWith('osimagestreams/cluster')).length;
    const before = reads();
    await rollout.until(() => reads() >= before + 3);
    expect(condition()).to.match(/^True Described/);
  });

  it('waits for the end of a controller that still renders from it, and keeps its default stream', async () => {
    await start('5.0.0');
    putEarlier();
    rollout.site.controller.lingers = true;
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('False EarlierController'));
    expect(notes()).to.include({ [streamAnnotations.payload]: 'earlier' });
    rollout.site.controller.end();
    await rollout.until(() => condition().startsWith('True Described'));
    attempt();
    await rollout.untilPhase('Completed');
    expect(notes()).to.deep.equal(wanted);
  });

  it('is completed by another controller of ours after the first one was killed between its two writes', async () => {
    await start();
    rollout.server.fault(/osimagestreams\/cluster\/status/, { answer: { status: 500 } });
    const first = await rollout.control();
    begin();
    await rollout.until(() => notes() !== undefined);
    expect(find()?.['status']).to.equal(undefined);
    await rollout.until(() => condition().startsWith('False NotWritten'));
    await rollout.until(() => rollout.condition('Stalled').startsWith('True Failing: the OSImageStream of 5.0.1'));
    first.crash();
    rollout.server.clearFaults();
    await rollout.control('worker-0');
    await rollout.until(() => condition().startsWith('True Described'));
    expect(find()?.['status']).to.include({ defaultStream: 'rhel-9' });
  });

  it('is written again if it is gone, or for another release image', async () => {
    await start();
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    rollout.remove('OSImageStream', 'cluster');
    await rollout.until(() => notes() !== undefined);
    putEarlier();
    await rollout.until(() => JSON.stringify(notes()) === JSON.stringify(wanted));
  });

  it('that is gone after the update is named, and no longer counts as described', async () => {
    await start();
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    attempt();
    await rollout.untilPhase('Completed');
    expect(condition()).to.match(/^True Described/);
    rollout.remove('OSImageStream', 'cluster');
    await rollout.until(() => condition().startsWith('False Gone'));
    expect(condition()).to.match(
      /OSImageStream “cluster” is gone: .*describe it again: oc adm-upgrade-bundle streams$/,
    );
    expect(rollout.bundle()?.status?.phase).to.equal('Completed');
  });

  it('is not written if the cluster has a mirror, which machine-config-controller reads', async () => {
    await start();
    putMirrors('site');
    rollout.server.put({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'pull-secret', namespace: 'openshift-config' },
    });
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('False Mirror'));
    expect(find()).to.equal(undefined);
    const images = streams.availableStreams.flatMap((each) => [each.osImage, each.osExtensionsImage]);
    rollout.site.controller.registry = { release: true, images };
    attempt();
    await rollout.untilPhase('Completed');
    expect(condition()).to.match(/^True Described/);
  });

  it('is also written if the only mirrors are ours on the control plane', async () => {
    await start();
    putMirrors('oc-upgrade-bundle');
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
  });

  it('needs no mirror once it is described: the controller that waits only has to try again', async () => {
    await start();
    rollout.site.builds.set('5.0.1', { ...build, commit: 'e'.repeat(40) });
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    expect(attempt()).to.equal('blocked');
    putMirrors('site');
    rollout.server.fault(/\/log\?/, { answer: { status: 500 } });
    leadFor(11);
    await rollout.until(() => condition().startsWith('False ControllerWaits'));
    expect(condition()).to.include('otherwise delete its pod').and.not.to.include('push the release');
  });

  it('follows the log of the controller if that compares another commit, and reports its wait', async () => {
    const other = 'e'.repeat(40);
    await start();
    rollout.site.builds.set('5.0.1', { ...build, commit: other });
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    expect(notes()).to.deep.equal(wanted);
    expect(attempt()).to.equal('blocked');
    leadFor(8);
    const reads = (): number =>
      rollout.server.requests.filter(({ path }) => path.endsWith('/leases/machine-config-controller')).length;
    const before = reads();
    await rollout.until(() => reads() >= before + 3);
    expect(condition()).to.match(/^True Described/);
    expect(rollout.condition('Stalled')).not.to.match(/^True/);
    leadFor(11);
    rollout.server.fault(/\/log\?/, { answer: { status: 500 } });
    await rollout.until(() => condition().startsWith('False ControllerWaits'));
    expect(condition()).not.to.include('its log');
    rollout.server.clearFaults();
    await rollout.until(() => condition().includes('its log'));
    expect(condition()).to.match(
      /machine-config-controller of 5\.0\.1 has waited since \S+ for its operating system streams; its log ends with “.*unable to retrieve any OSImageStream.*”; it tries again every 5 minutes; otherwise delete its pod, whose successor leads within 3 minutes: oc delete pod/,
    );
    expect(rollout.condition('Stalled')).to.match(/^True Failing: machine-config-controller of 5\.0\.1 has waited/);
    await rollout.until(() => JSON.stringify(notes()).includes(other));
    expect(attempt()).to.equal('taken');
    await rollout.untilPhase('Completed');
    expect(condition()).to.equal(
      'True Described: OSImageStream “cluster” has the streams of 5.0.1, commit eeeeeeeeeeee',
    );
    expect(rollout.condition('Stalled')).to.match(/^False/);
  });

  it('that cannot be described blocks the update before nodes load', async () => {
    await start();
    const problems = ['the commit that machine-config-operator was built from is unknown'];
    rollout.facts = factsOf({ ...streams, commit: undefined, problems });
    await rollout.control();
    begin();
    await rollout.until(() => rollout.condition('Ready').startsWith('False Blocked'));
    expect(rollout.condition('Ready')).to.include(
      'the operating system streams of 5.0.1 cannot be described: the commit that machine-config-operator was ' +
        'built from is unknown',
    );
    expect(rollout.bundle()?.status?.phase).to.equal('Verified');
  });

  it('is not described for a release that does not need it', async () => {
    await start();
    rollout.facts = factsOf({ ...streams, featureSets: ['TechPreviewNoUpgrade'] });
    rollout.site.builds.set('5.0.1', { ...build, hasStreams: false });
    await rollout.control();
    begin();
    await rollout.untilPhase('Completed');
    expect(condition()).to.equal(' : ');
    expect(find()).to.equal(undefined);
  });

  it('needs no right that the controller does not have, under its policies', async () => {
    const refused: string[] = [];
    const isAllowed = readRights(agentAccess());
    const allow = (attempt: Attempt): boolean => {
      const allowed = isAllowed(attempt);
      if (!allowed) refused.push(`${attempt.verb} ${attempt.resource} ${attempt.namespace} ${attempt.name}`);
      return allowed;
    };
    await start('5.0.0', { tokens: new Map([['t', userOf('controller')]]), allow, policies: true });
    for (const policy of accountPolicies()) rollout.server.put({ ...policy });
    putEarlier();
    await rollout.control();
    begin();
    await rollout.until(() => condition().startsWith('True Described'));
    attempt();
    await rollout.untilPhase('Completed');
    expect(refused).to.deep.equal([]);
    expect(notes()).to.deep.equal(wanted);
  });
});

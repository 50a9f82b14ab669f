import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import { abortUpdate, awaitAbort } from '../../../lib/update/record/bundleRecord.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, platformImage } from '../../fakes/cluster/site.ts';
import { makeFacts, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';
import { Refusal, statusAnswer } from '../../fakes/kubernetes/apiStatus.ts';
import { connectTo } from '../../support/cluster.ts';

const usual = ['Verified', 'Loading', 'Loaded', 'Pinned', 'Upgrading', 'Completed'];

describe('controlRollout', () => {
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
  const signatures = (): number =>
    rollout.all('ConfigMap').filter(({ metadata }) => metadata.namespace === 'openshift-config-managed').length;

  it('loads and keeps the bundle of the running release in every mirror, and changes nothing else', async () => {
    await start();
    const mirror = await rollout.addMirror();
    const running = { version: '4.19.4', image: release };
    const status = { desired: running, history: [{ state: 'Completed', ...running }] };
    rollout.edit('ClusterVersion', 'version', { status });
    const own = ['UpgradeBundle', 'PinnedImageSet', 'MachineConfigNode', 'Lease', 'Event'];
    const everything = (): unknown[] =>
      rollout.server.kinds
        .filter(({ kind }) => !own.includes(kind))
        .flatMap(({ kind }) => rollout.all(kind))
        .map(({ metadata: { name, annotations = {} }, ...object }) => ({ ...object, name, annotations }));
    const before = everything();
    await rollout.control();
    put();
    await rollout.until(() => rollout.condition('Updated').startsWith('False MirrorNotReady'));
    mirror.fault(/manifests/, { answer: { status: 200 } });
    await rollout.untilPhase('Completed');
    expect(rollout.phases).to.deep.equal(usual.filter((phase) => phase !== 'Upgrading'));
    expect(everything()).to.deep.equal(before);
    expect(rollout.bundle()?.status?.nodesReady).to.equal('3/3');
    expect(rollout.bundle()?.status?.backups).to.equal(undefined);
  });

  it('leads an update from an UpgradeBundle to the end', async () => {
    await start();
    const before = paused();
    await rollout.control();
    put();
    await rollout.untilPhase('Completed');
    expect(rollout.phases).to.deep.equal(usual);
    expect(rollout.site.requests).to.deep.equal([{ image: release, version: '4.19.4', force: false }]);
    expect(signatures()).to.equal(1);
    expect(pins()).to.deep.equal(['oc-upgrade-bundle-dddddddddddd-master', 'oc-upgrade-bundle-dddddddddddd-worker']);
    const { version, release: image, nodesReady, progress, turn, observedGeneration } = rollout.bundle()?.status ?? {};
    expect({ version, image, nodesReady, progress, turn, observedGeneration }).to.deep.equal({
      version: '4.19.4',
      image: release,
      nodesReady: '3/3',
      progress: '100%',
      turn: undefined,
      observedGeneration: 1,
    });
    for (const type of ['Verified', 'Ready', 'Loaded', 'Pinned', 'Updated']) {
      expect(rollout.condition(type), type).to.match(/^True /);
    }
    expect(paused()).to.deep.equal(before);
  });

  it('reports why the facts are unknown, or why it is stalled, and continues afterwards', async () => {
    await start();
    rollout.unreadable = new PluginError('denied', 'nobody may list pods');
    put();
    const controller = await rollout.control();
    await rollout.until(() => rollout.condition('Stalled').startsWith('True'));
    expect(rollout.condition('Stalled')).to.equal('True Failing: the bundle cannot be verified: nobody may list pods');
    rollout.unreadable = undefined;
    rollout.server.fault(/pinnedimagesets\/oc-upgrade-bundle/, { answer: { status: 403 } });
    await rollout.until(() => rollout.condition('Stalled').startsWith('True Failing: the rollout cannot continue: '));
    expect(rollout.bundle()?.status?.phase).to.equal('Loaded');
    await controller.stop();
    await rollout.control('worker-0');
    rollout.server.clearFaults();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Stalled')).to.match(/^False Progressing/);
  });

  it('keeps the bundle of the running release although the version operator fails for another reason', async () => {
    await start();
    const running = { version: '4.19.4', image: release };
    const history = [{ state: 'Completed', completionTime: '2020-01-01T00:00:00Z', ...running }];
    const conditions = [{ type: 'Failing', status: 'True', message: 'ClusterOperator insights is degraded' }];
    rollout.edit('ClusterVersion', 'version', { status: { desired: running, history, conditions } });
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Updated')).to.equal('True Updated: the cluster runs 4.19.4 already: nothing was updated');
    expect(rollout.site.requests).to.deep.equal([]);
  });

  it('says of a completed update that a node has lost images, and that it has them again', async () => {
    await start();
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    const keeps = rollout.bundle()?.metadata.uid ?? expect.fail('there is no record');
    const report = (imagesLoaded: number): void => {
      const phase = imagesLoaded === 14 ? 'Pinned' : 'Waiting';
      const progress = { name: 'worker-0', phase, imagesLoaded, imagesTotal: 14, bytes: 0 } as const;
      rollout.server.put(formatNodeReport({ bundle: '', keeps, version: '4.19.4', progress }));
    };
    report(13);
    await rollout.until(() => rollout.condition('Loaded').startsWith('False ImagesLost: worker-0 has 13 of 14 images'));
    expect(rollout.bundle()?.status?.nodes?.find(({ name }) => name === 'worker-0')?.imagesLoaded).to.equal(13);
    report(14);
    await rollout.until(() => rollout.condition('Loaded').startsWith('True Loaded'));
    expect(rollout.bundle()?.status?.phase).to.equal('Completed');
  });

  it('has nodes of the control plane load one at a time', async () => {
    await start();
    for (const name of ['master-1', 'master-2']) rollout.server.put(node(name, 'master'));
    await rollout.control();
    put();
    await rollout.untilPhase('Completed');
    expect(rollout.site.loadingAtOnce).to.equal(1);
    expect(rollout.bundle()?.status?.nodesReady).to.equal('5/5');
  });

  it('lets two controllers be there at once: one leads', async () => {
    await start();
    put();
    await Promise.all([rollout.control('master-0'), rollout.control('master-1')]);
    await rollout.untilPhase('Completed');
    expect(rollout.phases).to.deep.equal(usual);
    expect(rollout.site.requests).to.have.length(1);
  });

  it('reads again if an UpgradeBundle has changed since it was read', async () => {
    await start();
    const changed = statusAnswer(new Refusal(409, 'Conflict', 'the object has been modified'));
    const fault = rollout.server.fault(/^PATCH .*\/status/, { answer: changed }, { times: 2 });
    put();
    const { lines } = await rollout.control();
    await rollout.untilPhase('Completed');
    expect(fault.hits).to.equal(2);
    expect(lines.join('\n')).not.to.contain('cannot go on');
  });

  it('continues when the API server returns', async () => {
    await start();
    rollout.site.pinning = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Loaded');
    await rollout.until(() =>
      rollout.condition('Pinned').startsWith('False Pinning: images are not pinned yet on master-0'),
    );
    const gone = rollout.server.fault(/./, { noAnswer: 'reset' });
    rollout.server.dropConnections();
    await rollout.until(() => gone.hits > 10);
    rollout.site.pinning = true;
    rollout.server.clearFaults();
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(rollout.phases).to.deep.equal(usual);
  });

  it('pauses objects that add or replace nodes, except while the update is held, and paused ones', async () => {
    await start();
    rollout.server.put({
      apiVersion: 'machine.openshift.io/v1beta1',
      kind: 'MachineHealthCheck',
      metadata: { name: 'own', namespace: 'openshift-machine-api', annotations: { 'cluster.x-k8s.io/paused': '' } },
    });
    const before = paused();
    rollout.site.pinning = false;
    put({ hold: true });
    await rollout.control();
    await rollout.untilPhase('Loaded');
    const [own, workers, autoscaler] = paused();
    expect(own).to.equal(before[0]);
    expect(workers).to.contain('"cluster.x-k8s.io/paused":"true"').and.to.contain('"mine":"yes"');
    expect(autoscaler).to.contain('"maxNodesTotal":3,"cores":{"min":8,"max":128}},"scaleDown":{"enabled":false}}');
    rollout.site.pinning = true;
    rollout.site.wake();
    await rollout.untilPhase('Held');
    await rollout.until(() => JSON.stringify(paused()) === JSON.stringify(before));
    rollout.site.updating = false;
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
    await rollout.untilPhase('Upgrading');
    await rollout.collectGarbage();
    expect(paused()).not.to.deep.equal(before);
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(paused()).to.deep.equal(before);
  });

  it('leaves the cluster as it was when it is aborted before the update, or the UpgradeBundle is deleted', async () => {
    await start();
    const before = paused();
    put({ hold: true });
    await rollout.control();
    await rollout.untilPhase('Held');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', {
      metadata: { annotations: { 'upgrade-bundle.openshift.io/abort': 'true' } },
    });
    await rollout.untilPhase('Failed');
    expect([pins(), paused(), signatures(), rollout.site.requests]).to.deep.equal([[], before, 0, []]);
    for (const type of ['Ready', 'Pinned', 'Updated'])
      expect(rollout.condition(type), type).to.match(/^False Aborted: /);
    expect(rollout.condition('Loaded')).to.match(/^True /);
    rollout.site.pinning = false;
    put({}, {}, 'second');
    await rollout.untilPhase('Loaded', 'second');
    await rollout.until(() => pins().length === 2);
    rollout.remove('UpgradeBundle', 'second');
    await rollout.until(() => pins().length === 0 && JSON.stringify(paused()) === JSON.stringify(before));
  });

  it('has agents and controllers run in the image of the machine config daemon, which an update replaces', async () => {
    await start();
    const images = (): string[] =>
      rollout
        .all('DaemonSet')
        .filter(({ metadata }) => metadata.namespace === 'oc-upgrade-bundle')
        .map(({ spec }) => JSON.stringify(spec));
    expect(images().every((spec) => spec.includes(platformImage('d')))).to.equal(true);
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    await rollout.until(() => images().every((spec) => spec.includes(platformImage('e'))));
    expect(images()).to.have.length(2);
  });

  it('aborts an update that the version operator refuses: clears the request and restores paused objects', async () => {
    await start();
    const before = paused();
    rollout.site.refusing = true;
    put();
    await rollout.control();
    await rollout.until(() => rollout.condition('Updated').startsWith('False NotAccepted'));
    await using connected = await connectTo(rollout.server);
    const name = 'upgrade-4.19.4-amd64';
    const bundle = rollout.bundle(name);
    if (!bundle) throw new Error('there is no UpgradeBundle');
    await abortUpdate(connected.cluster, bundle);
    await awaitAbort(connected.cluster, name, { timeout: 20_000, interval: 10 }, connected.context);
    expect(rollout.condition('Updated')).to.match(/^False Aborted: /);
    expect([pins(), paused()]).to.deep.equal([[], before]);
    expect(rollout.all('ClusterVersion')[0]?.['spec']).not.to.have.property('desiredUpdate');
  });

  it('creates a record for a bundle that a node finds, and deletes it when the medium goes, unless it is allowed', async () => {
    await start();
    rollout.site.silent.add('worker-1');
    const names = (): string[] => rollout.all('UpgradeBundle').map(({ metadata: { name } }) => name);
    const find = (version?: string): void => {
      const proposal = version === undefined ? undefined : ({ version, arch: 'x86_64' } as const);
      const progress = { name: 'worker-1', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
      rollout.server.put({ ...formatNodeReport({ bundle: '', progress, proposal }) });
    };
    put({ bundle: {} }, { creationTimestamp: '2020-01-01T00:00:00Z' }, 'by-hand');
    await rollout.control();
    rollout.remove('UpgradeBundle', 'by-hand');
    find('4.19.4');
    await rollout.until(() => names().includes('4.19.4-x86-64'));
    put({ bundle: {} }, {}, 'by-hand');
    find('4.19.5');
    await rollout.until(() => !names().includes('4.19.4-x86-64'));
    rollout.remove('UpgradeBundle', 'by-hand');
    await rollout.until(() => names().includes('4.19.5-x86-64'));
    rollout.edit('UpgradeBundle', '4.19.5-x86-64', { spec: { bundle: { digest: makeFacts().digest } } });
    find();
    await rollout.untilPhase('Loading', '4.19.5-x86-64');
  });

  it('creates no record from a report on an UpgradeBundle that has ended, and writes none that it deletes', async () => {
    await start();
    rollout.site.silent.add('worker-1');
    put({ bundle: { file: '/var/lib/site/upgrade.tar' } }, {}, 'by-path');
    const controller = await rollout.control();
    await rollout.untilPhase('Detected', 'by-path');
    const progress = { name: 'worker-1', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
    const found = { proposal: { version: '4.19.4', arch: 'x86_64' } } as const;
    const report = (bundle = '', message?: string): void => {
      const more = message === undefined ? { progress } : { ...found, progress: { ...progress, message } };
      rollout.server.put({ ...formatNodeReport({ bundle, ...more }) });
    };
    const rounds = async (): Promise<void> => {
      const { length } = rollout.server.requests;
      await rollout.until(() => rollout.server.requests.length > length + 20);
    };
    report(rollout.bundle('by-path')?.metadata.uid, 'it is on /var/lib/site');
    await rollout.until(() => rollout.condition('Verified').includes('/var/lib/site'));
    rollout.remove('UpgradeBundle', 'by-path');
    await rounds();
    expect(rollout.all('UpgradeBundle')).to.deep.equal([]);
    report('', 'it is on /dev/sdb');
    await rollout.untilPhase('Detected', '4.19.4-x86-64');
    report(rollout.bundle('4.19.4-x86-64')?.metadata.uid, 'it is on /dev/sdb');
    await rollout.until(() => rollout.condition('Verified').includes('/dev/sdb'));
    // Then a change of the status is written at once.
    await sleep(200);
    report();
    await rollout.until(() => rollout.all('UpgradeBundle').length === 0);
    await rounds();
    expect(controller.lines.join('\n')).not.to.contain('cannot continue');
  });

  it('leads the allowed bundle though an older record waits for a digest, which does not block it', async () => {
    await start();
    put({ bundle: {} }, { creationTimestamp: '2020-01-01T00:00:00Z' }, 'proposal');
    put();
    await rollout.control();
    await rollout.untilPhase('Completed', 'upgrade-4.19.4-amd64');
  });

  it('cannot abort after the request to the cluster', async () => {
    await start();
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', {
      metadata: { annotations: { 'upgrade-bundle.openshift.io/abort': 'true' } },
    });
    await rollout.until(() => rollout.condition('Updated').includes('too late to abort'));
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
  });

  it('reports the wait of the cluster, and images that pods failed to pull', async () => {
    await start();
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    await rollout.until(() => rollout.condition('Updated').includes('pool worker has updated 1 of 2 nodes'));
    expect(rollout.condition('Updated')).to.contain('False Updating: Working towards 4.19.4');
    expect(rollout.bundle()?.status?.progress).to.equal('12%');
    const pulls = { web: 'quay.io/shop/web:latest', dns: platformImage('a') };
    for (const [name, image] of Object.entries(pulls)) {
      rollout.server.put({
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name, namespace: 'shop' },
        involvedObject: { kind: 'Pod', namespace: 'shop', name: `${name}-1` },
        reason: 'Failed',
        message: `Failed to pull image "${image}": dial tcp: no route to host`,
        lastTimestamp: new Date(Date.now() + 1000).toISOString(),
      });
    }
    await rollout.until(() => rollout.condition('ImagesMissing').startsWith('True NotInBundle'));
    expect(rollout.condition('ImagesMissing')).to.contain('quay.io/shop/web:latest, needed by shop/web-1');
    expect(rollout.condition('ImagesMissing')).to.contain(
      'needed by shop/dns-1, is in the bundle and was still pulled',
    );
    for (const name of Object.keys(pulls)) rollout.remove('Event', name, 'shop');
    await rollout.until(() => rollout.condition('ImagesMissing').startsWith('False NoneMissing'));
  });

  it('lists every node in the record of a completed update', async () => {
    await start();
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    for (const name of ['worker-1', 'worker-2']) rollout.site.silent.add(name);
    rollout.server.put(node('worker-2', 'worker'));
    const uid = rollout.bundle()?.metadata.uid ?? '';
    const progress = { name: 'worker-1', phase: 'Loaded', imagesLoaded: 3, imagesTotal: 3, bytes: 0 } as const;
    rollout.server.put({ ...formatNodeReport({ bundle: uid, progress }) });
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    const listed = rollout.bundle()?.status?.nodes?.map(({ name, phase, message }) => [name, phase, message]);
    expect(listed).to.deep.equal([
      ...['master-0', 'worker-0', 'worker-1'].map((name) => [name, 'Pinned', undefined]),
      ['worker-2', 'Waiting', 'its agent did not report during the update'],
    ]);
  });

  it('fails if the cluster gets another update meanwhile', async () => {
    await start();
    const before = paused();
    rollout.site.updating = false;
    put();
    await rollout.control();
    await rollout.untilPhase('Upgrading');
    rollout.edit('ClusterVersion', 'version', {
      spec: { desiredUpdate: { image: platformImage('7'), version: '4.19.9' } },
    });
    await rollout.untilPhase('Failed');
    expect(rollout.condition('Updated')).to.match(/^False Superseded: /);
    expect(paused()).to.deep.equal(before);
  });

  it('never forces an update, even if a user did before', async () => {
    await start();
    const forced = {
      image: `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}`,
      version: '4.19.3',
      force: true,
    };
    rollout.edit('ClusterVersion', 'version', { spec: { desiredUpdate: forced } });
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(rollout.site.requests.at(-1)).to.deep.equal({ image: release, version: '4.19.4', force: false });
  });

  it('reports a long wait with its cause, its begin and a remedy', async () => {
    await start();
    rollout.site.silent.add('worker-0');
    put();
    const first = await rollout.control();
    await rollout.until(() => rollout.condition('Loaded').includes('worker-0 does not have all images yet'));
    await rollout.until(() => rollout.bundle()?.status?.lastProgressTime !== undefined);
    expect(rollout.condition('Stalled')).to.equal(' : ');
    await first.stop();
    // The next controller continues with the time in the status.
    const time = new Date(Date.now() - 61 * 60_000).toISOString().replace(/\.\d+/, '');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', {
      status: { ...(rollout.bundle()?.status as Json), lastProgressTime: time },
    });
    await rollout.control('master-1');
    await rollout.until(() => rollout.condition('Stalled').startsWith('True NoProgress'));
    expect(rollout.condition('Stalled'))
      .to.contain(`no progress since ${time} (limit: 60 minutes); waiting: `)
      .and.contain('worker-0 does not have all images yet; check the agents of these nodes');
    rollout.site.silent.clear();
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Stalled')).to.match(/^False Progressing/);
  });
});

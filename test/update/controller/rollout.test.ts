import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import { abortUpdate, awaitAbort } from '../../../lib/update/record/bundleRecord.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, platformImage, withConditions } from '../../fakes/cluster/site.ts';
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

  describe('before it begins', () => {
    it('waits for a digest, and reports the bundles that were found meanwhile', async () => {
      await start();
      const before = paused();
      put({ bundle: {} });
      await rollout.control();
      await rollout.until(() => rollout.condition('Verified').startsWith('False NotAllowed'));
      expect(rollout.bundle()?.status?.phase).to.equal('Detected');
      expect([pins(), paused(), rollout.site.requests]).to.deep.equal([[], before, []]);
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', {
        spec: { bundle: { digest: upgradeBundle()['spec'] && makeFacts().digest } },
      });
      await rollout.untilPhase('Completed');
    });

    it('waits for the node of the controller to verify the bundle, and accepts no other', async () => {
      await start();
      rollout.facts = undefined;
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Verified').startsWith('False NotFound'));
      rollout.facts = { ...makeFacts(), digest: `sha256:${'e'.repeat(64)}` };
      await rollout.until(() => rollout.condition('Verified').startsWith('False OtherBundle'));
      expect(rollout.bundle()?.status?.phase).to.equal('Detected');
    });

    it('refuses a bundle with the allowed digest whose version or release is not the allowed one', async () => {
      await start();
      const other = `sha256:${'7'.repeat(64)}`;
      const { digest } = makeFacts();
      const refused: Record<string, Json> = {
        'the bundle that was found has the version 4.19.4, and 4.19.3 is allowed (spec.bundle.version)': {
          version: '4.19.3',
        },
        [`the bundle that was found has the release digest ${release.slice(-71)}, and ${other} is allowed (spec.bundle.releaseDigest)`]:
          { version: '4.19.4', releaseDigest: other },
      };
      await rollout.control();
      for (const [words, stated] of Object.entries(refused)) {
        put({ bundle: { digest, ...stated } });
        await rollout.until(() => rollout.condition('Verified') === `False OtherBundle: ${words}`);
        expect([pins(), rollout.site.requests, signatures()]).to.deep.equal([[], [], 0]);
        rollout.remove('UpgradeBundle', 'upgrade-4.19.4-amd64');
      }
      put({ bundle: { digest, version: '4.19.4', releaseDigest: release.slice(-71) } });
      await rollout.untilPhase('Completed');
    });

    it('refuses it also after the digest was verified', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      const bundle = { digest: makeFacts().digest, version: '4.19.5' };
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { bundle, hold: false } });
      await rollout.until(() => rollout.condition('Verified').startsWith('False OtherBundle'));
      expect(rollout.site.requests).to.deep.equal([]);
    });

    const healthy = { Available: 'True', Degraded: 'False' };
    const obstacles: Record<string, { prepare: () => void; repair?: () => void; words: string }> = {
      'a node of another architecture': {
        prepare: () => rollout.server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'arm64' } })),
        repair: () => rollout.server.put(node('worker-1', 'worker')),
        words: 'node/worker-1 is arm64, and the bundle of 4.19.4 is for x86_64',
      },
      'a node that is not ready': {
        prepare: () => rollout.edit('Node', 'worker-0', { status: { conditions: [] } }),
        repair: () => rollout.server.put(node('worker-0', 'worker')),
        words: 'node/worker-0 is not ready',
      },
      'an operator that is degraded': {
        prepare: () =>
          rollout.server.put(
            withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', { Degraded: 'True because of ice' }),
          ),
        repair: () => rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', healthy)),
        words: 'clusteroperator/etcd is degraded',
      },
      'a pool that is degraded': {
        prepare: () =>
          rollout.server.put(
            withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'worker', { Degraded: 'True' }),
          ),
        repair: () =>
          rollout.server.put(
            withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'worker', { Updated: 'True' }),
          ),
        words: 'machineconfigpool/worker is degraded',
      },
      'an update that is under way': {
        prepare: () =>
          rollout.edit('ClusterVersion', 'version', {
            status: { conditions: [{ type: 'Progressing', status: 'True', message: 'x' }] },
          }),
        repair: () => rollout.edit('ClusterVersion', 'version', { status: { conditions: [] } }),
        words: 'clusterversion/version is being updated: x',
      },
      'a version without a way from here': {
        prepare: () => {
          rollout.facts = makeFacts({ previous: ['4.19.1', '4.19.2'] });
        },
        words: 'from which there is no update to 4.19.4',
      },
      'a bundle too large for the nodes': {
        prepare: () => {
          rollout.facts = makeFacts({ blobs: [{ digest: makeFacts().digest, size: 40 * 2 ** 30 }] });
        },
        words: 'has 90 GiB only',
      },
      'another bundle that is not done': {
        prepare: () => put({}, { creationTimestamp: '2099-01-01T00:00:00Z' }, 'another'),
        repair: () => {
          rollout.remove('UpgradeBundle', 'another');
        },
        words: 'there are others',
      },
    };
    for (const [what, { prepare, repair, words }] of Object.entries(obstacles)) {
      it(`is blocked by ${what}, changes nothing${repair ? ', and continues when that is gone' : ''}`, async () => {
        await start();
        const before = paused();
        prepare();
        put();
        await rollout.control();
        await rollout.until(() => rollout.condition('Ready', 'upgrade-4.19.4-amd64').includes(words));
        expect([pins(), paused(), signatures(), rollout.site.requests]).to.deep.equal([[], before, 0, []]);
        if (!repair) return;
        repair();
        await rollout.until(() => rollout.condition('Ready', 'upgrade-4.19.4-amd64').startsWith('True'));
      });
    }

    it('looks again right before the update', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', { Degraded: 'True' }));
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
      await rollout.until(() => rollout.condition('Ready').startsWith('False Blocked'));
      expect(rollout.site.requests).to.deep.equal([]);
      rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', healthy));
      await rollout.untilPhase('Completed');
    });
  });

  describe('while nodes load', () => {
    it('names silent nodes, and waits for them', async () => {
      await start();
      rollout.site.silent.add('worker-1');
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Loaded').includes('worker-1 does not have'));
      expect(rollout.condition('Loaded')).to.contain('False NodesMissing: no report from worker-1');
      expect(rollout.bundle()?.status?.nodesReady).to.equal('2/3');
      rollout.site.silent.clear();
      rollout.site.wake();
      await rollout.untilPhase('Completed');
    });

    it('names the failed node and the error, and lets other control plane nodes load meanwhile', async () => {
      await start();
      rollout.server.put(node('master-1', 'master'));
      rollout.site.failing.set('master-0', 'the disk is full');
      put();
      await rollout.control();
      await rollout.until(() => rollout.bundle()?.status?.nodesReady === '3/4');
      expect(rollout.condition('Loaded')).to.contain('False NodesFailed: master-0: the disk is full');
      rollout.site.failing.clear();
      rollout.site.wake();
      await rollout.untilPhase('Completed');
      expect(rollout.site.loadingAtOnce).to.equal(1);
    });

    it('goes back to loading when a node joins before the update begins', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      rollout.site.silent.add('worker-2');
      rollout.server.put(node('worker-2', 'worker'));
      await rollout.untilPhase('Loading');
      expect(rollout.condition('Loaded')).to.contain('no report from worker-2');
      rollout.site.silent.clear();
      rollout.site.wake();
      await rollout.untilPhase('Held');
      expect(rollout.phases).to.deep.equal([...usual.slice(0, 4), 'Held', 'Loading', 'Loaded', 'Pinned', 'Held']);
      expect(rollout.bundle()?.status?.nodesReady).to.equal('4/4');
    });

    it('goes back to loading when a node joins before all images are pinned', async () => {
      await start();
      rollout.site.pinning = false;
      put();
      await rollout.control();
      await rollout.untilPhase('Loaded');
      rollout.site.silent.add('worker-2');
      rollout.server.put(node('worker-2', 'worker'));
      await rollout.untilPhase('Loading');
    });

    it('forgets nodes that are gone', async () => {
      await start();
      rollout.site.silent.add('worker-1');
      put();
      await rollout.control();
      await rollout.until(() => rollout.bundle()?.status?.nodesReady === '2/3');
      rollout.remove('Node', 'worker-1');
      await rollout.untilPhase('Completed');
      expect(rollout.bundle()?.status?.nodesReady).to.equal('2/2');
    });

    it('removes reports of nodes that are gone, by any writer', async () => {
      await start();
      rollout.site.failing.set('worker-1', 'the disk is full');
      put();
      await rollout.control();
      const said = (): unknown => rollout.bundle()?.status?.nodes?.find(({ name }) => name === 'worker-1')?.message;
      await rollout.until(() => said() === 'the disk is full');
      // As agents of an earlier version do.
      const entry = { name: 'worker-9', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 };
      const { apiVersion = '', kind = '', metadata } = rollout.bundle() ?? {};
      const served = rollout.server.kinds.find((known) => known.kind === kind);
      if (!served || !metadata) throw new Error('there is no UpgradeBundle');
      rollout.server.objects.apply(
        { kind: served, namespace: '', name: metadata.name },
        { apiVersion, kind, metadata: { name: metadata.name }, status: { nodes: [entry] } },
        { manager: 'agent-worker-9', dryRun: false, status: true },
        true,
      );
      rollout.remove('Node', 'worker-1');
      await rollout.untilPhase('Completed');
      expect(rollout.bundle()?.status?.nodes?.map(({ name }) => name)).to.deep.equal(['master-0', 'worker-0']);
      await rollout.until(() => rollout.all('Lease').every(({ metadata: { name } }) => name !== 'agent-worker-1'));
      expect(rollout.all('Lease')).to.have.length(3);
    });

    it('limits the messages of nodes to the room of the status', async () => {
      await start();
      const names = Array.from({ length: 100 }, (_, index) => `worker-${index + 10}`);
      for (const name of names) {
        rollout.server.put(node(name, 'worker'));
        rollout.site.failing.set(name, 'the disk is full '.repeat(200));
      }
      put();
      await rollout.control();
      await rollout.until(() => (rollout.bundle()?.status?.nodes ?? []).filter((each) => each.message).length === 100);
      expect(JSON.stringify(rollout.bundle()?.status).length).to.be.lessThan(300_000);
      expect(rollout.bundle()?.status?.nodes?.find(({ name }) => name === 'worker-10')?.message).to.have.length(1941);
    });
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

  it('names the images that no set can hold', async () => {
    await start();
    rollout.facts = makeFacts({ images: [release, `registry.example.com:5000/a/b/c@sha256:${'c'.repeat(64)}`] });
    put();
    await rollout.control();
    await rollout.untilPhase('Completed');
    expect(rollout.condition('Pinned')).to.match(/^True Pinned: .* except names .*registry.example.com:5000\/a\/b\/c@/);
  });
});

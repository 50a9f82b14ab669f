import { expect } from 'chai';
import { findLeftOut } from '../../../lib/readiness/preflight/preflight.ts';
import {
  node,
  nodesWithoutAgent,
  platformImage,
  podSpec,
  setFree,
  withConditions,
  workload,
} from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { PreflightSite, plan } from '../../support/release/preflightSite.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';
const next = platformImage('b');

describe('the preflight of nodes', () => {
  const site = new PreflightSite();
  const { start, run, find, messageOf } = site;
  afterEach(() => site.close());

  it('finds nodes that are down, cordoned or full, or of another architecture', async () => {
    await start();
    const conditions = [
      { type: 'Ready', status: 'Unknown' },
      { type: 'DiskPressure', status: 'True' },
    ];
    site.server.put(node('worker-0', 'worker', { conditions }));
    site.server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'arm64' } }, { unschedulable: true }));
    expect(await find()).to.deep.equal([
      'blocker nodes node/worker-0',
      'blocker nodes node/worker-0',
      'warning nodes node/worker-1',
    ]);
    expect(await messageOf('blocker nodes node/worker-1', plan)).to.equal(
      'is arm64, and the bundle of 4.19.4 is for x86_64',
    );
    expect(await find({ ...plan, arch: 'multi' })).not.to.include('blocker nodes node/worker-1');
  });

  it('reports images that are missing on nodes where pods may run, if that is known', async () => {
    await start();
    const image = platformImage('c');
    const nodeSelector = { 'node-role.kubernetes.io/worker': '' };
    site.server.put(
      workload('Deployment', 'c', 'openshift-dns', { template: { spec: { ...podSpec({ image }), nodeSelector } } }),
    );
    const images = [...Array(50).keys()].map((index) => ({ names: [`quay.io/large/image:${index}`] }));
    site.server.put(node('worker-1', 'worker', { images }));
    expect(await find()).to.deep.equal(['warning images node/worker-0', 'info images node/worker-1']);
    expect(await messageOf('warning images node/worker-0')).to.equal(`lacks images that pods may need there: ${image}`);
    expect(await messageOf('info images node/worker-1')).to.match(
      /^lists its 50 largest images only: whether it has 2 that pods/,
    );
    const spec = { kubeletConfig: { nodeStatusMaxImages: 2 } };
    site.server.put({ apiVersion: machines, kind: 'KubeletConfig', metadata: { name: 'short' }, spec });
    expect(await find()).to.deep.equal(['info images node/worker-0', 'info images node/worker-1']);
  });

  it('reports images that a bundle for a site leaves out and nodes lack', async () => {
    await start();
    const [kept, lost] = ['a', 'c'].map(platformImage);
    const [first, second] = ['1', '2'].map((digit) => ({ digest: `sha256:${digit.repeat(64)}` as const, size: 1 }));
    if (!first || !second || kept === undefined || lost === undefined) throw new Error('there are no images');
    const about = { version: '4.19.3', arch: 'x86_64', release: platformImage('1'), blobs: [first, second] };
    const base = { ...about, images: { [kept]: [first.digest, second.digest], [lost]: [second.digest] } };
    const ofSite = { ...plan, size: 0, base };
    expect(await find(ofSite)).to.deep.equal([]);
    const images = { [kept]: [first.digest], [lost]: [second.digest] };
    const message = `lacks a blob of ${lost}, which the bundle leaves out`;
    const changed = { ...ofSite, base: { ...base, images } };
    expect(await messageOf('blocker images node/worker-0', changed)).to.equal(message);
    const { cluster } = site.connected;
    expect((await findLeftOut(cluster, changed.base)).map(({ message: each }) => each)).to.include(message);
    const spec = { kubeletConfig: { nodeStatusMaxImages: 2 } };
    site.server.put({ apiVersion: machines, kind: 'KubeletConfig', metadata: { name: 'short' }, spec });
    expect(await messageOf('warning images node/worker-0', changed)).to.match(/^may lack .*, by its list of images$/);
  });

  it('counts images as present if they are pinned and reported as pinned', async () => {
    await start();
    const labels = { 'machineconfiguration.openshift.io/role': 'worker' };
    const pinnedImages = [{ name: next }];
    site.server.put({
      apiVersion: machines,
      kind: 'PinnedImageSet',
      metadata: { name: 'p', labels },
      spec: { pinnedImages },
    });
    const report = (name: string, degraded: string, generation = 1): void => {
      const conditions = { PinnedImageSetsProgressing: 'False', PinnedImageSetsDegraded: degraded };
      const object = withConditions(machines, 'MachineConfigNode', name, conditions);
      const pinnedImageSets = [{ name: 'p', currentGeneration: generation, desiredGeneration: 1 }];
      const status = { ...(object['status'] as Json), pinnedImageSets };
      site.server.put({ ...object, spec: { pool: { name: 'worker' } }, status });
    };
    report('worker-0', 'False');
    report('worker-1', 'True');
    const { findings } = await run(plan);
    expect(findings.map(({ subject }) => subject.name)).to.deep.equal(['master-0', 'worker-1']);
    report('worker-0', 'False', 0);
    report('worker-1', 'False');
    expect((await run(plan)).findings.map(({ subject }) => subject.name)).to.deep.equal(['master-0', 'worker-0']);
  });

  it('names nodes outside of the pools, and checks nothing else of them', async () => {
    await start();
    const conditions = [{ type: 'Ready', status: 'False' }];
    for (const each of nodesWithoutAgent)
      site.server.put({ ...each, status: { ...(each['status'] as Json), conditions } });
    expect(await find(plan)).to.deep.equal(['info nodes node/']);
    expect(await messageOf('info nodes node/')).to.equal(
      'in no machine config pool, and not checked: aci-0 (virtual kubelet), admiralty-0 (virtual kubelet), ' +
        'kwok-0 (virtual kubelet), tainted-0 (virtual kubelet), win-0 (Windows)',
    );
    expect((await run()).nodes).to.equal(3);
  });

  it('warns of an architecture that no agent exists for, and wants no space there', async () => {
    await start();
    site.server.put(node('z-0', 'worker', { nodeInfo: { architecture: 's390x' } }));
    setFree(site.server, 'z-0', 60);
    expect(await find({ ...plan, arch: 'multi' })).to.deep.equal(['warning nodes node/']);
    expect(await messageOf('warning nodes node/')).to.equal('no agent runs on z-0 (s390x)');
  });

  it('adds up the space that a bundle needs', async () => {
    await start();
    const absent = ['master-0', 'worker-0', 'worker-1'].map((name) => `info images node/${name}`);
    const fresh = { ...plan, images: [next] };
    setFree(site.server, 'master-0', 60);
    site.server.nodeStats.delete('worker-0');
    expect(await find(fresh)).to.deep.equal(['blocker space node/master-0', 'info space node/worker-0', ...absent]);
    expect(await messageOf('blocker space node/master-0', fresh)).to.equal(
      'has 60 GiB only; 68 GiB of free space are needed (48 GiB for the images, 2.0 GiB for two backups of ' +
        'etcd, the rest stays free)',
    );
    // Loaded images need no more space.
    expect(await messageOf('blocker space node/master-0', plan)).not.to.match(/GiB/);
    site.server.put(node('worker-0', 'worker', { allocatable: { 'ephemeral-storage': '50Gi' } }));
    expect(await find(fresh)).to.include('blocker space node/worker-0');
  });

  it('leaves a quarter of the disk of a control plane node that keeps bundles for a mirror free', async () => {
    await start();
    for (const name of ['master-0', 'worker-0']) setFree(site.server, name, 50);
    const space = async () => (await find(plan)).filter((line) => line.includes(' space '));
    expect(await space()).to.deep.equal([]);
    const set = { apiVersion: config, kind: 'ImageDigestMirrorSet', metadata: { name: 'oc-upgrade-bundle' }, spec: {} };
    site.server.put(set);
    expect(await space()).to.deep.equal(['blocker space node/master-0']);
    const annotations = { 'upgrade-bundle.openshift.io/mirror-content': 'metadata' };
    site.server.put({ ...set, metadata: { ...set.metadata, annotations } });
    expect(await space()).to.deep.equal([]);
  });
});

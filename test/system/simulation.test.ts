import { copyFile, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { digestOf, hexOf, type Digest } from '../../lib/content/oci/digest.ts';
import { gatherTrust, noTrust, type AgentTrust } from '../../lib/update/install/agentTrust.ts';
import type { Phase } from '../../lib/update/upgradeBundle.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { requireLoopDevices, type Drive } from '../support/loopDevice.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { pullspecsOf } from '../support/release/release.ts';
import { bundleName, SimulatedCluster } from '../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { withConditions } from '../fakes/cluster/site.ts';
import { listImages, requireRoot } from '../support/archive/storeReader.ts';

/** The time without the API server, in milliseconds. After a minute, the Lease would expire too. */
const cutTime = 5000;

describe('a cluster of three nodes', function () {
  requirePeer(this, 'skopeo', 'podman');
  let made: TestBundle;
  let digest: Digest;
  let trust: AgentTrust;
  let cluster: SimulatedCluster;

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    // The key is not in the payload. Agents have it from the installation.
    const files = { '0000_90_cluster-update-keys_configmap.yaml': undefined };
    made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 300_000, files });
    digest = digestOf(await readFile(made.path));
    const wanted = { fingerprints: [made.key.fingerprint], keyrings: [made.keyFile], allowUnsigned: false };
    trust = await gatherTrust(wanted, noTrust, makeContext());
  });
  // There is none if the suite is skipped.
  after(() => (made as TestBundle | undefined)?.remove());
  beforeEach(async () => {
    cluster = await SimulatedCluster.start({ trust });
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') {
      console.error(cluster.output);
      console.error(JSON.stringify(cluster.bundle()?.status, null, 1));
    }
    await cluster.close();
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  });

  const addNode = (name: string): Promise<SimulatedNode> => cluster.addNode(name, ['--disk-floor=1Mi']);
  const addNodes = (...names: string[]): Promise<SimulatedNode[]> => Promise.all(names.map(addNode));
  const plug = async (node: SimulatedNode): Promise<Drive> => {
    const image = await node.drives.makeImage(8);
    await runSuccessfully('dd', [`if=${made.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    return node.drives.plug(image);
  };
  const until = (condition: () => unknown): Promise<void> => cluster.until(condition);
  const phase = (): Phase | undefined => cluster.phase();
  const conditionOf = (type: string): string => cluster.condition(type);
  /** Checks all results of an update, on every node and in the cluster. */
  const expectUpdated = async (nodes: readonly SimulatedNode[], { release } = made): Promise<void> => {
    const { pullspec } = release;
    for (const node of nodes) {
      const reader = await makeFolder();
      const seen = await listImages({ kind: 'additional', path: node.store }, reader);
      await removeFolder(reader);
      expect(seen).to.include.members(pullspecsOf(release));
    }
    expect(cluster.site.requests).to.deep.equal([{ image: pullspec, version: '4.19.4', force: false }]);
    const signature = `sha256-${hexOf(release.digest)}`;
    expect(cluster.api.find('v1', 'ConfigMap', signature, 'openshift-config-managed')).not.to.equal(undefined);
    expect(cluster.names('PinnedImageSet')).to.have.length(2);
    expect(cluster.site.loadingAtOnce).to.be.at.most(1);
  };

  it('updates from an inserted USB drive to the new version without any manual step', async () => {
    cluster.allow(digest);
    const nodes = await addNodes('master-0', 'worker-0', 'worker-1');
    const [, worker] = nodes;
    if (worker) await plug(worker);
    await until(() => phase() === 'Completed');
    await expectUpdated(nodes);
    expect(cluster.bundle()?.status).to.include({ version: '4.19.4', nodesReady: '3/3', progress: '100%' });
  });

  it('updates while every agent is killed in every phase, and the API server is unreachable for a time', async () => {
    cluster.allow(digest);
    const nodes = await addNodes('master-0', 'worker-0', 'worker-1');
    const [master, worker] = nodes;
    if (!master || !worker) throw new Error('there are no nodes');
    // Keeps the update in a phase, so that the test can observe it.
    cluster.site.pinning = false;
    cluster.site.updating = false;
    const degrade = (degraded: string): void => {
      const conditions = { Available: 'True', Degraded: degraded, Upgradeable: 'True' };
      cluster.api.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', conditions));
    };
    const hold = (held: boolean): void => {
      cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', bundleName, { spec: { hold: held } });
    };
    /** Kills all agents and the controller in a phase, and checks that they resume in it. */
    const killAllIn = async (wanted: Phase, what: 'agent' | 'everything'): Promise<void> => {
      await until(() => phase() === wanted);
      for (const node of nodes) {
        await node.kill(what);
        node.start();
      }
      expect(phase()).to.equal(wanted);
    };
    degrade('True because of a test');
    await killAllIn('Detected', 'agent');
    await plug(worker);
    await killAllIn('Verified', 'everything');
    degrade('False');
    await killAllIn('Loading', 'agent');
    await until(() => nodes.some(({ name }) => cluster.progress(name)?.phase === 'Loading'));
    const restore = cluster.cut();
    await master.kill('everything');
    master.start();
    await sleep(cutTime);
    // Running agents must not flood the server when it returns.
    expect(nodes.map(({ runs }) => runs)).to.deep.equal([true, true, true]);
    const before = cluster.api.requests.length;
    restore();
    await sleep(2000);
    expect((cluster.api.requests.length - before) / nodes.length).to.be.below(50);
    await killAllIn('Loaded', 'agent');
    degrade('True because of a test');
    cluster.site.pinning = true;
    cluster.site.wake();
    await killAllIn('Pinned', 'everything');
    hold(true);
    await killAllIn('Held', 'agent');
    degrade('False');
    hold(false);
    await killAllIn('Upgrading', 'everything');
    cluster.site.updating = true;
    cluster.site.wake();
    await until(() => phase() === 'Completed');
    await expectUpdated(nodes);
  });

  it('uses the same bundle on two USB drives, one of which is removed while it is read; waits for a missing node, reports it, and continues when it joins late', async () => {
    cluster.allow(digest);
    const nodes = await addNodes('master-0', 'worker-0');
    const [, pulled] = await Promise.all(nodes.map(plug));
    await until(() => nodes.some(({ name }) => (cluster.progress(name)?.imagesTotal ?? 0) > 0));
    await pulled?.pull();
    await until(() => ['master-0', 'worker-0'].every((name) => cluster.progress(name)?.phase === 'Loaded'));
    await until(() => conditionOf('Loaded').includes('worker-1'));
    expect(conditionOf('Loaded')).to.match(/^False NodesMissing: no report from worker-1/);
    expect(phase()).to.equal('Loading');
    // A node that the cluster did not know joins too.
    nodes.push(...(await addNodes('worker-1', 'worker-2')));
    await until(() => phase() === 'Completed');
    await expectUpdated(nodes);
    expect(cluster.bundle()?.status?.nodesReady).to.equal('4/4');
  });

  it('loads a delta on all nodes with its base on one of two drives, and begins only when it is there', async () => {
    const base = await makeBundle({ version: '4.19.3', layerSize: 300_000 });
    const delta = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 300_000, base: base.path });
    const files = await makeFolder();
    try {
      for (const name of [delta.path, `${delta.path}.sha256`]) await copyFile(name, join(files, basename(name)));
      cluster.allow(digestOf(await readFile(delta.path)));
      const nodes = await addNodes('master-0', 'worker-0', 'worker-1');
      const [, worker, other] = nodes;
      if (!worker || !other) throw new Error('there is no node');
      const plugFiles = async (): Promise<Drive> =>
        worker.drives.plug(await worker.drives.makeExt4(files, 'UPDATE', 16));
      const first = await plugFiles();
      await until(() => /^False BaseMissing: .*master-0, worker-0, worker-1 do not/.test(conditionOf('Ready')));
      expect(phase()).to.equal('Verified');
      await first.pull();
      await copyFile(base.path, join(files, basename(base.path)));
      const second = await plugFiles();
      await until(() => phase() === 'Loading');
      await other.kill('everything');
      other.start();
      await until(() => ['Loaded', 'Pinned', 'Completed'].includes(phase() ?? ''));
      await second.pull();
      await until(() => phase() === 'Completed');
      await expectUpdated(nodes, delta);
    } finally {
      await removeFolder(files);
      await base.remove();
      await delta.remove();
    }
  });
});

import { copyFile, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { digestOf, hexOf, type Digest } from '../../lib/content/oci/reference.ts';
import type { AgentTrust } from '../../lib/update/install/agentTrust.ts';
import type { Phase } from '../../lib/update/record/upgradeBundle.ts';
import { bundleName, SimulatedCluster, gatherTrustIn } from '../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { withConditions } from '../fakes/cluster/site.ts';
import { listImages, requireRoot } from '../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { requireLoopDevices, type Drive } from '../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../support/release/release.ts';

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
    trust = await gatherTrustIn(made);
  });
  // There is none if the suite is skipped.
  after(() => (made as TestBundle | undefined)?.remove());
  const open = async (): Promise<void> => {
    cluster = await SimulatedCluster.start({ trust });
  };
  /** Checks that agents asked for nothing that they may not do. */
  const close = async (): Promise<void> => {
    await cluster.close();
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  };

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

  describe('with a USB drive', () => {
    beforeEach(open);
    afterEach(close);

    it('updates to the new version without any manual step', () =>
      cluster.play(async () => {
        cluster.allow(digest);
        const nodes = await addNodes('master-0', 'worker-0', 'worker-1');
        const [, worker] = nodes;
        if (worker) await plug(worker);
        await until(() => phase() === 'Completed');
        await expectUpdated(nodes);
        expect(cluster.bundle()?.status).to.include({ version: '4.19.4', nodesReady: '3/3', progress: '100%' });
      }));
  });

  describe('whose agents are killed in every phase, and whose API server is unreachable for a time', () => {
    let nodes: readonly SimulatedNode[];
    /** The phases in which agents were killed, and the phases after that. */
    const killed: Phase[] = [];
    const resumed: (Phase | undefined)[] = [];
    /** Whether each agent ran at the end of the time without the API server, and the requests after that. */
    let running: readonly boolean[];
    let requests: number;

    before(async () => {
      await open();
      await cluster.play(update);
    });
    after(close);

    const degrade = (degraded: string): void => {
      const conditions = { Available: 'True', Degraded: degraded, Upgradeable: 'True' };
      cluster.api.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', conditions));
    };
    const hold = (held: boolean): void => {
      cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', bundleName, { spec: { hold: held } });
    };
    /** Kills all agents, and also the controller, in a phase. */
    const killAllIn = async (wanted: Phase, what: 'agent' | 'everything'): Promise<void> => {
      await until(() => phase() === wanted);
      for (const node of nodes) {
        await node.kill(what);
        node.start();
      }
      killed.push(wanted);
      resumed.push(phase());
    };
    /** Makes the API server unreachable, and restarts the node with the controller. */
    const cutOff = async (): Promise<void> => {
      await until(() => nodes.some(({ name }) => cluster.progress(name)?.phase === 'Loading'));
      const [master] = nodes;
      const restore = cluster.cut();
      await master?.kill('everything');
      master?.start();
      await sleep(cutTime);
      running = nodes.map(({ runs }) => runs);
      const before = cluster.api.requests.length;
      restore();
      await sleep(2000);
      requests = cluster.api.requests.length - before;
    };

    async function update(): Promise<void> {
      cluster.allow(digest);
      nodes = await addNodes('master-0', 'worker-0', 'worker-1');
      // Keeps the update in a phase, so that the test can observe it.
      cluster.site.pinning = false;
      cluster.site.updating = false;
      degrade('True because of a test');
      await killAllIn('Detected', 'agent');
      await plug(nodes[1] ?? expect.fail('there are no nodes'));
      await killAllIn('Verified', 'everything');
      degrade('False');
      await killAllIn('Loading', 'agent');
      await cutOff();
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
    }

    it('resumes in each phase', () => {
      expect(resumed).to.deep.equal(killed);
    });

    it('runs its agents while the API server is unreachable', () => {
      expect(running).to.deep.equal([true, true, true]);
    });

    it('does not flood the API server when that returns', () => {
      expect(requests / nodes.length).to.be.below(50);
    });

    it('updates to the new version', async () => {
      await expectUpdated(nodes);
    });
  });

  describe('with two USB drives, of which one is removed while it is read, and without a node at first', () => {
    let nodes: readonly SimulatedNode[];
    let [waiting, waitingIn]: (string | undefined)[] = [];

    before(async () => {
      await open();
      await cluster.play(update);
    });
    after(close);

    async function update(): Promise<void> {
      cluster.allow(digest);
      const early = await addNodes('master-0', 'worker-0');
      const [, pulled] = await Promise.all(early.map(plug));
      await until(() => early.some(({ name }) => (cluster.progress(name)?.imagesTotal ?? 0) > 0));
      await pulled?.pull();
      await until(() => early.every(({ name }) => cluster.progress(name)?.phase === 'Loaded'));
      await until(() => conditionOf('Loaded').includes('worker-1'));
      [waiting, waitingIn] = [conditionOf('Loaded'), phase()];
      // A node that the cluster did not know joins too.
      nodes = [...early, ...(await addNodes('worker-1', 'worker-2'))];
      await until(() => phase() === 'Completed');
    }

    it('waits for the missing node, and names it', () => {
      expect(waiting).to.match(/^False NodesMissing: no report from worker-1/);
      expect(waitingIn).to.equal('Loading');
    });

    it('counts a node that it did not know', () => {
      expect(cluster.bundle()?.status?.nodesReady).to.equal('4/4');
    });

    it('updates to the new version', async () => {
      await expectUpdated(nodes);
    });
  });

  describe('with a delta and its base on a USB drive', () => {
    let nodes: readonly SimulatedNode[];
    let delta: TestBundle;
    let phaseWithoutBase: string | undefined;

    before(async () => {
      await open();
      const base = await makeBundle({ version: '4.19.3', layerSize: 300_000 });
      delta = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 300_000, base: base.path });
      const files = await makeFolder();
      try {
        await cluster.play(() => update(base, files));
      } finally {
        await removeFolder(files);
        await base.remove();
      }
    });
    after(async () => {
      await (delta as TestBundle | undefined)?.remove();
      await close();
    });

    /** Updates with the delta from one drive, and with its base from another, which is removed before the end. */
    async function update(base: TestBundle, files: string): Promise<void> {
      for (const name of [delta.path, `${delta.path}.sha256`]) await copyFile(name, join(files, basename(name)));
      cluster.allow(digestOf(await readFile(delta.path)));
      nodes = await addNodes('master-0', 'worker-0', 'worker-1');
      const [, worker, other] = nodes;
      if (!worker || !other) throw new Error('there is no node');
      const plugFiles = async (): Promise<Drive> =>
        worker.drives.plug(await worker.drives.makeExt4(files, 'UPDATE', 16));
      const first = await plugFiles();
      await until(() => /^False BaseMissing: .*master-0, worker-0, worker-1 do not/.test(conditionOf('Ready')));
      phaseWithoutBase = phase();
      await first.pull();
      await copyFile(base.path, join(files, basename(base.path)));
      const second = await plugFiles();
      await until(() => phase() === 'Loading');
      await other.kill('everything');
      other.start();
      await until(() => ['Loaded', 'Pinned', 'Completed'].includes(phase() ?? ''));
      await second.pull();
      await until(() => phase() === 'Completed');
    }

    it('does not begin without the base', () => {
      expect(phaseWithoutBase).to.equal('Verified');
    });

    it('updates to the new version', async () => {
      await expectUpdated(nodes, delta);
    });
  });
});

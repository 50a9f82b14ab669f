import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { planUpdate } from '../../../lib/bundle/verify/updatePlan.ts';
import { isOpenBlocker, describeFinding } from '../../../lib/cluster/finding.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { runPreflight } from '../../../lib/readiness/preflight/preflight.ts';
import { planClusterRestore, type ClusterRestore } from '../../../lib/update/record/clusterRestore.ts';
import { administrator, bundleName, SimulatedCluster, gatherTrustIn } from '../../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../../fakes/cluster/simulatedNode.ts';
import { dualReplica, furnishTopology, withArbiter } from '../../fakes/cluster/topologies.ts';
import { listImages, requireRoot } from '../../support/archive/storeReader.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { requireLoopDevices } from '../../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../../support/release/release.ts';

/** The topologies, with the first steps of a restore. */
const topologies = [
  {
    site: dualReplica,
    restore: ['ssh core@master-0', 'ssh core@master-1'],
    scripts: ['cluster-restore.sh'],
  },
  {
    site: withArbiter,
    restore: ['ssh core@arbiter-0', 'ssh core@master-0', 'ssh core@master-1'],
    scripts: ['disable-etcd.sh', 'cluster-restore.sh'],
  },
];

const refuse = (): Promise<never> => Promise.reject(new Error('nothing is fetched'));

for (const { site, restore, scripts } of topologies)
  describe(`a cluster of the topology ${site.topology}`, function () {
    requirePeer(this, 'skopeo', 'podman');
    const names = Object.keys(site.roles);
    let made: TestBundle;
    let cluster: SimulatedCluster;
    let connected: ConnectedCluster;
    let nodes: readonly SimulatedNode[];
    let found: readonly string[];
    let way: ClusterRestore;

    before(async function () {
      await requireRoot(this);
      await requireLoopDevices(this);
      made = await makeBundle({ version: '4.22.3', previous: ['4.22.1'], layerSize: 100_000 });
      cluster = await SimulatedCluster.start({
        openshift: '4.22.1',
        trust: await gatherTrustIn(made),
      });
      connected = await connectTo(cluster.api, {
        user: { token: administrator },
        cluster: { 'insecure-skip-tls-verify': true },
      });
      await cluster.play(update);
    });
    after(async () => {
      await (connected as ConnectedCluster | undefined)?.close();
      await (cluster as SimulatedCluster | undefined)?.close();
      await (made as TestBundle | undefined)?.remove();
    });

    async function update(): Promise<void> {
      furnishTopology(site, cluster.api);
      await using bundle = await openBundle(made.path, makeContext());
      const trust = { fingerprints: [made.key.fingerprint], keyrings: [made.keyFile], allowUnsigned: false };
      const plan = await planUpdate(bundle, { ...trust, fetchFile: refuse }, makeContext());
      const { findings } = await runPreflight(connected.cluster, plan, connected.context);
      found = findings.filter(isOpenBlocker).map(describeFinding);
      cluster.allow(digestOf(await readFile(made.path)));
      nodes = await Promise.all(names.map((name) => cluster.addNode(name, ['--disk-floor=1Mi'])));
      const [, second] = nodes;
      const image = (await second?.drives.makeImage(16)) ?? '';
      await runSuccessfully('dd', [`if=${made.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
      await second?.drives.plug(image);
      await cluster.until(() => cluster.phase() === 'Completed');
      const record = cluster.bundle() ?? expect.fail();
      way = await planClusterRestore(connected.cluster, record, [record]);
    }

    it('is fit for the update', () => {
      expect(found).to.deep.equal([]);
    });

    it('is updated once, by the agents on all its nodes', () => {
      const { pullspec } = made.release;
      expect(cluster.site.requests).to.deep.equal([{ image: pullspec, version: '4.22.3', force: false }]);
      expect(cluster.bundle()?.status).to.include({ nodesReady: `${names.length}/${names.length}` });
      expect([...new Set(cluster.denied)]).to.deep.equal([]);
    });

    it('loads one control plane node after the other, and all images on each node', async () => {
      expect(cluster.site.loadingAtOnce).to.be.at.most(1);
      for (const { name, store } of nodes) {
        const reader = await makeFolder();
        const seen = await listImages({ kind: 'additional', path: store }, reader);
        await removeFolder(reader);
        expect(seen, name).to.include.members(pullspecsOf(made.release));
      }
    });

    it('has a backup on a control plane node, and a way back from it', () => {
      const [backup] = cluster.bundle(bundleName)?.status?.backups ?? [];
      expect(backup?.node).to.match(/^master-[01]$/);
      // The backup is of the release before the update.
      expect(way.obstacles.join()).to.contain('the backup is of 4.22.1').and.not.to.contain('fencing');
      const commands = way.steps.flatMap((step) => step.commands);
      expect(commands.filter((command) => command.startsWith('ssh'))).to.deep.equal(restore);
      const used = commands.flatMap((command) => /\/usr\/local\/bin\/(\S+)/.exec(command)?.[1] ?? []);
      expect(used).to.deep.equal(scripts);
    });
  });

import { readFile, stat } from 'node:fs/promises';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../lib/oci/digest.ts';
import { gatherTrust, noTrust, type AgentTrust } from '../../lib/update/install/agentTrust.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { requireLoopDevices } from '../support/loopDevice.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { pullspecsOf } from '../support/release/release.ts';
import { SimulatedCluster } from '../fakes/cluster/simulatedCluster.ts';
import { listImages, requireRoot } from '../support/archive/storeReader.ts';

const name = '4.20.3-x86-64';

describe('a cluster with a bundle of two releases', function () {
  this.timeout(600_000);
  let made: TestBundle;
  let digest: Digest;
  let trust: AgentTrust;
  let cluster: SimulatedCluster;

  before(async function () {
    requirePeer(this, 'skopeo', 'podman');
    await requireRoot(this);
    await requireLoopDevices(this);
    made = await makeBundle({
      ...{ version: '4.20.3', previous: ['4.19.12'], layerSize: 50_000 },
      earlier: [{ version: '4.19.12', previous: ['4.19.3'], components: 3 }],
    });
    digest = digestOf(await readFile(made.path));
    const wanted = { fingerprints: [made.key.fingerprint], keyrings: [made.keyFile], allowUnsigned: false };
    trust = await gatherTrust(wanted, noTrust, makeContext());
    cluster = await SimulatedCluster.start({ trust });
  });
  after(async () => {
    // There is none if the suite is skipped.
    await (made as TestBundle | undefined)?.remove();
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') console.error(cluster.output);
    await cluster.close();
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  });

  const hops = (): string[] =>
    (cluster.bundle(name)?.status?.hops ?? []).map(({ version, phase }) => `${version} ${phase}`);

  it('takes both updates from one USB drive that is removed in between, while its agents are killed', async () => {
    cluster.allow(digest, { holdBetween: true }, name);
    const nodes = await Promise.all(
      ['master-0', 'worker-0', 'worker-1'].map((node) => cluster.addNode(node, ['--disk-floor=1Mi'])),
    );
    const [master, worker] = nodes;
    if (!master || !worker) throw new Error('there are no nodes');
    const image = await worker.sticks.makeImage(16);
    expect((await stat(made.path)).size).to.be.lessThan(16 * 2 ** 20);
    await runSuccessfully('dd', [`if=${made.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    const stick = await worker.sticks.plug(image);
    cluster.site.updating = false;
    await cluster.until(() => hops()[0] === '4.19.12 Upgrading');
    await stick.pull();
    cluster.site.updating = true;
    cluster.site.wake();
    await cluster.until(() => hops()[0] === '4.19.12 Completed');
    for (const node of nodes) {
      await node.kill('everything');
      node.start();
    }
    await cluster.until(() => hops()[1] === '4.20.3 Held');
    expect(cluster.site.requests).to.have.length(1);
    const resume = { metadata: { annotations: { 'upgrade-bundle.openshift.io/resume': '4.20.3' } } };
    cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', name, resume);
    await cluster.until(() => cluster.phase(name) === 'Completed');
    expect(hops()).to.deep.equal(['4.19.12 Completed', '4.20.3 Completed']);
    const requests = made.releases.map(({ pullspec, version }) => ({ image: pullspec, version, force: false }));
    expect(cluster.site.requests).to.deep.equal(requests);
    for (const node of nodes) {
      const reader = await makeFolder();
      const seen = await listImages({ kind: 'additional', path: node.store }, reader);
      await removeFolder(reader);
      expect(seen, node.name).to.include.members(made.releases.flatMap(pullspecsOf));
    }
    // The sets of the previous release stay for a rollback.
    expect(cluster.names('PinnedImageSet')).to.have.length(4);
  });
});

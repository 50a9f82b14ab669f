import { copyFile, mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { requireLoopDevices, type Drive } from '../support/loopDevice.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { requirePeer } from '../support/peers.ts';
import { pullspecsOf } from '../support/release/release.ts';
import { SimulatedCluster } from '../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { formerStorePath, pinFile } from '../../lib/node/machine/paths.ts';

/** Returns the release that a cluster ran last, from its version. */
const imageOf = (version: unknown): string =>
  (version as { status: { history: { image: string }[] } }).status.history[0]?.image ?? '';

const names = { whole: '4.18.4-x86-64', delta: '4.19.5-x86-64' };

describe('a cluster that cannot pin images itself, with an additional store of an earlier version', function () {
  requirePeer(this, 'skopeo', 'podman');
  let whole: TestBundle;
  let delta: TestBundle;
  let folder: string;
  let cluster: SimulatedCluster;

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    folder = await makeFolder();
    whole = await makeBundle({ version: '4.18.4', previous: ['4.18.3'], volumeSize: 200_000, layerSize: 50_000 });
    delta = await makeBundle({ version: '4.19.5', previous: ['4.18.4'], base: whole.path, layerSize: 50_000 });
    cluster = await SimulatedCluster.start({ openshift: '4.18.3' });
    // Before 4.19, nodes fetch content of a release from mirrors.
    const mirrors = ['ocp-release', 'ocp-v4.0-art-dev'].map((name) => ({
      source: `quay.io/openshift-release-dev/${name}`,
      mirrors: ['mirror.example.com/openshift/release'],
    }));
    const mirrorSet = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'release' },
    };
    cluster.api.put({ ...mirrorSet, spec: { imageDigestMirrors: mirrors } });
  });
  after(async () => {
    // There is none if the suite is skipped.
    await (whole as TestBundle | undefined)?.remove();
    await (delta as TestBundle | undefined)?.remove();
    if (folder) await removeFolder(folder);
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') console.error(cluster.output);
    await cluster.close();
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  });

  /** Inserts a USB drive with the files of bundles into a node. */
  const plug = async (node: SimulatedNode, ...bundles: TestBundle[]): Promise<Drive> => {
    const files = await mkdtemp(join(folder, 'files-'));
    for (const { folder: from } of bundles)
      for (const name of await readdir(from))
        if (name.startsWith('upgrade-')) await copyFile(join(from, name), join(files, name));
    return node.drives.plug(await node.drives.makeExt4(files, 'UPDATE', 16));
  };
  /** Returns the images that podman lists on a node, by digest. */
  const seenOn = async (node: SimulatedNode, ...place: string[]): Promise<string[]> => {
    const list = JSON.parse(await node.run('podman', ...place, 'images', '--format=json')) as { Names?: string[] }[];
    return list.flatMap(({ Names = [] }) => Names);
  };

  it('updates from volumes on a USB drive, then with a delta from the bundle that each node has', async () => {
    const trust = [`--signature-keyring=${whole.keyFile}`, `--trust-fingerprint=${whole.key.fingerprint}`];
    const options = [...trust, '--disk-floor=1Mi'];
    const nodes = await Promise.all(
      ['master-0', 'worker-0', 'worker-1'].map((name) => cluster.addNode(name, options, { additionalStore: true })),
    );
    const [master, worker] = nodes;
    if (!master || !worker || !whole.result.digest || !delta.result.digest) throw new Error('something is missing');
    // Pins for the running release, for none, and for an old release.
    const first = imageOf(cluster.api.find('config.openshift.io/v1', 'ClusterVersion', 'version'));
    const lines = [
      '  "a/one",',
      `  # for ${first}`,
      '  "a/two",',
      '  # for a/old@sha256:0',
      '  "a/two",',
      '  "a/three",',
    ];
    const pins = ['[crio.image]', 'pinned_images = [', ...lines, ']', ''].join('\n');
    await master.kill();
    await mkdir(dirname(master.pathOf(pinFile)), { recursive: true });
    await writeFile(master.pathOf(pinFile), pins);
    master.start();
    cluster.allow(whole.result.digest, {}, names.whole);
    const drive = await plug(worker, whole);
    await cluster.until(() => cluster.phase(names.whole) === 'Completed');
    expect(cluster.condition('Pinned', names.whole)).to.match(/^True PinnedByAgents/);
    for (const node of nodes) {
      const main = ['--storage-opt', 'additionalimagestore=', '--root=/var/lib/containers/storage'];
      expect(await seenOn(node, ...main), node.name).to.include.members(pullspecsOf(whole.release));
      // Images that are only there are lost when it is removed.
      const index = node.pathOf(join(formerStorePath, 'overlay-images/images.json'));
      expect(await readFile(index, 'utf8').catch(() => '[]'), node.name).to.equal('[]');
      const pins = await readFile(node.pathOf(pinFile), 'utf8');
      for (const image of pullspecsOf(whole.release)) expect(pins).to.contain(`"${image}"`);
      if (node !== master) expect(await node.systemctl()).to.deep.equal(['reload crio']);
    }
    const pinned = async (): Promise<string[]> => {
      const text = await readFile(master.pathOf(pinFile), 'utf8');
      return ['one', 'two', 'three', 'ocp-release'].filter((name) => new RegExp(`^  ".*/${name}\\b`, 'm').test(text));
    };
    await cluster.until(async () => (await master.systemctl()).length === 2);
    expect(await pinned()).to.deep.equal(['one', 'two', 'ocp-release']);
    await drive.pull();
    const second = await plug(worker, delta);
    await cluster.until(() => cluster.bundle(names.delta));
    await second.pull();
    await cluster.until(() => !cluster.bundle(names.delta));
    await worker.drives.plug(second.image);
    await cluster.until(() => cluster.bundle(names.delta));
    expect(cluster.names('UpgradeBundle')).to.have.members([names.whole, names.delta]);
    cluster.allow(delta.result.digest, {}, names.delta);
    await cluster.until(() => cluster.phase(names.delta) === 'Completed');
    // The cluster can no longer roll back to the first release, but to the second one.
    await cluster.until(async () => !(await pinned()).includes('two'));
    expect(await pinned()).to.deep.equal(['one', 'ocp-release']);
    for (const node of nodes) {
      expect(await seenOn(node), node.name).to.include.members([
        ...pullspecsOf(whole.release),
        ...pullspecsOf(delta.release),
      ]);
    }
    expect(cluster.site.requests.map((request) => (request as { version: string }).version)).to.deep.equal([
      '4.18.4',
      '4.19.5',
    ]);
    expect(cluster.names('PinnedImageSet')).to.have.length(2);
    const pools = ['master', 'worker'].map((name) =>
      cluster.api.find('machineconfiguration.openshift.io/v1', 'MachineConfigPool', name),
    );
    expect(pools.map((pool) => pool?.['spec'])).to.deep.equal([{}, {}]);
  });
});

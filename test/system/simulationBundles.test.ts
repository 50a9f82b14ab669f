import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { holdFile, pinFile } from '../../lib/node/machine/host.ts';
import { SimulatedCluster } from '../fakes/cluster/simulatedCluster.ts';
import { additionalStorePath, type SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { requireLoopDevices, type Drive } from '../support/loopDevice.ts';
import { requirePeer } from '../support/peers.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../support/release/release.ts';

/** Returns the release that a cluster ran last, from its version. */
const imageOf = (version: unknown): string =>
  (version as { status: { history: { image: string }[] } }).status.history[0]?.image ?? '';

const names = { whole: '4.18.4-x86-64', delta: '4.19.5-x86-64' };

/** The images and pins of a node, and the calls of systemctl. */
interface NodeState {
  readonly name: string;
  readonly mainStore: readonly string[];
  readonly additionalStore: string;
  readonly pins: string;
  readonly systemctl: readonly string[];
}

describe('a cluster that cannot pin images itself, with an additional store', function () {
  requirePeer(this, 'skopeo', 'podman');
  let whole: TestBundle;
  let delta: TestBundle;
  let folder: string;
  let cluster: SimulatedCluster;
  let nodes: readonly SimulatedNode[];
  let master: SimulatedNode;
  let worker: SimulatedNode;
  /** The nodes and the condition after the first update, before the drive was removed. */
  let first: { readonly nodes: readonly NodeState[]; readonly condition: string };
  /** The other nodes once they hold nothing any more. */
  let held: readonly NodeState[];
  /**
   * The images that the control plane node pins: before it drops those of old releases, and after the second update.
   */
  let [pinnedFirst, pinnedLast]: string[][] = [[], []];
  let bundlesWithDelta: readonly string[];

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
    await cluster.play(async () => {
      await addNodes();
      await updateToWhole();
      await updateToDelta();
    }, names.delta);
  });
  after(async () => {
    // There is none if the suite is skipped.
    const remains = cluster as SimulatedCluster | undefined;
    await remains?.close();
    await (whole as TestBundle | undefined)?.remove();
    await (delta as TestBundle | undefined)?.remove();
    if (folder) await removeFolder(folder);
    expect([...new Set(remains?.denied)]).to.deep.equal([]);
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

  const stateOf = async (node: SimulatedNode): Promise<NodeState> => ({
    name: node.name,
    mainStore: await seenOn(node, '--storage-opt', 'additionalimagestore=', '--root=/var/lib/containers/storage'),
    additionalStore: await readFile(node.pathOf(join(additionalStorePath, 'overlay-images/images.json')), 'utf8').catch(
      () => '[]',
    ),
    pins: await readFile(node.pathOf(pinFile), 'utf8'),
    systemctl: await node.systemctl(),
  });
  /** Returns which of some images the control plane node pins. */
  const pinned = async (): Promise<string[]> => {
    const text = await readFile(master.pathOf(pinFile), 'utf8');
    return ['one', 'two', 'three', 'ocp-release'].filter((name) => new RegExp(`^  ".*/${name}\\b`, 'm').test(text));
  };

  /** Adds nodes, of which the first one has pins for the running release, for none, and for an old release. */
  async function addNodes(): Promise<void> {
    const trust = [`--signature-keyring=${whole.keyFile}`, `--trust-fingerprint=${whole.key.fingerprint}`];
    const options = [...trust, '--disk-floor=1Mi'];
    const add = (name: string): Promise<SimulatedNode> => cluster.addNode(name, options, { additionalStore: true });
    const [one, two, three] = await Promise.all([add('master-0'), add('worker-0'), add('worker-1')]);
    [master, worker, nodes] = [one, two, [one, two, three]];
    const running = imageOf(cluster.api.find('config.openshift.io/v1', 'ClusterVersion', 'version'));
    const lines = [
      '  "a/one",',
      `  # for ${running}`,
      '  "a/two",',
      '  # for a/old@sha256:0',
      '  "a/two",',
      '  "a/three",',
    ];
    await master.kill();
    await mkdir(dirname(master.pathOf(pinFile)), { recursive: true });
    await writeFile(master.pathOf(pinFile), ['[crio.image]', 'pinned_images = [', ...lines, ']', ''].join('\n'));
    master.start();
  }

  async function updateToWhole(): Promise<void> {
    cluster.allow(whole.result.digest ?? expect.fail('the bundle has no digest'), {}, names.whole);
    const drive = await plug(worker, whole);
    await cluster.until(() => cluster.phase(names.whole) === 'Completed');
    first = { nodes: await Promise.all(nodes.map(stateOf)), condition: cluster.condition('Pinned', names.whole) };
    await cluster.until(async () => !(await pinned()).includes('three'));
    pinnedFirst = await pinned();
    const others = nodes.filter((node) => node !== master);
    const isHeld = (): boolean => nodes.some((node) => existsSync(node.pathOf(holdFile)));
    await cluster.until(() => !isHeld());
    held = await Promise.all(others.map(stateOf));
    // The first has the drive, the others fetch the bundle from it.
    for (const node of [worker, master]) await loseImage(node);
    await drive.pull();
  }

  /** Removes an image from a node, and waits until its agent has given it back. */
  async function loseImage(node: SimulatedNode): Promise<void> {
    const image = pullspecsOf(whole.release).at(-1) ?? expect.fail('the release has no images');
    await node.run('podman', 'rmi', '--force', image);
    expect(await seenOn(node), node.name).not.to.include(image);
    await cluster.until(async () => (await seenOn(node)).includes(image));
  }

  /** Updates with the delta. Its drive is removed and inserted again first. */
  async function updateToDelta(): Promise<void> {
    const drive = await plug(worker, delta);
    await cluster.until(() => cluster.bundle(names.delta));
    await drive.pull();
    await cluster.until(() => !cluster.bundle(names.delta));
    await worker.drives.plug(drive.image);
    await cluster.until(() => cluster.bundle(names.delta));
    bundlesWithDelta = cluster.names('UpgradeBundle');
    cluster.allow(delta.result.digest ?? expect.fail('the bundle has no digest'), {}, names.delta);
    await cluster.until(() => cluster.phase(names.delta) === 'Completed');
    // The cluster can no longer roll back to the first release, but to the second one.
    await cluster.until(async () => !(await pinned()).includes('two'));
    pinnedLast = await pinned();
  }

  it('loads volumes of a USB drive into the main store of each node', () => {
    for (const { name, mainStore } of first.nodes)
      expect(mainStore, name).to.include.members(pullspecsOf(whole.release));
  });

  it('loads nothing into the additional store', () => {
    for (const { name, additionalStore } of first.nodes) expect(additionalStore, name).to.equal('[]');
  });

  it('pins the images on each node', () => {
    expect(first.condition).to.match(/^True PinnedByAgents/);
    for (const { name, pins } of first.nodes)
      for (const image of pullspecsOf(whole.release)) expect(pins, name).to.contain(`"${image}"`);
  });

  it('reloads CRI-O before it loads, for the pins, and when it ends the hold', () => {
    const calls = held.map(({ systemctl }) => systemctl);
    expect(calls.map((each) => each.length)).to.deep.equal([3, 3]);
    expect(new Set(calls.flat())).to.deep.equal(new Set(['reload crio']));
  });

  it('keeps pins that are not its own, and those of the previous release', () => {
    expect(pinnedFirst).to.deep.equal(['one', 'two', 'ocp-release']);
  });

  it('removes the pins of a release to which it cannot roll back', () => {
    expect(pinnedLast).to.deep.equal(['one', 'ocp-release']);
  });

  it('finds the bundle of a drive that is inserted again', () => {
    expect(bundlesWithDelta).to.have.members([names.whole, names.delta]);
  });

  it('loads a delta from the bundle that each node has', async () => {
    const wanted = [whole, delta].flatMap(({ release }) => pullspecsOf(release));
    for (const node of nodes) expect(await seenOn(node), node.name).to.include.members(wanted);
  });

  it('is requested to update once for each bundle', () => {
    const versions = cluster.site.requests.map((request) => (request as { version: string }).version);
    expect(versions).to.deep.equal(['4.18.4', '4.19.5']);
  });

  it('has sets of pinned images once its version has them', () => {
    expect(cluster.names('PinnedImageSet')).to.have.length(2);
  });

  it('leaves its pools as they were', () => {
    const pools = ['master', 'worker'].map((name) =>
      cluster.api.find('machineconfiguration.openshift.io/v1', 'MachineConfigPool', name),
    );
    expect(pools.map((pool) => pool?.['spec'])).to.deep.equal([{}, {}]);
  });
});

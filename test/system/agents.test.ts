import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../lib/content/oci/reference.ts';
import { readReport, reportKind } from '../../lib/update/record/nodeReport.ts';
import { bundleName, SimulatedCluster } from '../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { listImages, requireRoot } from '../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { requireLoopDevices } from '../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { extraImage } from '../support/release/extraImage.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../support/release/release.ts';

describe('the agents of a cluster', function () {
  requirePeer(this, 'skopeo', 'podman');
  let made: TestBundle;
  let other: TestBundle;
  let digest: Digest;
  let cluster: SimulatedCluster;

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    made = await makeBundle({ version: '4.19.4', layerSize: 200_000 });
    other = await makeBundle({ version: '4.19.5' });
    digest = digestOf(await readFile(made.path));
  });
  after(async () => {
    // There is none if the suite is skipped.
    await (made as TestBundle | undefined)?.remove();
    await (other as TestBundle | undefined)?.remove();
  });
  beforeEach(async () => {
    cluster = await SimulatedCluster.start({ controlled: false });
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') console.error(cluster.output);
    await cluster.close();
    expect(cluster.denied).to.deep.equal([]);
  });

  const addNode = (name: string, floor = '1Mi'): Promise<SimulatedNode> => {
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    return cluster.addNode(name, [...trust, `--disk-floor=${floor}`]);
  };
  /** Writes a bundle onto a device, and inserts the device into a node. */
  const plug = async (node: SimulatedNode, bundle: TestBundle = made, readable = Infinity) => {
    const image = await node.drives.makeImage(8);
    await runSuccessfully('dd', [`if=${bundle.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    return node.drives.plug(image, true, readable);
  };
  const until = (condition: () => unknown): Promise<void> => cluster.until(condition);
  const expectLoaded = async (node: SimulatedNode): Promise<void> => {
    const reader = await makeFolder();
    const seen = await listImages({ kind: 'additional', path: node.store }, reader);
    await removeFolder(reader);
    expect(seen).to.include.members(pullspecsOf(made.release));
  };
  const isAt = (phase: string, ...nodes: string[]): (() => boolean) => {
    return () => nodes.every((name) => cluster.progress(name)?.phase === phase);
  };

  it('report a USB drive for which the controller creates an object, and wait until it has the digest', async () => {
    await cluster.close();
    cluster = await SimulatedCluster.start();
    const node = await addNode('a');
    const drive = await plug(node);
    const { apiVersion, kind, namespace } = reportKind;
    const report = () => cluster.api.find(apiVersion, kind, 'agent-a', namespace);
    await until(() => report());
    expect(readReport(report() ?? expect.fail())?.report?.proposal).to.deep.equal({
      version: '4.19.4',
      arch: 'x86_64',
    });
    expect(cluster.bundle()).to.equal(undefined);
    await addNode('master-0');
    await until(() => cluster.progress('a')?.message);
    expect(cluster.bundle()?.spec).to.deep.equal({ bundle: {}, hold: false });
    expect(cluster.progress('a')).to.include({ phase: 'Waiting', imagesTotal: 0 });
    expect(cluster.progress('a')?.message).to.contain(`4.19.4 x86_64 on ${drive.device}: waiting for its digest`);
    expect(existsSync(node.state)).to.equal(false);
  });

  it('verify, spread and load: workers at once, the control plane by turns', async () => {
    cluster.allow(digest);
    const [a, b, c] = [await addNode('master-0'), await addNode('master-1'), await addNode('worker-0')];
    await plug(b);
    await until(() => (cluster.progress('master-1')?.imagesTotal ?? 0) > 0);
    expect(cluster.progress('master-1')).to.include({
      phase: 'Waiting',
      imagesTotal: pullspecsOf(made.release).length,
    });
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Loaded', 'worker-0'));
    expect(['master-0', 'master-1'].map((name) => cluster.progress(name)?.phase)).to.deep.equal(['Waiting', 'Waiting']);
    for (const turn of ['master-0', 'master-1']) {
      cluster.direct({ phase: 'Loading', turn });
      await until(isAt('Loaded', turn));
    }
    for (const node of [a, b, c]) await expectLoaded(node);
    // A node with the bundle on a USB drive needs no copy.
    expect([a, b, c].map(({ state }) => existsSync(join(state, `bundle-${digest.slice(7, 19)}.tar`)))).to.deep.equal([
      true,
      false,
      true,
    ]);
    cluster.direct({ phase: 'Pinned' });
    await until(isAt('Pinned', 'master-0', 'master-1', 'worker-0'));
    cluster.direct({ phase: 'Completed' });
    await until(() => !existsSync(join(a.state, `bundle-${digest.slice(7, 19)}.tar`)));
    expect(await a.stop()).to.be.oneOf([0, 130]);
  });

  it('report an unreadable, removed or different USB drive, and continue when it is inserted again, or with that of another node', async () => {
    cluster.allow(digest);
    const [a, b] = [await addNode('a'), await addNode('b')];
    const message = (): string => cluster.progress('a')?.message ?? '';
    const isVerified = (): boolean => cluster.progress('a')?.imagesTotal === pullspecsOf(made.release).length;
    const worn = await plug(a, made, 400_000);
    await until(() => message().includes(worn.device));
    expect(message()).to.contain(`${worn.device} cannot be read`);
    await worn.pull();
    const drive = await plug(a);
    await until(isVerified);
    await drive.pull();
    await until(() => message().includes('was removed: insert it again'));
    const again = await plug(a);
    await until(() => isVerified() && message() === '');
    await again.spoil(400_000);
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Failed', 'a'));
    expect(message()).to.contain(`${again.device} cannot be read`);
    const wrong = await plug(b, other);
    const ignored = `${wrong.device} is not the expected bundle`;
    await until(() => cluster.progress('b')?.message?.includes(ignored));
    expect(cluster.progress('b')?.phase).not.to.equal('Failed');
    await wrong.pull();
    await plug(b);
    await until(isAt('Loaded', 'a', 'b'));
    for (const node of [a, b]) await expectLoaded(node);
  });

  it('load no image that the release signature does not cover, unless its digest is allowed', async () => {
    const extra = extraImage();
    await using bundle = await makeBundle({ version: '4.19.4', extraImages: [extra], layerSize: 50_000 });
    cluster.allow(digestOf(await readFile(bundle.path)));
    const node = await addNode('a');
    await plug(node, bundle);
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Loaded', 'a'));
    const count = pullspecsOf(bundle.release).length;
    expect(cluster.progress('a')).to.include({ imagesLoaded: count, imagesTotal: count });
    const seen = async (): Promise<string[]> => {
      const reader = await makeFolder();
      const images = await listImages({ kind: 'additional', path: node.store }, reader);
      await removeFolder(reader);
      return images;
    };
    expect(await seen())
      .to.include.members(pullspecsOf(bundle.release))
      .and.not.to.include(extra.pullspec);
    cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', bundleName, {
      spec: { allowExtraImages: [extra.digest] },
    });
    await until(() => cluster.progress('a')?.imagesLoaded === count + 1);
    expect(await seen()).to.include(extra.pullspec);
  });

  it('bring nothing to a disk that is too full already, and say so', async () => {
    cluster.allow(digest);
    await plug(await addNode('a'));
    const b = await addNode('b', '1000Ti');
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Failed', 'b'));
    expect(cluster.progress('b')?.message).to.match(/only .* are free at .* and .* must stay free/);
    expect(existsSync(join(b.state, `bundle-${digest.slice(7, 19)}.tar`))).to.equal(false);
  });

  it('fetch a copy again that was damaged on the disk', async () => {
    cluster.allow(digest);
    const a = await addNode('a');
    await plug(a);
    await until(() => (cluster.progress('a')?.imagesTotal ?? 0) > 0);
    const stem = `bundle-${digest.slice(7, 19)}`;
    const b = await addNode('b');
    await b.kill();
    await mkdir(b.state, { recursive: true });
    // The facts about the bundle are unreadable too, so the node reads them from the copy again.
    await writeFile(join(b.state, `${stem}.json`), JSON.stringify({ digest, metadata: {}, manifests: [] }));
    const bytes = await readFile(made.path);
    const layer = [...made.release.content.blobs.values()].find(
      (blob) => Buffer.isBuffer(blob) && blob.length > 100_000,
    );
    if (!Buffer.isBuffer(layer)) throw new Error('there is no layer');
    const at = bytes.indexOf(layer.subarray(0, 64));
    bytes.writeUInt8(bytes.readUInt8(at + 50_000) ^ 0xff, at + 50_000);
    await writeFile(join(b.state, `${stem}.tar`), bytes);
    b.start();
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Loaded', 'a', 'b'));
    expect(b.output).to.contain('is corrupt: it is removed').and.to.contain('fetching the bundle');
    await expectLoaded(b);
  });

  it('resume after kills, a power failure, a removed USB drive, and an unreachable API server', async () => {
    cluster.allow(digest);
    const [a, b] = [await addNode('a'), await addNode('b')];
    const drive = await plug(a);
    await until(() => (cluster.progress('a')?.imagesTotal ?? 0) > 0);
    const restore = cluster.cut();
    await b.kill();
    b.start();
    await sleep(2000);
    restore();
    cluster.direct({ phase: 'Loading' });
    await until(isAt('Loading', 'b'));
    await b.kill('everything');
    b.start();
    await until(() => existsSync(join(b.state, `bundle-${digest.slice(7, 19)}.tar`)));
    await drive.pull();
    for (const node of [a, b]) {
      await node.kill();
      node.start();
    }
    await until(isAt('Loaded', 'a', 'b'));
    for (const node of [a, b]) await expectLoaded(node);
    await a.kill('everything');
    a.start();
    await sleep(2000);
    expect(cluster.progress('a')?.phase).to.equal('Loaded');
  });
});

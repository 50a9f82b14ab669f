import { readFile, stat } from 'node:fs/promises';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import type { AgentTrust } from '../../../lib/update/install/agentTrust.ts';
import { abortAnnotation } from '../../../lib/update/record/upgradeBundle.ts';
import { codeOf, type ScreenReason } from '../../../lib/update/screen/screenCode.ts';
import { bundleName, SimulatedCluster, gatherTrustIn } from '../../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../../fakes/cluster/simulatedNode.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { requireLoopDevices, type Drive } from '../../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';

describe('the login screens of a cluster', function () {
  requirePeer(this, 'skopeo', 'podman');
  let made: TestBundle;
  let other: TestBundle;
  let digest: Digest;
  let trust: AgentTrust;
  let cluster: SimulatedCluster;

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 3_000_000 });
    other = await makeBundle({ version: '4.19.5' });
    digest = digestOf(await readFile(made.path));
    trust = await gatherTrustIn(made);
  });
  after(async () => {
    // There is none if the suite is skipped.
    await (made as TestBundle | undefined)?.remove();
    await (other as TestBundle | undefined)?.remove();
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') {
      console.error(cluster.output);
      for (const node of cluster.nodes.values())
        console.error(node.name, JSON.stringify(await node.screens(), null, 1));
    }
    await cluster.close();
    // A controller that makes a report asks for more than it may read.
    expect(cluster.denied.filter((each) => !/nodes\/proxy|secrets|create pods/.test(each))).to.deep.equal([]);
  });

  const addNode = (name: string): Promise<SimulatedNode> => cluster.addNode(name, ['--disk-floor=1Mi']);
  const plug = async (node: SimulatedNode, bundle: TestBundle | undefined, readable = Infinity): Promise<Drive> => {
    const image = await node.drives.makeImage(64);
    if (bundle)
      await runSuccessfully('dd', [`if=${bundle.path}`, `of=${image}`, 'conv=notrunc', 'status=none', 'bs=1M']);
    return node.drives.plug(image, true, readable);
  };
  /** Waits until the screen of a node says something. */
  const untilSaid = (node: SimulatedNode, words: string): Promise<void> =>
    cluster.until(async () => (await node.screens()).at(-1)?.includes(words));
  const untilCode = (node: SimulatedNode, reason: ScreenReason): Promise<void> => untilSaid(node, codeOf(reason));

  it('say all phases in their order, to a technician who has only a drive', async () => {
    cluster = await SimulatedCluster.start({ trust });
    const [master, worker, last] = await Promise.all(['master-0', 'worker-0', 'worker-1'].map(addNode));
    if (!master || !worker || !last) throw new Error('there is no node');
    const drive = await plug(worker, made);
    await untilCode(worker, 'notAllowed');
    cluster.allow(digest, { hold: true });
    await untilCode(worker, 'held');
    await untilSaid(worker, 'You can remove the USB drive now.');
    await drive.pull();
    await cluster.until(async () => !(await worker.screens()).at(-1)?.includes('USB'));
    cluster.site.updating = false;
    cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', bundleName, { spec: { hold: false } });
    for (const node of [master, worker, last]) await untilSaid(node, 'Updating this cluster to 4.19.4');
    cluster.site.updating = true;
    cluster.site.wake();
    for (const node of [master, worker, last]) await untilSaid(node, 'This cluster runs 4.19.4');
    const said = await worker.screens();
    const steps = [
      'Update 4.19.4 was found on the USB drive.\nChecking it',
      'Copying update 4.19.4',
      'You can remove the USB drive now.',
      'It waits for the administrator',
      'Updating this cluster to 4.19.4',
      'This cluster runs 4.19.4',
    ];
    const places = steps.map((step) => said.findLastIndex((text) => text.includes(step)));
    expect(places, JSON.stringify(said)).not.to.include(-1);
    const free = said.findIndex((text) => text.includes('You can remove'));
    // Before that, each text about the drive asks to leave it.
    for (const text of said.slice(0, free)) expect(text).to.contain('Do not remove the USB drive.');
    for (const text of said.slice(free)) expect(text).not.to.contain('Do not remove');
    const order = ['Checking it', 'You can remove', 'Updating this cluster', 'This cluster runs'];
    const firsts = order.map((step) => said.findIndex((text) => text.includes(step)));
    expect(firsts).to.deep.equal(firsts.toSorted((a, b) => a - b));
    // Other nodes ask for nothing.
    for (const node of [master, last]) {
      const words = (await node.screens()).join('\n');
      expect(words).not.to.match(/remove|found on/);
      expect(words).not.to.contain(codeOf('driveNeeded'));
    }
  });

  it('ask for the drive again at the end, until it has the report', async () => {
    await using reporting = await makeBundle({
      version: '4.19.4',
      previous: ['4.19.3'],
      layerSize: 50_000,
      reports: { space: 8 * 1024 ** 2 },
    });
    cluster = await SimulatedCluster.start({ trust, reports: true });
    const [master, worker, last] = await Promise.all(['master-0', 'worker-0', 'worker-1'].map(addNode));
    if (!master || !worker || !last) throw new Error('there is no node');
    const drive = await plug(worker, reporting);
    cluster.site.updating = false;
    cluster.allow(digestOf(await readFile(reporting.path)), { ignore: ['space'] });
    await untilSaid(worker, 'Updating this cluster to 4.19.4');
    await cluster.until(() => cluster.output.includes('of the cluster is on the drive'));
    await drive.pull();
    // Nodes restart during an update.
    await worker.kill('everything');
    const { length } = await worker.screens();
    worker.start();
    await cluster.until(async () => (await worker.screens()).slice(length).at(-1)?.startsWith('Updating this'));
    cluster.site.updating = true;
    cluster.site.wake();
    await untilSaid(worker, 'Insert the USB drive again to take the report with you.');
    const again = await plug(worker, reporting);
    await untilSaid(worker, 'The report is on the USB drive. You can remove it now.');
    await again.pull();
    const only = `This cluster runs 4.19.4 (code ${codeOf('completed')}).`;
    await cluster.until(async () => (await worker.screens()).at(-1) === only);
    const said = await worker.screens();
    const end = said.slice(said.findIndex((text) => text.includes('This cluster runs')));
    const places = ['Insert the USB drive', 'Writing the report. Do not remove the USB drive.', 'The report is on'].map(
      (words) => end.findIndex((text) => text.includes(words)),
    );
    expect(places, JSON.stringify(end)).not.to.include(-1);
    expect(places).to.deep.equal(places.toSorted((a, b) => a - b));
    for (const node of [master, last]) {
      await untilSaid(node, only);
      expect((await node.screens()).join()).not.to.match(/remove|Insert|report/);
    }
  });

  it('say when the report is on a drive that stays inserted, and ask for nothing', async () => {
    await using reporting = await makeBundle({
      version: '4.19.4',
      previous: ['4.19.3'],
      layerSize: 50_000,
      reports: { space: 8 * 1024 ** 2 },
    });
    cluster = await SimulatedCluster.start({ trust, reports: true });
    const [worker] = await Promise.all(['worker-0', 'worker-1', 'master-0'].map(addNode));
    if (!worker) throw new Error('there is no node');
    await plug(worker, reporting);
    cluster.allow(digestOf(await readFile(reporting.path)), { ignore: ['space'] });
    await untilSaid(worker, 'The report is on the USB drive. You can remove it now.');
    const said = await worker.screens();
    const end = said.slice(said.findIndex((text) => text.includes('This cluster runs')));
    expect(end[0]).to.contain('Writing the report. Do not remove the USB drive.');
    expect(end.join()).not.to.contain('Insert');
  });

  it('promise no report on a drive without a place for it', async () => {
    cluster = await SimulatedCluster.start({ trust, reports: true });
    const [worker] = await Promise.all(['worker-0', 'worker-1', 'master-0'].map(addNode));
    if (!worker) throw new Error('there is no node');
    const drive = await plug(worker, made);
    cluster.allow(digest, { ignore: ['space'] });
    await untilSaid(worker, 'This cluster runs 4.19.4');
    await drive.pull();
    await cluster.until(async () => !(await worker.screens()).at(-1)?.includes('USB'));
    expect((await worker.screens()).join()).not.to.contain('report');
  });

  it('ask for the drive of several updates until every node has the last one', async () => {
    await using several = await makeBundle({
      version: '4.20.3',
      previous: ['4.19.12'],
      layerSize: 50_000,
      earlier: [{ version: '4.19.12', previous: ['4.19.3'] }],
    });
    cluster = await SimulatedCluster.start({ trust });
    const [worker, ...others] = await Promise.all(['worker-0', 'worker-1', 'master-0'].map(addNode));
    if (!worker) throw new Error('there is no node');
    await plug(worker, several);
    cluster.site.updating = false;
    cluster.allow(digestOf(await readFile(several.path)), { holdBetween: true });
    await untilSaid(worker, 'Updating this cluster to 4.19.12');
    cluster.site.updating = true;
    cluster.site.wake();
    await untilCode(worker, 'held');
    expect(cluster.bundle()?.status).to.include({ version: '4.20.3', phase: 'Held' });
    const said = await worker.screens();
    const updating = said.findIndex((text) => text.includes('Updating this cluster to 4.19.12'));
    const free = said.findIndex((text) => text.includes('You can remove'));
    expect(updating, JSON.stringify(said)).to.be.above(0);
    expect(free, JSON.stringify(said)).to.be.above(updating);
    expect(said.slice(0, free).filter((text) => !text.includes('Do not remove the USB drive.'))).to.deep.equal([]);
    for (const node of others) expect((await node.screens()).join()).not.to.contain('remove');
  });

  it('say that the administrator cancelled the update, and then only that', async () => {
    cluster = await SimulatedCluster.start({ trust });
    const [master, worker, last] = await Promise.all(['master-0', 'worker-0', 'worker-1'].map(addNode));
    if (!master || !worker || !last) throw new Error('there is no node');
    cluster.allow(digest, { hold: true });
    await plug(worker, made);
    for (const node of [master, worker, last]) await untilCode(node, 'held');
    const annotations = { [abortAnnotation]: 'true' };
    cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', bundleName, { metadata: { annotations } });
    for (const node of [master, last]) await untilCode(node, 'aborted');
  });

  it('answer a drive that is worn, another one, empty, or removed too early', async () => {
    cluster = await SimulatedCluster.start({ trust, controlled: false });
    cluster.allow(digest);
    const node = await addNode('a');
    const { size } = await stat(made.path);
    const worn = await plug(node, made, size - 1_000_000);
    await untilCode(node, 'driveUnreadable');
    await worn.pull();
    const wrong = await plug(node, other);
    await untilCode(node, 'otherBundle');
    await wrong.pull();
    await cluster.until(async () => !(await node.screens()).at(-1)?.includes(codeOf('otherBundle')));
    const empty = await plug(node, undefined);
    await untilCode(node, 'driveEmpty');
    await empty.pull();
    const drive = await plug(node, made);
    await untilSaid(node, 'Checking it');
    await cluster.until(() => (cluster.progress('a')?.imagesTotal ?? 0) > 0);
    await drive.pull();
    await untilCode(node, 'driveRemoved');
  });
});

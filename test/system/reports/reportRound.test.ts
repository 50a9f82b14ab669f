import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import * as openpgp from 'openpgp';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { verifyBundle } from '../../../lib/bundle/verify.ts';
import type { UpdateReport } from '../../../lib/config/updateReport.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readEncryptionKey } from '../../../lib/release/signature/encryption.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import { gatherTrust, noTrust } from '../../../lib/update/install/agentTrust.ts';
import { findReports, readReportKeyFile, type FoundReport } from '../../../lib/update/report/reportFiles.ts';
import { SimulatedCluster } from '../../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../../fakes/cluster/simulatedNode.ts';
import { node as makeNode } from '../../fakes/cluster/site.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { requireLoopDevices, type Drive } from '../../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../../support/release/release.ts';

const megabyte = 1024 ** 2;

describe('a cluster whose drives bring reports back', function () {
  requirePeer(this, 'skopeo', 'podman');
  let folder = '';
  let cluster: SimulatedCluster;
  let nodes: readonly SimulatedNode[];
  let first: TestBundle;
  /** The side of the engineer, with the next release. */
  let workshop: Workshop;
  let running: TestBundle;
  const siteNodes = ['master-0', 'worker-0', 'worker-1'];

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    folder = await makeFolder();
    const pair = await openpgp.generateKey({ userIDs: [{ name: 'engineer' }] });
    await writeFile(join(folder, 'engineer.asc'), pair.publicKey);
    await writeFile(join(folder, 'private.asc'), pair.privateKey);
    const { key } = await readEncryptionKey(join(folder, 'engineer.asc'));
    running = await makeBundle({ version: '4.19.3', layerSize: 50_000 });
    const reports = { space: 8 * megabyte, key };
    first = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 50_000, reports });
    const release = { version: '4.19.5', previous: ['4.19.4'], layerSize: 50_000, registry: 'quay.io' };
    workshop = await openWorkshop({ release });
    first.release.addTo(workshop.registry.content);
    const keyrings = [first.keyFile, await workshop.write('key.asc', workshop.key.publicKey)];
    const fingerprints = [first.key.fingerprint, workshop.key.fingerprint];
    const wanted = { fingerprints, keyrings, allowUnsigned: false };
    cluster = await SimulatedCluster.start({ trust: await gatherTrust(wanted, noTrust, makeContext()), reports: true });
    nodes = await Promise.all(siteNodes.map((name) => cluster.addNode(name, ['--disk-floor=1Mi'])));
    if (cluster.reportKey) await writeFile(join(folder, 'site.pub'), exportPublicKey(cluster.reportKey));
  });
  after(async () => {
    await (cluster as SimulatedCluster | undefined)?.close();
    await (workshop as Workshop | undefined)?.close();
    for (const each of [first, running]) await (each as TestBundle | undefined)?.remove();
    if (folder !== '') await removeFolder(folder);
  });

  const plug = async (node: SimulatedNode | undefined, bundle: Pick<TestBundle, 'path'>): Promise<Drive> => {
    if (!node) return expect.fail('there is no node');
    const image = await node.drives.makeImage(16);
    await runSuccessfully('dd', [`if=${bundle.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    return node.drives.plug(image);
  };
  const readDrive = async ({ device }: Drive): Promise<FoundReport[]> => {
    const keys = [await readReportKeyFile(join(folder, 'site.pub'))];
    const found: FoundReport[] = [];
    const trust = { keys, decryptionKey: join(folder, 'private.asc') };
    for await (const each of findReports(device, trust, makeContext())) found.push(each);
    return found;
  };
  /** Waits for a report on a drive that is about an update that has ended. */
  const awaitReport = async (drive: Drive, name: string): Promise<UpdateReport> => {
    let found: UpdateReport | undefined;
    await cluster.until(async () => {
      const [newest] = await readDrive(drive);
      const { report, trusted } = newest?.opened ?? {};
      const isAbout = report?.updates.some((each) => each.name === name && each.phase === 'Completed');
      found = isAbout && trusted ? report : undefined;
      return found;
    });
    return found ?? expect.fail('there is no report');
  };
  const expectGood = async (path: string): Promise<void> => {
    await using bundle = await openBundle(path, makeContext());
    expect((await verifyBundle(bundle, {}, makeContext())).problems).to.deep.equal([]);
  };

  /** Reads the newest report on a drive, and creates the next bundle for it, by the commands of the how-to page. */
  const createNext = async ({ device }: Drive): Promise<string> => {
    const options = [`--decryption-key=${join(folder, 'private.asc')}`, `--dest-dir=${join(folder, 'reports')}`];
    const shown = await runProgram(folder, 'report', ['show', device, `--key=${join(folder, 'site.pub')}`, ...options]);
    expect(shown.code, shown.stderr).to.equal(0);
    const names = (await readdir(join(folder, 'reports'))).filter((name) => name.endsWith('.json'));
    const mirrors = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'test' },
      spec: { imageDigestMirrors: [{ source: 'quay.io', mirrors: [workshop.registry.host] }] },
    };
    const tags = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageTagMirrorSet',
      metadata: { name: 'test' },
      spec: { imageTagMirrors: [{ source: 'quay.io', mirrors: [workshop.registry.host] }] },
    };
    return workshop.make({
      for: join(folder, 'reports', names.sort().at(-1) ?? ''),
      'for-key': join(folder, 'site.pub'),
      'report-space': '8Mi',
      'idms-file': await workshop.write(
        'mirrors.yaml',
        [mirrors, tags].map((each) => JSON.stringify(each)).join('\n---\n'),
      ),
    });
  };

  it('updates, reports, and updates again from a bundle for the report', () =>
    cluster.play(async () => {
      const [, worker, other] = nodes;
      const drive = await plug(worker, first);
      cluster.allow(digestOf(await readFile(first.path)), { ignore: ['space'] }, 'first');
      await cluster.until(() => cluster.phase('first') === 'Completed');
      const report = await awaitReport(drive, 'first');
      await expectGood(drive.device);
      expect(report).to.include({ reason: 'Completed', cluster: '6b8a0a7c-0000-4000-8000-000000000000' });
      expect(report.site).to.include({ version: '4.19.4', arch: 'x86_64' });
      expect(report.site.nodes.map(({ name }) => name)).to.have.members(siteNodes);
      expect(report.site.nodes.every(({ free = 0 }) => free > 0)).to.equal(true);
      const [update] = report.updates;
      expect(update?.backups[0]).to.include({ node: 'master-0', version: '4.19.3' });
      expect(update?.conditions.map(({ type }) => type)).to.include.members(['Verified', 'Loaded', 'Updated']);
      // The drive shows the cluster by its ID, and nothing else of it.
      expect((await readFile(drive.image)).includes('worker-1')).to.equal(false);

      // The nodes list what they have, as kubelets do.
      const images = pullspecsOf(first.release).map((pullspec) => ({ names: [pullspec], sizeBytes: 1 }));
      for (const name of siteNodes)
        cluster.api.put(makeNode(name, name.startsWith('master') ? 'master' : 'worker', { images }));
      await drive.pull();
      const again = await plug(worker, first);
      const fresh = await awaitReport(again, 'first');
      expect(fresh.sequence).to.be.at.least(report.sequence);
      const second = { path: await createNext(again) };
      await using next = await openBundle(second.path, makeContext());
      expect(next.metadata.base).to.include({ version: '4.19.4', release: first.release.pullspec });
      await again.pull();
      const last = await plug(other, second);
      cluster.allow(digestOf(await readFile(second.path)), { ignore: ['space'] }, 'second');
      await cluster.until(() => cluster.phase('second') === 'Completed');
      const final = await awaitReport(last, 'second');
      expect(final.updates.map(({ name, phase }) => `${name} ${phase}`)).to.deep.equal([
        'second Completed',
        'first Completed',
      ]);
      expect(final.sequence).to.be.above(fresh.sequence);
      await expectGood(last.device);
      const unexpected = cluster.denied.filter((each) => !/nodes\/proxy|secrets|create pods/.test(each));
      expect(unexpected).to.deep.equal([]);
    }, 'first')).timeout(400_000);
});

import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { mock } from 'node:test';
import { expect } from 'chai';
import * as openpgp from 'openpgp';
import { openUpdateReport } from '../../../lib/config/updateReport.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import { examineFiles, type FoundBundle } from '../../../lib/node/media/medium.ts';
import { readReports } from '../../../lib/node/media/reportRegion.ts';
import { decryptWith, readEncryptionKey } from '../../../lib/release/signature/encryption.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { DriveReports } from '../../../lib/update/agent/driveReports.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { ReportingSite } from '../../fakes/cluster/reportingSite.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { writeToRegion } from '../../support/content/updateReport.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

type Media = ConstructorParameters<typeof DriveReports>[1];

/** A drive with a bundle and a region for reports, which may fail. */
class Drive implements Media {
  readonly region = Buffer.alloc(8 * 1024 * 1024);
  failure: PluginError | undefined;

  async writeReport(...[, { name, content }]: Parameters<Media['writeReport']>) {
    if (this.failure) throw this.failure;
    const isNew = await writeToRegion(this.region, name, content);
    return { outcome: isNew ? 'written' : 'same', bytes: content.length } as const;
  }

  /** Reads the reports on it, the newest first. */
  read() {
    const { region } = this;
    return readReports(region.length, (at, size) => Promise.resolve(region.subarray(at, at + size)));
  }
}

describe('the reports on the drives of a node', () => {
  let made: TestBundle;
  /** A bundle whose drives take reports as they are. */
  let plain: TestBundle;
  let keys: string;
  let site: ReportingSite;
  let cache: BundleCache;
  let folder: string;
  let drive: Drive;
  let context: TestContext;
  let reports: DriveReports;

  before(async () => {
    keys = await makeFolder();
    const pair = await openpgp.generateKey({ userIDs: [{ name: 'engineer' }] });
    await writeFile(join(keys, 'public'), pair.publicKey);
    await writeFile(join(keys, 'private'), pair.privateKey);
    const { key } = await readEncryptionKey(join(keys, 'public'));
    made = await makeBundle({ version: '4.19.4', reports: { space: 8 * 1024 ** 2, key } });
    plain = await makeBundle({ version: '4.19.4', reports: { space: 8 * 1024 ** 2 } });
  });
  after(async () => {
    for (const bundle of [made, plain]) await bundle.remove();
    await removeFolder(keys);
  });
  beforeEach(async () => {
    site = await ReportingSite.start();
    folder = await makeFolder();
    drive = new Drive();
    context = makeContext();
    cache = await verify(made);
    reports = open();
  });
  afterEach(async () => {
    mock.reset();
    await site.started.close();
    await removeFolder(folder);
  });

  /** Verifies a bundle as the agent does, which keeps its facts. */
  async function verify({ path, folder: device, keyFile, key }: TestBundle): Promise<BundleCache> {
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const trust = { keyrings: [keyFile], fingerprints: [key.fingerprint], allowUnsigned: false, fetchFile };
    const verifying = new BundleCache(folder, trust);
    const verified = await verifying.verify({ path, device }, digestOf(await readFile(path)), makeContext());
    await verified.bundle[Symbol.asyncDispose]();
    return verifying;
  }
  /** Starts the agent again, whose rounds take some milliseconds. */
  const open = (interval = 0): DriveReports => new DriveReports(site.started.cluster, drive, cache, interval, context);
  /** Plugs in a drive with a bundle. */
  async function plug(bundle = made): Promise<FoundBundle> {
    const source = { device: bundle.folder };
    const { bundles } = await examineFiles(bundle.folder, [basename(bundle.path)], source, makeContext());
    return bundles[0] ?? expect.fail('there is no bundle');
  }
  /** Stores the record of the update from a bundle, which is at a phase. */
  async function record(phase: string, bundle = made): Promise<UpgradeBundle> {
    const digest = digestOf(await readFile(bundle.path));
    return site.record({ phase, version: '4.19.4' }, { bundle: { digest } });
  }
  const lines = (words: string): string[] => context.lines.filter((line) => line.includes(words));

  it('are written once, by the time of the report, and encrypted to the key of the bundle', async () => {
    const loading = await record('Loading');
    const report = await site.publish(1, loading);
    const found = await plug();
    reports = open(60_000);
    expect(await reports.follow([loading], [found])).to.equal(true);
    const [written, ...others] = await drive.read();
    expect(others).to.deep.equal([]);
    const time = report.created.replace(/[-:]|\.\d+/g, '');
    expect(written?.name).to.equal(`update-report-${report.cluster}-${time}.json.gpg`);
    const envelope = await decryptWith(join(keys, 'private'), written?.content ?? Buffer.alloc(0), 'x', 10_000_000);
    expect(openUpdateReport(envelope, 'x', []).report).to.deep.equal(report);
    expect(lines(`report 1 of the cluster is on the drive ${found.device}`)).to.have.length(1);
    expect(await reports.follow([loading], [found])).to.equal(false);
    // The same drive, plugged in again, is looked at immediately, and has the report.
    expect(await reports.follow([loading], [await plug()])).to.equal(true);
    expect(await drive.read()).to.have.length(1);
    expect(lines('is on the drive')).to.have.length(1);
  });

  it('are written as they are if the bundle names no key', async () => {
    cache = await verify(plain);
    const loading = await record('Loading', plain);
    const report = await site.publish(1, loading);
    await open().follow([loading], [await plug(plain)]);
    const [written] = await drive.read();
    expect(openUpdateReport(written?.content ?? Buffer.alloc(0), 'x', []).report).to.deep.equal(report);
    expect(written?.name).to.match(/\.json$/);
  });

  it('are written again when there is a newer one, which is looked for each fourth round', async () => {
    cache = await verify(plain);
    const loading = await record('Loading', plain);
    await site.publish(1, loading);
    const found = await plug(plain);
    reports = open(60_000);
    await reports.follow([loading], [found]);
    const completed = await record('Completed', plain);
    const { sequence } = await site.publish(2, completed);
    expect(await reports.follow([completed], [found])).to.equal(false);
    const later = performance.now() + 240_000;
    mock.method(performance, 'now', () => later);
    expect(await reports.follow([completed], [found])).to.equal(true);
    const [written] = await drive.read();
    expect(openUpdateReport(written?.content ?? Buffer.alloc(0), 'x', []).report).to.include({ sequence });
  });

  it('are written to no drive with another bundle, and none before the bundle is allowed', async () => {
    const loading = await record('Loading');
    await site.publish(1, loading);
    await reports.follow([loading], [await plug(plain)]);
    const found = site.record({ phase: 'Detected' }, { bundle: {} });
    expect(await reports.follow([found], [await plug()])).to.equal(false);
    expect(await drive.read()).to.deep.equal([]);
  });

  it('name a drive that cannot be written once in the log, and until it is removed', async () => {
    const loading = await record('Loading');
    await site.publish(1, loading);
    drive.failure = new PluginError('not-writable', '/dev/sdb cannot be written');
    for (const found of [await plug(), await plug()]) expect(await reports.follow([loading], [found])).to.equal(true);
    expect(lines('warn: /dev/sdb cannot be written')).to.have.length(1);
    expect(reports.problems).to.deep.equal(['/dev/sdb cannot be written']);
    await reports.follow([loading], []);
    expect(reports.problems).to.deep.equal([]);
    drive.failure = new PluginError('interrupted', 'stopped');
    await failureOf(reports.follow([loading], [await plug()]), 'interrupted');
  });

  it('stop nothing if the report cannot be read', async () => {
    const loading = await record('Loading');
    site.started.server.put({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'update-report', namespace: 'oc-upgrade-bundle' },
      data: { sequence: '1', signature: 'x', 'report.key': 'x' },
      binaryData: { 'report.gz': 'AAAA' },
    });
    expect(await reports.follow([loading], [await plug()])).to.equal(false);
    expect(lines('debug: no report is written: the ConfigMap update-report has no report: ')).to.have.length(1);
  });

  describe('and the screen', () => {
    let completed: UpgradeBundle;
    /** Writes the report of a running update, removes the drive, and ends the update. */
    beforeEach(async () => {
      const loading = await record('Loading');
      await site.publish(1, loading);
      const found = await plug();
      await reports.follow([loading], [found]);
      expect(reports.stateOf([loading], [found])).to.equal(undefined);
      completed = await record('Completed');
    });

    it('wants the drive back for the report of the end, also after a restart, until it has it', async () => {
      await reports.follow([completed], []);
      expect(reports.stateOf([completed], [])).to.equal(undefined);
      await site.publish(2, completed);
      reports = open();
      await reports.follow([completed], []);
      expect(reports.stateOf([completed], [])).to.equal('wanted');
      const found = await plug();
      expect(reports.stateOf([completed], [found])).to.equal('writing');
      await reports.follow([completed], [found]);
      expect(reports.stateOf([completed], [found])).to.equal('written');
      expect(reports.stateOf([completed], [])).to.equal(undefined);
    });

    it('asks for no drive without a record of the last one, or with a damaged one', async () => {
      await site.publish(2, completed);
      for (const text of ['', '{"bundle":1}']) {
        await writeFile(join(folder, 'report-on-drive.json'), text);
        reports = open();
        await reports.follow([completed], []);
        expect(reports.stateOf([completed], [])).to.equal(undefined);
      }
    });

    it('asks to leave a drive for ten minutes at most, and not if it cannot be written', async () => {
      const found = await plug();
      await reports.follow([completed], [found]);
      expect(reports.stateOf([completed], [found])).to.equal('writing');
      const start = performance.now();
      const passed = mock.method(performance, 'now', () => start + 9 * 60_000);
      expect(reports.stateOf([completed], [found])).to.equal('writing');
      passed.mock.mockImplementation(() => start + 11 * 60_000);
      expect(reports.stateOf([completed], [found])).to.equal(undefined);
      mock.reset();
      reports = open();
      await reports.follow([completed], [found]);
      drive.failure = new PluginError('not-writable', 'it cannot be written');
      await site.publish(2, completed);
      await reports.follow([completed], [found]);
      expect(reports.stateOf([completed], [found])).to.equal(undefined);
    });
  });
});

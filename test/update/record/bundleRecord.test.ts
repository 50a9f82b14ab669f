import { expect } from 'chai';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { fieldsAt, fieldsOf, listOf, type Fields } from '../../../lib/fields.ts';
import {
  abortUpdate,
  allowBundle,
  awaitAbort,
  chooseRecord,
  cleanRecords,
  listRecords,
  resumeUpdate,
} from '../../../lib/update/record/bundleRecord.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const digest: Digest = `sha256:${'a'.repeat(64)}`;
const other: Digest = `sha256:${'b'.repeat(64)}`;

const specSchema = fieldsAt(
  listOf(fieldsAt(upgradeBundleDefinition(), 'spec')['versions'])[0],
  'schema',
  'openAPIV3Schema',
  'properties',
  'spec',
);
const texts = [
  'Sat 22:00-04:00 UTC',
  '2h',
  digest,
  '4.19.3',
  '/mnt/drive',
  'ack-4.19-api-removals',
  'drains',
  'AnyRisk',
];

/** Returns a value other than the default for a schema of the definition. Fails for a pattern that no text has. */
function sampleOf({ type, properties, items, enum: choices, pattern = '' }: Fields): unknown {
  if (type === 'object')
    return Object.fromEntries(
      Object.entries(fieldsOf(properties)).map(([key, each]) => [key, sampleOf(fieldsOf(each))]),
    );
  if (type === 'array') return [sampleOf(fieldsOf(items))];
  if (type === 'boolean') return true;
  const sample = ((choices as string[] | undefined) ?? texts).findLast((each) =>
    new RegExp(pattern as string).test(each),
  );
  if (sample === undefined) throw new Error(`no sample for ${String(pattern)}: add one to texts`);
  return sample;
}

describe('the record of a bundle', () => {
  let server: TestApiServer;
  let connected: StartedCluster;

  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    ({ server } = connected);
    server.put(upgradeBundleDefinition());
  });
  afterEach(() => connected.close());
  const put = (name: string, phase: string, spec: object = { bundle: { digest } }, marks: object = {}): void => {
    const api = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };
    server.put({ ...api, metadata: { name, ...marks }, spec, status: { phase, version: '4.19.4' } });
  };
  const find = async (name: string): Promise<UpgradeBundle> => chooseRecord(await listRecords(connected.cluster), name);
  const allow = (changes: Partial<Parameters<typeof allowBundle>[1]> = {}) =>
    allowBundle(connected.cluster, { name: '4.19.4-x86-64', digest, ...changes });

  it('is created when a bundle is allowed, and stays when it is allowed again', async () => {
    expect(await allow({ hold: true, file: '/dev/sdb' })).to.include({ outcome: 'created' });
    expect((await find('4.19.4-x86-64')).spec).to.deep.equal({ bundle: { digest, file: '/dev/sdb' }, hold: true });
    expect(await allow()).to.include({ outcome: 'unchanged' });
    expect((await find('4.19.4-x86-64')).spec.hold).to.equal(true);
  });

  it('completes the record of its own name that agents proposed, and no other', async () => {
    put('4.19.4-x86-64', 'Detected', { bundle: {} });
    expect(await allow()).to.include({ outcome: 'configured' });
    expect((await find('4.19.4-x86-64')).spec.bundle.digest).to.equal(digest);
    put('4.19.4-x86-64', 'Failed');
    put('upgrade-4.19.9-x86-64', 'Detected', { bundle: {} });
    const { bundle, outcome } = await allow({ name: 'second' });
    expect([bundle.metadata.name, outcome]).to.deep.equal(['second', 'created']);
    expect((await find('upgrade-4.19.9-x86-64')).spec.bundle.digest).to.equal(undefined);
    const third = await failureOf(allow({ name: 'third' }), 'conflict');
    expect(third.message).to.equal('second allows the same bundle: Detected');
    expect((await allow({ name: undefined })).bundle.metadata.name).to.equal('second');
  });

  it('takes another digest as long as nothing is verified', async () => {
    await allow({ digest: other });
    expect(await allow({ hold: true })).to.include({ outcome: 'configured' });
    expect((await find('4.19.4-x86-64')).spec).to.deep.include({ bundle: { digest }, hold: true });
    expect(await listRecords(connected.cluster)).to.have.length(1);
  });

  const stated = { digest: other, version: '4.19.3', releaseDigest: other, file: '/dev/sdb' } as const;
  const changes = {
    digest: { digest },
    version: { digest: other, version: '4.19.4' },
    'digest of the release': { digest: other, releaseDigest: digest },
    'digest and device': { digest, file: '/dev/sdc' },
    'whole bundle': { digest, version: '4.19.4', releaseDigest: digest },
  } as const;
  for (const [what, request] of Object.entries(changes)) {
    it(`keeps every other setting if another ${what} replaces the allowed one`, async () => {
      const { bundle: _, ...settings } = sampleOf(specSchema) as Record<string, unknown>;
      expect(Object.keys(settings)).to.include.members(['hold', 'backupTo', 'acknowledge', 'ignore']);
      const marks = { labels: { site: 'north' }, annotations: { note: 'night shift' } };
      put('4.19.4-x86-64', 'Detected', { ...settings, bundle: stated }, marks);
      const { bundle } = await allow(request);
      expect(bundle.spec).to.deep.equal({ ...settings, bundle: { ...stated, ...request } });
      expect(bundle.metadata).to.deep.include(marks);
    });
  }

  it('stays unchanged if the API server refuses its replacement', async () => {
    await allow({ digest: other, hold: true });
    await failureOf(allow({ acknowledge: ['not an acknowledgement'] }));
    expect((await find('4.19.4-x86-64')).spec).to.deep.include({ bundle: { digest: other }, hold: true });
  });

  it('is for one bundle, and for one at a time', async () => {
    put('4.19.4-x86-64', 'Loading');
    const changed = await failureOf(allow({ digest: other }), 'conflict');
    expect(changed.message).to.contain('is allowed with another digest');
    const second = await failureOf(allow({ name: '4.19.5-x86-64', digest: other }), 'conflict');
    expect(second.message).to.equal('4.19.4-x86-64 is under way with another bundle: Loading');
    put('4.19.4-x86-64', 'Failed');
    expect((await failureOf(allow(), 'conflict')).hint).to.contain('clean 4.19.4-x86-64');
  });

  it('may begin when it is resumed', async () => {
    put('held', 'Held', { bundle: { digest }, hold: true });
    expect(await resumeUpdate(connected.cluster, await find('held'))).to.include({ outcome: 'configured' });
    expect((await find('held')).spec.hold).to.equal(false);
    expect(await resumeUpdate(connected.cluster, await find('held'))).to.include({ outcome: 'unchanged' });
    put('held', 'Completed');
    await failureOf(resumeUpdate(connected.cluster, await find('held')), 'conflict');
  });

  it('aborts an update, and waits for the controller', async () => {
    put('going', 'Loading');
    await abortUpdate(connected.cluster, await find('going'));
    const { metadata, ...bundle } = await find('going');
    expect(metadata.annotations).to.deep.equal({ 'upgrade-bundle.openshift.io/abort': 'true' });
    const wait = { timeout: 50, interval: 10 };
    const late = await failureOf(awaitAbort(connected.cluster, 'going', wait, connected.context), 'not-ready');
    expect(late.message).to.equal('going is not aborted yet; its phase is Loading');
    const waiting = awaitAbort(connected.cluster, 'going', { timeout: 10_000, interval: 10 }, connected.context);
    server.put({ ...bundle, metadata: { name: 'going' }, status: { phase: 'Failed' } });
    await waiting;
  });

  it('cannot be aborted once the cluster updates, and says what to do instead', async () => {
    put('going', 'Upgrading');
    const { revision } = server.objects;
    const error = await failureOf(abortUpdate(connected.cluster, await find('going')), 'conflict');
    expect(error.message).to.equal('the update to 4.19.4 has begun, and cannot be aborted');
    expect(error.hint).to.contain('oc adm upgrade rollback');
    expect(server.objects.revision).to.equal(revision);
  });

  it('is compared again if the update begins while a user aborts it', async () => {
    put('going', 'Pinned');
    const seen = await find('going');
    put('going', 'Upgrading');
    await failureOf(abortUpdate(connected.cluster, seen), 'conflict');
    expect((await find('going')).metadata.annotations).to.equal(undefined);
  });

  it('is removed when the update has ended, and not before', async () => {
    put('done', 'Completed');
    put('broken', 'Failed');
    put('going', 'Loading');
    expect((await failureOf(cleanRecords(connected.cluster, 'going'), 'conflict')).hint).to.contain('abort');
    expect(await cleanRecords(connected.cluster, 'done')).to.deep.equal(['done']);
    expect(await cleanRecords(connected.cluster, undefined)).to.deep.equal(['broken']);
    expect(await cleanRecords(connected.cluster, undefined)).to.deep.equal([]);
  });

  it('prints what to do if nothing is installed, and if no object has that name', async () => {
    put('going', 'Loading');
    expect((await failureOf(find('gone'), 'not-found')).hint).to.equal('There is going.');
    server.kinds.splice(0, Infinity, ...server.kinds.filter(({ kind }) => kind !== 'UpgradeBundle'));
    await using fresh = await connectTo(server);
    const error = await failureOf(listRecords(fresh.cluster), 'not-served');
    expect(error.hint).to.contain('oc adm-upgrade-bundle install');
  });
});

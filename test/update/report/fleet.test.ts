import { expect } from 'chai';
import { openUpdateReport, type UpdateReport } from '../../../lib/config/updateReport.ts';
import { PluginError } from '../../../lib/errors.ts';
import { lastUpdateOf, listSiteProblems, summarizeFleet, type FleetMember } from '../../../lib/update/report/fleet.ts';
import type { FoundReport } from '../../../lib/update/report/reportFiles.ts';
import { makeReportKey, makeUpdateReport, signUpdateReport } from '../../support/content/updateReport.ts';

const now = Date.parse('2026-11-20T12:00:00Z');
const blocker = (object: string): object => ({ check: 'a', severity: 'blocker', object, message: 'is not ready' });

describe('summarizeFleet', () => {
  const key = makeReportKey();
  const found = (where: string, changes: Partial<UpdateReport> = {}, signer = key): FoundReport => {
    const envelope = signUpdateReport(makeUpdateReport(signer, changes), signer);
    return { where, envelope, opened: openUpdateReport(envelope, where, []) };
  };
  const summarize = (...reports: FoundReport[]): Promise<FleetMember[]> => summarizeFleet(reports, now);
  const blocked = (...objects: string[]): Partial<UpdateReport> => ({
    site: { findings: objects.map(blocker) } as never,
  });

  it('has the facts in the report of a cluster', async () => {
    const report = found('a.json');
    const [member, ...rest] = await summarize(report);
    expect(rest).to.deep.equal([]);
    expect(member).to.deep.equal({
      file: 'a.json',
      cluster: 'c0ffee00-0000-4000-8000-000000000001',
      version: '4.19.4',
      nodes: 2,
      update: {
        version: '4.19.4',
        phase: 'Completed',
        started: '2026-11-20T08:00:00Z',
        ended: '2026-11-20T09:10:05Z',
        duration: 4205,
      },
      problems: [],
      free: 40 * 2 ** 30,
      created: '2026-11-20T10:00:00Z',
      sequence: 3,
      age: 7200,
      signer: report.opened?.signer,
      trusted: false,
    });
  });

  it('has the newest report of each cluster, in any order of the files', async () => {
    const [old, fresh] = [found('1.json'), found('2.json', { created: '2026-11-20T11:00:00Z', sequence: 4 })] as const;
    for (const files of [
      [old, fresh],
      [fresh, old],
    ])
      expect((await summarize(...files)).map(({ file }) => file)).to.deep.equal(['2.json']);
  });

  it('puts clusters with the most problems first, and files that cannot be used last', async () => {
    const members = await summarize(
      { where: 'x.json', problem: new PluginError('invalid-file', 'x.json is no report') },
      found('b.json', { cluster: 'b' }),
      found('a.json', { cluster: 'a' }),
      found('c.json', { cluster: 'c', ...blocked('node/x', 'node/y') }),
      found('d.json', { cluster: 'd', ...blocked('node/z') }),
    );
    expect(members.map(({ cluster }) => cluster)).to.deep.equal(['c', 'd', 'a', 'b', undefined]);
    expect(members.at(-1)).to.deep.equal({ file: 'x.json', problems: ['x.json is no report'] });
  });

  it('shows that two keys sign reports of one cluster, and has a report of each', async () => {
    const members = await summarize(
      found('1.json', { cluster: 'a', ...blocked('node/x') }),
      found('9.json', { cluster: 'a', sequence: 99 }, makeReportKey()),
    );
    expect(members.map(({ file, problems }) => [file, ...problems])).to.deep.equal([
      ['1.json', '2 keys sign reports of this cluster: compare their fingerprints', 'node/x is not ready'],
      ['9.json', '2 keys sign reports of this cluster: compare their fingerprints'],
    ]);
  });
});

describe('lastUpdateOf', () => {
  const report = makeUpdateReport(makeReportKey());
  const [update] = report.updates;
  const [entry] = report.site.history;

  it('is that of the record, past a bundle that was only found', () => {
    const updates = [
      { ...update, version: '4.19.9', phase: 'Detected' },
      { ...update, version: '4.19.4', phase: 'Failed' },
    ] as UpdateReport['updates'];
    expect(lastUpdateOf({ ...report, updates })).to.deep.include({
      version: '4.19.4',
      phase: 'Failed',
      duration: 4205,
    });
  });

  it('is that of the version operator without a record, and still running without an end', () => {
    const { completed: _, ...running } = entry ?? expect.fail('there is no history');
    const site = { ...report.site, history: [running] };
    const started = { version: '4.19.4', phase: 'Upgrading', started: '2026-11-20T08:00:00Z' };
    expect(lastUpdateOf({ ...report, updates: [], site })).to.deep.equal(started);
    expect(lastUpdateOf({ ...report, updates: [] })).to.deep.include({ phase: 'Completed' });
    expect(lastUpdateOf({ ...report, updates: [], site: { ...site, history: [] } })).to.equal(undefined);
  });

  it('has no duration if the clock was set back meanwhile', () => {
    const history = [{ ...(entry ?? expect.fail('there is no history')), completed: '2026-11-20T07:00:00Z' }];
    expect(lastUpdateOf({ ...report, site: { ...report.site, history } })).not.to.have.property('duration');
  });
});

describe('listSiteProblems', () => {
  const report = makeUpdateReport(makeReportKey());
  const withConditions = (reason: UpdateReport['reason'], ...conditions: object[]): string[] =>
    listSiteProblems({ ...report, reason, updates: [{ ...report.updates[0], conditions }] } as UpdateReport);

  it('names why an update failed or stands still, before the blockers', () => {
    const updated = { type: 'Updated', status: 'False', message: 'etcd is degraded' };
    const stalled = { type: 'Stalled', status: 'True', message: 'a drain takes 2 h' };
    expect(withConditions('Failed', stalled, updated)).to.deep.equal(['the update failed: etcd is degraded']);
    expect(withConditions('Stopped', updated, stalled)).to.deep.equal(['the update stands still: a drain takes 2 h']);
    expect(withConditions('Failed', { ...updated, status: 'True' })).to.deep.equal([
      'the update failed: no reason is stated',
    ]);
    expect(withConditions('Completed', updated, stalled)).to.deep.equal([]);
    const findings = [blocker('node/x'), { ...blocker('node/y'), severity: 'warning' }];
    const site = { ...report.site, findings } as UpdateReport['site'];
    expect(listSiteProblems({ ...report, reason: 'Stopped', updates: [], site })).to.deep.equal([
      'the update stands still: no reason is stated',
      'node/x is not ready',
    ]);
  });
});

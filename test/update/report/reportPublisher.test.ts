import { expect } from 'chai';
import { updateReportLimits } from '../../../lib/config/updateReport.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { ReportingSite } from '../../fakes/cluster/reportingSite.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import type { StartedCluster } from '../../support/cluster.ts';
import { until } from '../../support/until.ts';

describe('the published report of a cluster', () => {
  const namespace = 'oc-upgrade-bundle';
  let site: ReportingSite;
  let started: StartedCluster;

  beforeEach(async () => {
    site = await ReportingSite.start();
    ({ started } = site);
    started.server.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'agent-x', namespace },
      spec: { nodeName: 'worker-0', containers: [{ name: 'agent', image: platformImage('d') }] },
      status: { phase: 'Running' },
    });
  });
  afterEach(() => started.close());
  const record = (status: object): UpgradeBundle => site.record(status);

  it('has the site, the record and its backups, and is signed', async () => {
    const backup = { node: 'master-0', path: '/b', version: '4.19.3', time: '2026-11-01T00:00:00Z' };
    const digest = `sha256:${'a'.repeat(64)}`;
    const report = await site.publish(
      1,
      record({
        phase: 'Completed',
        version: '4.19.4',
        backups: [{ ...backup, size: 1, digest, pools: [] }],
      }),
    );
    expect(report).to.include({ reason: 'Completed', tool: 'test/1' });
    expect(report.site).to.include({ version: '4.19.3', reportKey: exportPublicKey(site.key).toString() });
    expect(report.updates[0]?.backups).to.deep.equal([{ ...backup, size: 1, digest }]);
    expect(report.gathered).to.equal(undefined);
  });

  it('has the files of gather if an update failed or stands still, without secrets and within its limits', async () => {
    const lines = Array.from(
      { length: 4000 },
      (_, index) => `line ${index} of a log: http://joe:hunter2@proxy ${Math.random()}`,
    );
    started.server.podLogs.set(`${namespace}/agent-x`, [...lines, 'the last line']);
    const stalled = [
      {
        type: 'Stalled',
        status: 'True',
        reason: 'Failing',
        message: 'no space',
        lastTransitionTime: '2026-11-01T00:00:00Z',
      },
    ];
    const stopped = await site.publish(1, record({ phase: 'Loading', version: '4.19.4', conditions: stalled }));
    expect(stopped.reason).to.equal('Stopped');
    const log = stopped.gathered?.find(({ path }) => path.includes('agent-x'));
    expect(log?.content)
      .to.match(/the last line\n?$/)
      .and.not.include('hunter2');
    expect(stopped.shortened).to.include(log?.path);
    expect(JSON.stringify(stopped).length).to.be.below(updateReportLimits.content);
    const failed = await site.publish(2, record({ phase: 'Failed', version: '4.19.4' }));
    expect(failed.reason).to.equal('Failed');
    expect(failed.gathered?.map(({ path }) => path)).to.include('objects/upgradebundle.json');
  });

  it('is made again when an update ends, and not before', async () => {
    const loading = record({ phase: 'Loading', version: '4.19.4' });
    await site.publish(1, loading);
    const { revision } = started.server.objects;
    site.publisher.follow([loading]);
    site.publisher.follow([record({ phase: 'Pinned', version: '4.19.4' })]);
    expect((await site.read())?.sequence).to.equal(1);
    expect((await site.publish(2, record({ phase: 'Completed', version: '4.19.4' }))).reason).to.equal('Completed');
    expect(started.server.objects.revision).to.be.above(revision);
  });

  it('is not made twice when another controller leads', async () => {
    const completed = record({ phase: 'Completed', version: '4.19.4' });
    await site.publish(1, completed);
    const { revision } = started.server.objects;
    const requests = started.server.requests.length;
    site.makePublisher().follow([completed]);
    await until(() => started.server.requests.length > requests);
    expect(started.server.objects.revision).to.equal(revision);
  });

  it('is logged as impossible, and stops nothing, if it cannot be made', async () => {
    started.server.objects.delete(
      {
        kind: started.server.kinds.find(({ kind }) => kind === 'ConfigMap') ?? expect.fail(),
        namespace,
        name: 'update-report',
      },
      {},
      false,
    );
    site.publisher.follow([record({ phase: 'Completed', version: '4.19.4' })]);
    await until(() => started.context.lines.some((line) => line.includes('the report of the cluster cannot be made')));
  });
});

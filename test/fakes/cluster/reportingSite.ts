import { expect } from 'chai';
import { openUpdateReport, type UpdateReport } from '../../../lib/config/updateReport.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import { readPolicyKey } from '../../../lib/release/sigstore/trustRoot.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { reportKeyField, reportMap } from '../../../lib/update/report/reportKey.ts';
import { ReportPublisher, unpackReport } from '../../../lib/update/report/reportPublisher.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeReportKey } from '../../support/content/updateReport.ts';
import { until } from '../../support/until.ts';
import type { Json } from '../kubernetes/apiPatch.ts';
import { furnish } from './site.ts';
import { upgradeBundle } from './updatingSite.ts';

/** A small site whose controller publishes signed reports of the cluster. */
export class ReportingSite {
  readonly key = makeReportKey();
  readonly started: StartedCluster;
  readonly publisher: ReportPublisher;

  private constructor(started: StartedCluster) {
    this.started = started;
    const { server } = started;
    server.put(upgradeBundleDefinition());
    furnish(server);
    for (const name of ['oc-upgrade-bundle', 'openshift-machine-config-operator', 'openshift-cluster-version'])
      if (!server.find('v1', 'Namespace', name))
        server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    server.put({ ...reportMap, data: { [reportKeyField]: exportPublicKey(this.key).toString() } });
    this.publisher = this.makePublisher();
  }

  static async start(): Promise<ReportingSite> {
    return new ReportingSite(await startCluster({ openshift: '4.19.3' }));
  }

  /** Returns the publisher of a controller. */
  makePublisher(): ReportPublisher {
    return new ReportPublisher(this.started.cluster, { key: this.key, tool: 'test/1' }, this.started.context);
  }

  /** Stores the record of an update. */
  record(status: object, spec?: Json): UpgradeBundle {
    return this.started.server.put({ ...upgradeBundle(undefined, spec), status }) as UpgradeBundle;
  }

  /** Reads the published report; undefined if there is none. */
  async read(): Promise<UpdateReport | undefined> {
    const published = await unpackReport(await this.started.cluster.read(reportMap));
    return published && openUpdateReport(published.envelope, 'x', [readPolicyKey(exportPublicKey(this.key))]).report;
  }

  /** Publishes the report about some records, and returns it. It has a number. */
  async publish(sequence: number, ...records: UpgradeBundle[]): Promise<UpdateReport> {
    this.publisher.follow(records);
    await until(async () => (await this.read())?.sequence === sequence);
    return (await this.read()) ?? expect.fail('there is no report');
  }
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { parseSiteReport, type SiteReport } from '../../../lib/config/siteReport.ts';
import { furnish } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';

const group = { group: 'operators.coreos.com', version: 'v1alpha1', namespaced: true, status: true, custom: true };
const apiVersion = 'operators.coreos.com/v1alpha1';
const dueGate = 'ack-4.19-kube-1.33-api-removals-in-4.20';

/** Adds what a report has: operators, policies, gates and counts of requests. */
function fill(server: TestApiServer): void {
  const namespace = 'openshift-operators';
  server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  const properties = JSON.stringify([{ type: 'olm.maxOpenShiftVersion', value: '4.19' }]);
  const metadata = { name: 'web.v1.0.3', namespace, annotations: { 'olm.properties': properties } };
  server.put({ apiVersion, kind: 'ClusterServiceVersion', metadata, spec: { version: '1.0.3' } });
  for (const [name, installedCSV] of [
    ['web', 'web.v1.0.3'],
    ['pending', undefined],
  ]) {
    server.put({
      apiVersion,
      kind: 'Subscription',
      metadata: { name: name ?? '', namespace },
      spec: { name, channel: 'stable', source: 'redhat-operators' },
      status: { installedCSV },
    });
  }
  const pool = server.find('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'worker');
  if (pool) server.put({ ...pool, spec: { ...(pool['spec'] as object), osImageStream: { name: 'rhel-10' } } });
  const gate = { apiVersion: 'config.openshift.io/v1', kind: 'FeatureGate', metadata: { name: 'cluster' } };
  server.put({ ...gate, spec: { featureSet: 'TechPreviewNoUpgrade' } });
  const [policy = ''] = Object.values(imagePolicyFiles());
  const served = { apiVersion: 'config.openshift.io/v1alpha1' };
  server.put({ ...(parse(policy) as Json & { metadata: Json }), ...served });
  const [broken = ''] = Object.values(imagePolicyFiles({ key: 'garbage' }));
  server.put({ ...(parse(broken) as Json), ...served, metadata: { name: 'unusable' } });
  const map = (name: string, namespace: string, data: Record<string, string>): void => {
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data });
  };
  const given = 'ack-4.19-other-in-4.20';
  map('admin-gates', 'openshift-config-managed', { [dueGate]: 'Migrate.', [given]: 'Read.' });
  map('admin-acks', 'openshift-config', { [given]: 'true' });
  const countRequests = (name: string, status: Json): void => {
    server.put({ apiVersion: 'apiserver.openshift.io/v1', kind: 'APIRequestCount', metadata: { name }, status });
  };
  const usedBy = (...users: string[]): Json => ({
    byNode: [
      { nodeName: 'master-0', byUser: users.map((username) => ({ username, userAgent: 'x', requestCount: 1 })) },
    ],
  });
  const walker = 'system:serviceaccount:kube-system:namespace-controller';
  const last24h = [usedBy('app'), {}, usedBy('app', walker)];
  countRequests('jobs.v1.batch', { requestCount: 9, last24h });
  countRequests('unused.v1beta1.x', { requestCount: 0, removedInRelease: '1.33', last24h: [] });
  countRequests('walked.v1beta1.x', { requestCount: 3, removedInRelease: '1.33', last24h: [usedBy(walker)] });
  countRequests('gone.v1beta1.x', { requestCount: 3, removedInRelease: '1.33', last24h, currentHour: usedBy('bob') });
}

describe('preflight --export', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let report: SiteReport;

  before(async () => {
    const counts = { group: 'apiserver.openshift.io', version: 'v1', namespaced: false, status: true, custom: true };
    const kinds = [
      { ...counts, kind: 'APIRequestCount', resource: 'apirequestcounts' },
      { ...group, kind: 'Subscription', resource: 'subscriptions' },
      { ...group, kind: 'ClusterServiceVersion', resource: 'clusterserviceversions' },
    ];
    server = await startApiServer({ openshift: '4.19.3', kinds });
    furnish(server);
    fill(server);
    kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
    const args = [`--kubeconfig=${kubeconfig}`, '--export=site.json'];
    const { code, stderr } = await runProgram(kubeconfigs.folder, 'preflight', args);
    expect([code, stderr]).to.deep.equal([0, 'wrote the report of the site to site.json\n']);
    report = parseSiteReport(await readFile(join(kubeconfigs.folder, 'site.json'), 'utf8'), 'site.json');
  });
  after(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });

  it('has the version, the nodes, the pools and the history', () => {
    expect(report).to.deep.include({ version: '4.19.3', arch: 'x86_64' });
    expect(report.nodes).to.have.length(3);
    expect(report.pools?.find(({ name }) => name === 'worker')).to.include({ osStream: 'rhel-10' });
    expect(report.featureGates).to.deep.equal({ featureSet: 'TechPreviewNoUpgrade', enabled: [], disabled: [] });
    expect(report.history[0]?.image).to.include('@sha256:');
  });

  it('has the images that nodes hold, from one list of the nodes', () => {
    const registry = 'quay.io/openshift-release-dev';
    expect(report.heldImages).to.deep.equal({
      [`${registry}/ocp-release`]: ['1'.repeat(64)],
      [`${registry}/ocp-v4.0-art-dev`]: ['a'.repeat(64)],
    });
    expect(report.otherImages).to.be.an('array');
    expect(server.requests.filter(({ path }) => /\/api\/v1\/nodes(\?|$)/.test(path))).to.have.length(1);
  });

  it('has the keys of image policies, and why one cannot be used', () => {
    expect(report.policies?.[0]).to.include({ name: 'openshift' });
    expect(report.policies?.[0]?.key).to.match(/^[0-9a-f]{64}$/);
    expect(report.policies?.[1]?.unsupported).to.match(/^its key cannot be read/);
  });

  it('has the acknowledgements that are due, and the users of removed APIs', () => {
    expect(report.acknowledgements).to.deep.equal([{ name: dueGate, text: 'Migrate.' }]);
    expect(report.gateConditions).to.deep.include({ hasMirrorSets: false, hasArmNodes: false, managedBootImages: [] });
    expect(report.removedApis).to.deep.equal([{ name: 'gone.v1beta1.x', removedIn: '1.33', users: ['app', 'bob'] }]);
  });

  it('has the installed operators with their limits', () => {
    expect(report.operators).to.deep.equal([
      { name: 'web', version: '1.0.3', channel: 'stable', catalog: 'redhat-operators', maxOpenShiftVersion: '4.19' },
    ]);
  });
});

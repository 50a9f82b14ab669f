import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parseSiteReport } from '../../lib/config/siteReport.ts';
import { startApiServer, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { furnish } from '../fakes/cluster/site.ts';
import { runProgram } from '../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../support/kubeconfig.ts';

const group = { group: 'operators.coreos.com', version: 'v1alpha1', namespaced: true, status: true, custom: true };
const apiVersion = 'operators.coreos.com/v1alpha1';

describe('preflight --export', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;

  before(async () => {
    const kinds = [
      { ...group, kind: 'Subscription', resource: 'subscriptions' },
      { ...group, kind: 'ClusterServiceVersion', resource: 'clusterserviceversions' },
    ];
    server = await startApiServer({ openshift: '4.19.3', kinds });
    furnish(server);
    kubeconfigs = await makeKubeconfigFolder();
  });
  after(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });

  it('writes the version, the nodes and the installed operators, with their limits', async () => {
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
        ...{ apiVersion, kind: 'Subscription', metadata: { name: name ?? '', namespace } },
        spec: { name, channel: 'stable', source: 'redhat-operators' },
        status: { installedCSV },
      });
    }
    const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
    const args = [`--kubeconfig=${kubeconfig}`, '--export=site.json'];
    const { code, stderr } = await runProgram(kubeconfigs.folder, 'preflight', args);
    expect([code, stderr]).to.deep.equal([0, 'wrote the report of the site to site.json\n']);
    const text = await readFile(join(kubeconfigs.folder, 'site.json'), 'utf8');
    const report = parseSiteReport(text, 'site.json');
    expect(report).to.deep.include({ version: '4.19.3', arch: 'x86_64' });
    expect(report.nodes).to.have.length(3);
    expect(report.operators).to.deep.equal([
      {
        ...{ name: 'web', version: '1.0.3', channel: 'stable', catalog: 'redhat-operators' },
        maxOpenShiftVersion: '4.19',
      },
    ]);
  });
});

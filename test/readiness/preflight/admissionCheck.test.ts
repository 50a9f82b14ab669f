import { expect } from 'chai';
import { formatSubject } from '../../../lib/cluster/finding.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { checkWebhooks } from '../../../lib/readiness/preflight/admissionCheck.ts';
import { furnish } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const pods = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] };
describe('preflight of webhooks', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    furnish(connected.server);
  });
  afterEach(() => connected.close());

  const put = (webhook: Json = {}, kind = 'ValidatingWebhookConfiguration'): void => {
    const clientConfig = { service: { name: 'guard', namespace: 'shop' } };
    connected.server.put({
      ...{ apiVersion: 'admissionregistration.k8s.io/v1', kind, metadata: { name: 'guard' } },
      webhooks: [{ name: 'guard.shop', failurePolicy: 'Fail', clientConfig, rules: [pods], ...webhook }],
    });
  };
  const putEndpoints = (...endpoints: Json[]): void => {
    const metadata = { name: 'guard-x', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'guard' } };
    const slice = { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata };
    connected.server.put({ ...slice, addressType: 'IPv4', endpoints });
  };
  const on = (nodeName: string, ready = true): Json => ({ addresses: ['10.0.0.1'], conditions: { ready }, nodeName });
  const find = async (): Promise<string[]> =>
    checkWebhooks(await surveyCluster(connected.cluster)).map(
      ({ severity, subject, message }) => `${severity} ${formatSubject(subject)} ${message}`,
    );
  const none =
    'guard.shop (failurePolicy Fail) has no ready pod (service guard in shop): the API server refuses to change';

  it('blocks if no pod of a webhook is ready, and it is for what the platform writes', async () => {
    put();
    putEndpoints(on('worker-0', false));
    const found = checkWebhooks(await surveyCluster(connected.cluster));
    expect(found[0]?.advice).to.contain('oc edit validatingwebhookconfiguration guard');
    expect(await find()).to.deep.equal([`blocker validatingwebhookconfiguration/guard ${none} pods`]);
    putEndpoints(on('worker-0'), on('worker-1'));
    expect(await find()).to.deep.equal([]);
  });

  it('only warns if the webhook is for other namespaces or for objects of others', async () => {
    put(
      { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'shop' } } },
      'MutatingWebhookConfiguration',
    );
    expect(await find()).to.deep.equal([`warning mutatingwebhookconfiguration/guard ${none} pods`]);
    put({ rules: [{ ...pods, apiGroups: ['example.com'], resources: ['shops'] }] }, 'MutatingWebhookConfiguration');
    expect(await find()).to.deep.equal([`warning mutatingwebhookconfiguration/guard ${none} shops`]);
  });

  it('warns if all pods of a webhook for new pods are on one node', async () => {
    put();
    putEndpoints(on('worker-0'), on('worker-0'), on('worker-1', false));
    expect(await find()).to.deep.equal([
      'warning validatingwebhookconfiguration/guard guard.shop (failurePolicy Fail) has all its pods on worker-0 (service guard in shop), and it is for its own pods too',
    ]);
    put({ rules: [{ ...pods, operations: ['DELETE'] }] });
    expect(await find()).to.deep.equal([]);
  });

  it('finds nothing for a webhook that need not answer, and for one outside of the cluster', async () => {
    put({ failurePolicy: 'Ignore' });
    expect(await find()).to.deep.equal([]);
    put({ clientConfig: { url: 'https://guard.example.com' } });
    expect(await find()).to.deep.equal([]);
  });
});

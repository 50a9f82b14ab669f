import { expect } from 'chai';
import { formatSubject } from '../../../lib/cluster/finding.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { checkWebhooks } from '../../../lib/readiness/preflight/webhookCheck.ts';
import { furnish, pod } from '../../fakes/cluster/site.ts';
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
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind,
      metadata: { name: 'guard' },
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

  it('blocks if no pod of a webhook is ready that concerns objects of the platform', async () => {
    put();
    putEndpoints(on('worker-0', false));
    const found = checkWebhooks(await surveyCluster(connected.cluster));
    expect(found[0]?.advice).to.contain('oc edit validatingwebhookconfiguration guard');
    expect(await find()).to.deep.equal([`blocker validatingwebhookconfiguration/guard ${none} pods`]);
    putEndpoints(on('worker-0'), on('worker-1'));
    expect(await find()).to.deep.equal([]);
  });

  it('warns of a webhook for pods of others, and leaves out one that nothing of an update meets', async () => {
    connected.server.put(pod('web-0', 'shop'));
    put(
      { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'shop' } } },
      'MutatingWebhookConfiguration',
    );
    expect(await find()).to.deep.equal([`warning mutatingwebhookconfiguration/guard ${none} pods`]);
    for (const rule of [
      { ...pods, apiGroups: ['example.com'], resources: ['shops'] },
      { ...pods, resources: ['pods/exec'], operations: ['CONNECT'] },
      { ...pods, scope: 'Cluster' },
      { ...pods, resources: ['persistentvolumeclaims'] },
    ]) {
      put({ rules: [rule] }, 'MutatingWebhookConfiguration');
      expect(await find(), JSON.stringify(rule)).to.deep.equal([]);
    }
  });

  it('reads the object selector as the API server does', async () => {
    const selects = (objectSelector: Json, rule: Json = pods): Promise<string[]> => {
      put({ objectSelector, rules: [rule] });
      return find();
    };
    const blocked = `blocker validatingwebhookconfiguration/guard ${none} pods`;
    const label = 'serving.kserve.io/inferenceservice';
    connected.server.put({
      ...pod('predictor', 'shop'),
      metadata: { name: 'predictor', namespace: 'shop', labels: { [label]: 'x' } },
    });
    expect(await selects({ matchExpressions: [{ key: label, operator: 'Exists' }] })).to.deep.equal([
      `warning validatingwebhookconfiguration/guard ${none} pods`,
    ]);
    expect(await selects({ matchLabels: { never: 'there' } })).to.deep.equal([]);
    expect(await selects({ matchExpressions: [{ key: label, operator: 'DoesNotExist' }] })).to.deep.equal([blocked]);
    expect(await selects({ matchExpressions: [{ key: label, operator: 'NotIn', values: ['x'] }] })).to.deep.equal([
      blocked,
    ]);
    const platform = pod('router-1', 'openshift-ingress');
    connected.server.put({ ...platform, metadata: { ...platform.metadata, labels: { [label]: 'y' } } });
    expect(await selects({ matchExpressions: [{ key: label, operator: 'Exists' }] })).to.deep.equal([blocked]);
  });

  it('applies the namespace selector to namespaces and their objects, and not to objects without one', async () => {
    const namespaceSelector = { matchLabels: { 'kubernetes.io/metadata.name': 'shop' } };
    put({ namespaceSelector, rules: [{ ...pods, apiGroups: ['*'], resources: ['*'], operations: ['*'] }] });
    expect((await find())[0]).to.match(/^blocker .* refuses to change \*$/);
    const all = { ...pods, apiGroups: ['*'], resources: ['*'], operations: ['*'], scope: 'Namespaced' };
    put({ namespaceSelector, rules: [all] });
    expect(await find()).to.deep.equal([]);
    put({ namespaceSelector, rules: [{ ...pods, resources: ['namespaces'] }] });
    expect(await find()).to.deep.equal([`blocker validatingwebhookconfiguration/guard ${none} namespaces`]);
  });

  it('evaluates match conditions, and only warns if it cannot', async () => {
    const meets = async (...expressions: string[]): Promise<string[]> => {
      const matchConditions = expressions.map((expression, index) => ({ name: `c${index}`, expression }));
      put({ matchConditions });
      return (await find()).map((line) => line.split(' ')[0] ?? '');
    };
    const others = "!request.namespace.startsWith('openshift-')";
    expect(await meets(others)).to.deep.equal([]);
    expect(await meets("request.namespace.startsWith('openshift-')")).to.deep.equal(['blocker']);
    expect(await meets('true', 'false')).to.deep.equal([]);
    expect(
      await meets("request.userInfo.username != 'system:serviceaccount:kube-system:replicaset-controller'"),
    ).to.deep.equal([]);
    expect(await meets("has(object.metadata.labels) && 'x' in object.metadata.labels")).to.deep.equal([]);
    expect(await meets("authorizer.group('').resource('pods').check('get').allowed()")).to.deep.equal(['warning']);
  });

  it('warns if all pods of a webhook for new pods are on one node', async () => {
    put();
    putEndpoints(on('worker-0'), on('worker-0'), on('worker-1', false));
    expect(await find()).to.deep.equal([
      'warning validatingwebhookconfiguration/guard guard.shop (failurePolicy Fail) has all its pods on ' +
        'worker-0 (service guard in shop), and it is for its own pods too',
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

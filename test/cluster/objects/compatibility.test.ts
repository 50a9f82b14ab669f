import { expect } from 'chai';
import { checkKinds, listServed, readMatching } from '../../../lib/cluster/objects/compatibility.ts';
import type { ConfigManifest } from '../../../lib/config/manifest.ts';
import { isPluginError } from '../../../lib/errors.ts';
import { Refusal, statusAnswer } from '../../fakes/kubernetes/apiStatus.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

describe('checkKinds', () => {
  const manifest = (apiVersion: string, kind: string): ConfigManifest => ({
    path: `${kind.toLowerCase()}.yaml`,
    object: { apiVersion, kind, metadata: { name: 'x' } },
  });
  const accepted: [string, string][] = [
    ['v1', 'Namespace'],
    ['v1', 'ConfigMap'],
    ['config.openshift.io/v1', 'ImageDigestMirrorSet'],
    ['config.openshift.io/v1', 'ImageTagMirrorSet'],
    ['operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy'],
    ['updateservice.operator.openshift.io/v1', 'UpdateService'],
    ['upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle'],
  ];
  const refusalOf = (...manifests: ConfigManifest[]): string => {
    try {
      checkKinds(manifests, 'config');
    } catch (error) {
      if (isPluginError(error, 'unsupported')) return error.message;
      throw error;
    }
    return '';
  };

  it('accepts the kinds that releases have', () => {
    expect(refusalOf(...accepted.map(([apiVersion, kind]) => manifest(apiVersion, kind)))).to.equal('');
  });

  it('refuses everything else, and kinds of that name of other groups', () => {
    const others: [string, string][] = [
      ['v1', 'Secret'],
      ['config.openshift.io/v1', 'ClusterVersion'],
      ['rbac.authorization.k8s.io/v1', 'ClusterRoleBinding'],
      ['apiextensions.k8s.io/v1', 'CustomResourceDefinition'],
      ['example.com/v1', 'ConfigMap'],
      ['', 'ConfigMapList'],
      ['constructor/v1', 'ConfigMap'],
    ];
    for (const [apiVersion, kind] of others) {
      expect(refusalOf(manifest('v1', 'ConfigMap'), manifest(apiVersion, kind)), kind).to.contain(
        `${kind.toLowerCase()}/x (${kind.toLowerCase()}.yaml)`,
      );
    }
  });

  it('names the first few of many', () => {
    const secrets = Array.from({ length: 12 }, () => manifest('v1', 'Secret'));
    expect(refusalOf(...secrets)).to.match(/^config has .*: (secret\/x \(secret\.yaml\), ){5}7 more$/);
  });
});

describe('the objects of a kind that a cluster may not serve', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster();
    for (const namespace of ['a', 'b']) {
      connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
      for (const name of ['one', 'two'])
        connected.server.put({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name, namespace },
          data: { namespace },
        });
    }
  });
  afterEach(() => connected.close());
  const readOnes = () => readMatching(connected.cluster, 'v1', 'ConfigMap', ({ metadata }) => metadata.name === 'one');

  it('are none if it does not', async () => {
    expect(await listServed(connected.cluster, 'example.com/v1', 'Widget')).to.deep.equal([]);
    expect(await readMatching(connected.cluster, 'example.com/v1', 'Widget', () => true)).to.deep.equal([]);
    expect(await listServed(connected.cluster, 'v1', 'ConfigMap', { namespace: 'a' })).to.have.length(2);
  });

  it('are read if their metadata match, each in its namespace', async () => {
    const before = connected.server.requests.length;
    expect((await readOnes()).map((object) => object['data'])).to.deep.equal([{ namespace: 'a' }, { namespace: 'b' }]);
    const paths = connected.server.requests.slice(before).map(({ path }) => path);
    expect(paths.filter((path) => path.includes('/configmaps/two'))).to.deep.equal([]);
  });

  it('are left out if they are removed meanwhile', async () => {
    const gone = statusAnswer(new Refusal(404, 'NotFound', 'configmaps "one" not found'));
    connected.server.fault(/namespaces\/a\/configmaps\/one/, { answer: gone });
    expect((await readOnes()).map(({ metadata }) => metadata.namespace)).to.deep.equal(['b']);
  });
});

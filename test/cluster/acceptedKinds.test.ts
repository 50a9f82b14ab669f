import { expect } from 'chai';
import { checkKinds } from '../../lib/cluster/objects/servedObjects.ts';
import type { ConfigManifest } from '../../lib/config/manifest.ts';
import { isPluginError } from '../../lib/errors.ts';

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

  it('takes what configuration of a release consists of', () => {
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

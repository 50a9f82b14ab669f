import { expect } from 'chai';
import { suggestionsFrom } from '../../../../cmd/cli/completion/suggestions.ts';
import { upgradeBundleKind } from '../../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../../../fakes/kubernetes/apiServer.ts';
import { makeAuthority } from '../../../support/certificates.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../../support/kubeconfig.ts';

describe('findClusterNames', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  before(async () => {
    server = await startApiServer({ openshift: '4.19.3', tokens: new Map([['right-token', 'admin']]) });
    server.put(upgradeBundleDefinition());
    for (const name of ['worker-1', 'master-0']) server.put({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
    server.put({ ...upgradeBundleKind, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: {} } });
    kubeconfigs = await makeKubeconfigFolder();
    await kubeconfigs.write({ cluster: { server: server.url } });
  });
  after(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  afterEach(() => {
    server.clearFaults();
  });
  const minute = 60_000;
  const values = { kubeconfig: ['~/config'], token: ['right-token'] };
  const find = (kind: 'nodes' | 'upgrade-bundles', typed: Readonly<Record<string, string[]>>, timeout = minute) =>
    suggestionsFrom({ HOME: kubeconfigs.folder }, timeout)(kind, typed, '');

  it('finds nodes and UpgradeBundles, with the identity of the command line', async () => {
    expect(await find('nodes', values)).to.deep.equal(['master-0', 'worker-1']);
    expect(await find('upgrade-bundles', { ...values, name: ['4'] })).to.deep.equal(['4.19.4-x86-64']);
  });

  it('takes all values of an option that can be repeated, and the last one of others', async () => {
    const typed = { token: ['wrong-token', 'right-token'], as: ['carol'], 'as-group': ['a', 'b'] };
    expect(await find('nodes', { ...values, ...typed })).to.have.length(2);
    const { 'impersonate-group': groups } = server.requests.at(-1)?.headers ?? {};
    expect(groups).to.match(/^a, ?b$/);
  });

  it('verifies the certificate of the cluster, unless the command line says not to', async () => {
    await using authority = await makeAuthority();
    const { key, certificate: cert } = await authority.issue();
    await using secure = await startApiServer({ openshift: '4.19.3', tls: { key, cert } });
    const kubeconfig = [await kubeconfigs.write({ file: 'secure', cluster: { server: secure.url } })];
    const option = 'insecure-skip-tls-verify';
    expect(await find('nodes', { kubeconfig, [option]: ['false', 'true'] })).to.deep.equal([]);
    expect(await find('nodes', { kubeconfig, [option]: ['false'] }).catch(String)).to.match(/is not trusted/);
  });

  it('fails soon if the cluster refuses, does not exist, or does not respond', async () => {
    expect(await find('nodes', { ...values, token: ['wrong-token'] }).catch(String)).to.match(/^PluginError: http/);
    expect(await find('nodes', {}).catch(String)).to.match(/no cluster is configured/);
    server.fault(/nodes/, { noAnswer: 'hold' });
    expect(await find('nodes', values, 1).catch(String)).to.match(/interrupted/);
  });
});

import { expect } from 'chai';
import { suggestionsFrom } from '../../../../cmd/cli/completion/suggestions.ts';
import { upgradeBundleKind } from '../../../../lib/update/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../../lib/update/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../../../fakes/kubernetes/apiServer.ts';
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

  it('fails soon if the cluster refuses, does not exist, or does not respond', async () => {
    expect(await find('nodes', { ...values, token: ['wrong-token'] }).catch(String)).to.match(/^PluginError: http/);
    expect(await find('nodes', {}).catch(String)).to.match(/No cluster is configured/);
    server.fault(/nodes/, { noAnswer: 'hold' });
    expect(await find('nodes', values, 1).catch(String)).to.match(/interrupted/);
  });
});

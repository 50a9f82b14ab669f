import { expect } from 'chai';
import { applyObjects, deleteObjects } from '../../../lib/cluster/apply/serverSideApply.ts';
import type { KubernetesObject } from '../../../lib/config/manifest.ts';
import { Refusal, statusAnswer } from '../../fakes/kubernetes/apiStatus.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const namespace: KubernetesObject = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'new' } };
const configMap = (data: Record<string, string>, place = 'new'): KubernetesObject => {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings', namespace: place }, data };
};

const withFinalizer = ({ metadata, ...content }: KubernetesObject): KubernetesObject => {
  return { ...content, metadata: { ...metadata, finalizers: ['example.com/hold'] } } as KubernetesObject;
};

describe('server-side apply', () => {
  let started: StartedCluster;
  beforeEach(async () => {
    started = await startCluster();
  });
  afterEach(() => started.close());

  const apply = async (objects: KubernetesObject[], overwrite = false): Promise<string[]> => {
    const applied = await applyObjects(started.cluster, objects, { overwrite }, started.context);
    return applied.map(({ outcome }) => outcome);
  };
  const stored = (): unknown => started.server.find('v1', 'ConfigMap', 'settings', 'new')?.['data'];

  it('overwrites fields of another manager only if that is requested', async () => {
    const { cluster } = started;
    expect(await apply([namespace])).to.deep.equal(['created']);
    await cluster.apply(configMap({ a: 'theirs', b: 'theirs' }), { manager: 'another' });
    const error = await failureOf(apply([configMap({ a: 'ours' })]), 'conflict');
    expect(error.message).to.equal('configmap/settings was changed by another manager: .data.a');
    expect(stored()).to.deep.equal({ a: 'theirs', b: 'theirs' });
    expect(await apply([configMap({ a: 'ours' })], true)).to.deep.equal(['configured']);
    expect(stored()).to.deep.equal({ a: 'ours', b: 'theirs' });
  });

  it('does not take an object as created that the server refuses in a new namespace', async () => {
    const refusal = new Refusal(404, 'NotFound', 'namespaces "new" not found');
    started.server.fault(/PATCH .*configmaps/, { answer: statusAnswer(refusal) });
    await failureOf(apply([namespace, configMap({})]), 'not-found');
  });

  it('refuses an object that is being deleted, instead of calling it unchanged', async () => {
    const { cluster, context } = started;
    const held = withFinalizer(configMap({ a: 'b' }, 'default'));
    await cluster.create(held);
    await cluster.delete(held);
    for (const dryRun of ['client', 'server', undefined] as const) {
      const applying = applyObjects(cluster, [configMap({ a: 'b' }, 'default')], { overwrite: true, dryRun }, context);
      const { message, hint } = await failureOf(applying, 'not-ready');
      expect(message).to.equal('configmap/settings: it is being deleted, and would be lost');
      expect(hint).to.contain('oc get configmap/settings -o yaml');
    }
    await cluster.patch(held, { metadata: { finalizers: null } });
    expect(await apply([configMap({}, 'default')])).to.deep.equal(['created']);
  });

  it('deletes nothing in a dry run, and says what it would delete', async () => {
    const { cluster, context } = started;
    await apply([namespace, configMap({})]);
    for (const dryRun of ['client', 'server'] as const) {
      const missing = configMap({}, 'default');
      const deleted = await deleteObjects(cluster, [configMap({}), missing], { dryRun }, context);
      expect(deleted.map(({ metadata }) => metadata.namespace)).to.deep.equal(['new']);
      expect(stored()).to.deep.equal({});
    }
  });
});

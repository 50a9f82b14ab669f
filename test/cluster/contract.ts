import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { ApiError } from '../../lib/cluster/apply/apiErrors.ts';
import { applyManifests } from '../../lib/cluster/apply/apply.ts';
import type { Cluster } from '../../lib/cluster/client.ts';
import type { ConfigManifest, KubernetesObject } from '../../lib/config/manifest.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';

/** Returns the conflict with which an action is refused. */
async function conflictOf(action: Promise<unknown>): Promise<ApiError> {
  const failure = await failureOf(action, 'conflict');
  if (failure instanceof ApiError) return failure;
  throw new Error('expected a conflict that the server explains', { cause: failure });
}

/**
 * Tests of the client with any API server, a real one or the one in this process. Everything happens in a temporary
 * namespace.
 */
export function describeCluster(
  title: string,
  connect: () => Promise<{ cluster: Cluster; close(): Promise<void> }>,
): void {
  describe(title, () => {
    const namespace = `oc-disconnected-test-${randomBytes(4).toString('hex')}`;
    let connected: Awaited<ReturnType<typeof connect>>;
    let cluster: Cluster;

    const configMap = (name: string, data: Record<string, string>, more: object = {}): KubernetesObject => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace, ...more },
      data,
    });
    const manifestOf = (object: KubernetesObject): ConfigManifest => ({
      path: `config/${object.metadata.name}.yaml`,
      object,
    });
    const apply = (objects: KubernetesObject[], options: { overwrite?: boolean; dryRun?: 'client' | 'server' } = {}) =>
      applyManifests(cluster, objects.map(manifestOf), { overwrite: false, ...options }, makeContext());
    const read = (name: string) => cluster.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace } });

    before(async () => {
      connected = await connect();
      ({ cluster } = connected);
      await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    });

    after(async () => {
      await cluster.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
      await connected.close();
    });

    it('tells its version, and which kinds it serves', async () => {
      expect((await cluster.version()).gitVersion).to.match(/^v\d+\.\d+\./);
      const served = await cluster.findKind('v1', 'ConfigMap');
      expect(served).to.deep.equal({ kind: 'ConfigMap', resource: 'configmaps', namespaced: true });
      expect(await cluster.findKind('v1', 'Nothing')).to.equal(undefined);
      expect(await cluster.findKind('nothing.example.com/v1', 'Nothing')).to.equal(undefined);
      const object = { apiVersion: 'nothing.example.com/v1', kind: 'Nothing', metadata: { name: 'x' } };
      expect((await failureOf(cluster.create(object), 'not-served')).message).to.contain('does not serve Nothing');
    });

    it('creates, reads, lists, updates and deletes', async () => {
      expect(await read('first')).to.equal(undefined);
      const created = await cluster.create(configMap('first', { a: '1' }, { labels: { test: namespace } }));
      expect(created.metadata.resourceVersion).to.be.a('string').and.not.empty;
      const stored = await read('first');
      expect(stored).to.deep.include({ data: { a: '1' } });
      const updated = await cluster.update({ ...stored!, data: { a: '2' } });
      expect(updated.metadata.resourceVersion).to.not.equal(created.metadata.resourceVersion);
      const listed = await cluster.list('v1', 'ConfigMap', { namespace, labelSelector: `test=${namespace}` });
      expect(listed).to.have.length(1);
      expect(listed[0]).to.deep.include({ apiVersion: 'v1', kind: 'ConfigMap', data: { a: '2' } });
      expect(await cluster.delete(updated)).to.equal(true);
      expect(await cluster.delete(updated)).to.equal(false);
      expect(await read('first')).to.equal(undefined);
    });

    it('lists page by page', async () => {
      const names = ['p1', 'p2', 'p3', 'p4', 'p5'];
      for (const name of names) await cluster.create(configMap(name, {}, { labels: { paged: 'yes' } }));
      const listed = await cluster.list('v1', 'ConfigMap', { namespace, labelSelector: 'paged', pageSize: 2 });
      expect(listed.map(({ metadata }) => metadata.name)).to.deep.equal(names);
    });

    it('refuses to create twice, and to update or delete a changed object', async () => {
      const created = await cluster.create(configMap('twice', { a: '1' }));
      const again = await conflictOf(cluster.create(configMap('twice', { a: '1' })));
      expect(again.reason).to.equal('AlreadyExists');
      await cluster.update({ ...created, data: { a: '2' } });
      const stale = await conflictOf(cluster.update({ ...created, data: { a: '3' } }));
      expect(stale.reason).to.equal('Conflict');
      await conflictOf(cluster.delete(created));
      expect(await read('twice')).to.deep.include({ data: { a: '2' } });
    });

    it('checks without keeping anything in a dry run', async () => {
      await cluster.create(configMap('dry', { a: '1' }), { dryRun: true });
      expect(await read('dry')).to.equal(undefined);
      const created = await cluster.create(configMap('dry', { a: '1' }));
      await cluster.update({ ...created, data: { a: '2' } }, { dryRun: true });
      await cluster.apply(configMap('dry', { b: '2' }), { dryRun: true });
      await cluster.delete(created, { dryRun: true });
      expect(await read('dry')).to.deep.include({ data: { a: '1' } });
      const invalid = await failureOf(
        cluster.create(configMap('dry-2', { 'no key': '1' }), { dryRun: true }),
        'invalid-object',
      );
      expect(invalid.message).to.contain('no key');
    });

    it('applies on the server’s side, and says whose field it is', async () => {
      const created = await cluster.create(configMap('shared', { theirs: '1', both: '1' }));
      expect(created['data']).to.deep.equal({ theirs: '1', both: '1' });
      const mine = await cluster.apply(configMap('shared', { mine: '1', both: '1' }));
      expect(mine['data']).to.deep.equal({ theirs: '1', both: '1', mine: '1' });
      const conflict = await conflictOf(cluster.apply(configMap('shared', { theirs: '2' })));
      expect(conflict.details['causes']).to.have.nested.property('[0].reason', 'FieldManagerConflict');
      expect(conflict.details['causes']).to.have.nested.property('[0].field', '.data.theirs');
      const forced = await cluster.apply(configMap('shared', { theirs: '2' }), { force: true });
      expect(forced['data']).to.deep.equal({ theirs: '2', both: '1' });
      const fresh = await cluster.apply(configMap('fresh', { a: '1' }));
      expect(fresh['data']).to.deep.equal({ a: '1' });
    });

    it('refuses a ConfigMap that is too large', async () => {
      const failure = await failureOf(
        cluster.create(configMap('large', { a: 'x'.repeat(1_100_000) })),
        'invalid-object',
      );
      expect(failure.message).to.match(/Too long/);
    });

    it('names the namespace that is missing', async () => {
      const object = { ...configMap('x', {}), metadata: { name: 'x', namespace: `${namespace}-absent` } };
      for (const dryRun of [undefined, 'client', 'server'] as const) {
        const [outcome] = await apply([object], dryRun ? { dryRun } : {});
        expect(outcome?.outcome, String(dryRun)).to.equal('failed');
        expect(outcome?.error?.message).to.contain(`the namespace “${namespace}-absent”, which does not exist`);
      }
    });

    it('applies manifests as kubectl does: created, unchanged, conflict, configured', async () => {
      const binaryData = { 'sha256-1': randomBytes(200).toString('base64') };
      const object = { ...configMap('applied', { version: '4.12.3' }), binaryData };
      expect((await apply([object], { dryRun: 'client' }))[0]?.outcome).to.equal('created');
      expect((await apply([object], { dryRun: 'server' }))[0]?.outcome).to.equal('created');
      expect(await read('applied')).to.equal(undefined);
      expect((await apply([object]))[0]?.outcome).to.equal('created');
      expect((await apply([object]))[0]).to.deep.equal({ manifest: manifestOf(object), outcome: 'unchanged' });
      const other = { ...object, data: { version: '4.12.4' } };
      const [conflict] = await apply([other]);
      expect(conflict?.outcome).to.equal('conflict');
      expect(conflict?.differences).to.deep.equal(['data.version: "4.12.3" → "4.12.4"']);
      expect(await read('applied')).to.deep.include({ data: { version: '4.12.3' } });
      for (const dryRun of ['client', 'server'] as const) {
        expect((await apply([other], { overwrite: true, dryRun }))[0]?.outcome).to.equal('configured');
      }
      expect(await read('applied')).to.deep.include({ data: { version: '4.12.3' } });
      expect((await apply([other], { overwrite: true }))[0]?.outcome).to.equal('configured');
      expect(await read('applied')).to.deep.include({ data: { version: '4.12.4' }, binaryData });
      expect((await apply([other], { overwrite: true }))[0]?.outcome).to.equal('unchanged');
    });

    it('replaces the data of a ConfigMap whole, and keeps the labels that others gave it', async () => {
      await cluster.create(configMap('kept', { a: '1', stray: '1' }, { labels: { theirs: 'yes' } }));
      const wanted = configMap('kept', { a: '1' }, { labels: { ours: 'yes' } });
      const [outcome] = await apply([wanted], { overwrite: true });
      expect(outcome?.differences).to.deep.equal([
        'data.stray: "1" → (absent)',
        'metadata.labels.ours: (absent) → "yes"',
      ]);
      const stored = await read('kept');
      expect(stored).to.deep.include({ data: { a: '1' } });
      expect(stored?.metadata.labels).to.deep.equal({ theirs: 'yes', ours: 'yes' });
    });

    it('refuses names that would lead elsewhere, and does not ask for versions that are none', async () => {
      for (const name of ['..', '.', 'a/b', 'a%2fb']) {
        await failureOf(
          cluster.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace } }),
          'invalid-object',
        );
      }
      for (const apiVersion of ['v1#', '../../version?x=']) {
        expect(await cluster.findKind(apiVersion, 'ConfigMap')).to.equal(undefined);
      }
    });

    it('reports failed objects and applies the rest', async () => {
      const outcomes = await apply([
        configMap('good-1', {}),
        configMap('bad', { 'no key': '' }),
        configMap('good-2', {}),
      ]);
      expect(outcomes.map(({ outcome }) => outcome)).to.deep.equal(['created', 'failed', 'created']);
      expect(outcomes[1]?.error?.code).to.equal('invalid-object');
    });
  });
}

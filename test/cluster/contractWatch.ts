import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { isAllowed } from '../../lib/cluster/apply/accessReview.ts';
import type { Cluster, ListOptions } from '../../lib/cluster/client.ts';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import type { KubernetesObject } from '../../lib/config/manifest.ts';
import { fieldsOf } from '../../lib/fields.ts';
import { failureOf } from '../support/program/failure.ts';

const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' } as const;

/** Tests of watches, Leases, events, rights and deletion with any API server. */
export function describeWatches(
  title: string,
  connect: () => Promise<{ cluster: Cluster; close(): Promise<void> }>,
): void {
  describe(title, function () {
    const namespace = `oc-disconnected-test-${randomBytes(4).toString('hex')}`;
    let connected: Awaited<ReturnType<typeof connect>>;
    let cluster: Cluster;
    let stop: AbortController;

    const configMap = (name: string, value: string, labels: Record<string, string> = {}): KubernetesObject => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace, labels },
      data: { value },
    });
    const brief = (objects: readonly StoredObject[]): string =>
      objects
        .map(({ metadata, data }) => `${metadata.name}=${String(fieldsOf(data)['value'])}`)
        .toSorted()
        .join(' ');
    const watch = (options: ListOptions) => {
      const changes = cluster.within(stop.signal).watch('v1', 'ConfigMap', { namespace, ...options });
      /** Reads until the objects are the wanted ones. */
      return async (wanted: string): Promise<void> => {
        for (let seen = 'none'; seen !== wanted;) {
          const next = await changes.next();
          if (next.done === true) throw new Error('the watch has ended');
          seen = brief(next.value);
        }
      };
    };

    before(async () => {
      connected = await connect();
      ({ cluster } = connected);
      await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    });
    beforeEach(() => {
      stop = new AbortController();
    });
    afterEach(() => {
      stop.abort();
    });
    after(async () => {
      await cluster.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
      await connected.close();
    });

    it('watches creation, change and deletion', async () => {
      const until = watch({ labelSelector: 'test=changes' });
      await until('');
      await cluster.create(configMap('a', '1', { test: 'changes' }));
      await until('a=1');
      await cluster.create(configMap('other', '1'));
      await cluster.patch(configMap('a', ''), { data: { value: '2' } });
      await until('a=2');
      await cluster.delete(configMap('a', ''));
      await until('');
    });

    it('tells a watch with a selector of objects that begin or cease to match', async () => {
      await cluster.create(configMap('moving', '1'));
      const until = watch({ labelSelector: 'test=moving' });
      await until('');
      await cluster.patch(configMap('moving', ''), { metadata: { labels: { test: 'moving' } } });
      await until('moving=1');
      await cluster.patch(configMap('moving', ''), { metadata: { labels: { test: null } } });
      await until('');
      const named = watch({ fieldSelector: 'metadata.name=moving' });
      await named('moving=1');
    });

    it('counts no write that changes nothing', async () => {
      const created = await cluster.create(configMap('same', '1'));
      const patched = await cluster.patch(created, { data: { value: '1' } });
      expect(patched.metadata.resourceVersion).to.equal(created.metadata.resourceVersion);
      const updated = await cluster.update(created);
      expect(updated.metadata.resourceVersion).to.equal(created.metadata.resourceVersion);
    });

    it('deletes by uid, and refuses another one', async () => {
      const created = await cluster.create(configMap('identified', '1'));
      const uid = '00000000-0000-4000-8000-000000000000';
      await failureOf(cluster.delete({ ...created, metadata: { name: 'identified', namespace, uid } }), 'conflict');
      const { resourceVersion: _, ...metadata } = created.metadata;
      expect(await cluster.delete({ ...created, metadata })).to.equal(true);
    });

    it('checks the fields of a Lease', async () => {
      const make = (name: string, spec: object) => cluster.create({ ...lease, metadata: { name, namespace }, spec });
      const time = '2026-01-02T03:04:05.678901Z';
      const sound = { holderIdentity: 'me', leaseDurationSeconds: 15, acquireTime: time, renewTime: time };
      const created = await make('sound', { ...sound, leaseTransitions: 0 });
      expect(created['spec']).to.deep.equal({ ...sound, leaseTransitions: 0 });
      await failureOf(make('no-duration', { holderIdentity: 'me', leaseDurationSeconds: 0 }), 'invalid-object');
      await failureOf(make('negative', { leaseTransitions: -1 }), 'invalid-object');
      await failureOf(make('untimely', { ...sound, renewTime: 'yesterday' }), 'invalid-object');
      await failureOf(make('typed', { ...sound, leaseDurationSeconds: '15' }), 'invalid-object');
      // Times need six digits of a second.
      await failureOf(make('short', { ...sound, renewTime: '2026-01-02T03:04:05.678Z' }), 'invalid-object');
      // A holder that gives a Lease up removes its name.
      const left = await cluster.patch(created, { spec: { holderIdentity: null, leaseDurationSeconds: 1 } });
      expect(left['spec']).to.not.have.property('holderIdentity');
    });

    it('keeps events with the namespace of their object', async () => {
      const event = (name: string, place: string, involvedObject: object): KubernetesObject => ({
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name, namespace: place },
        involvedObject,
        reason: 'Tested',
        message: 'a test',
        type: 'Normal',
      });
      const about = { apiVersion: 'v1', kind: 'ConfigMap', name: 'x', uid: `uid-${namespace}` };
      await cluster.create(event('inside', namespace, { ...about, namespace }));
      await failureOf(cluster.create(event('outside', namespace, about)), 'invalid-object');
      const found = await cluster.list('v1', 'Event', {
        namespace,
        fieldSelector: `involvedObject.uid=uid-${namespace},type=Normal`,
      });
      expect(found.map(({ metadata }) => metadata.name)).to.deep.equal(['inside']);
    });

    it('answers which rights this user has', async () => {
      const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace } };
      expect(await isAllowed(cluster, 'get', object)).to.equal(true);
      expect(await isAllowed(cluster, 'create', { ...object, kind: 'Pod' }, 'exec')).to.equal(true);
      const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', metadata: { name: '' } };
      // A question about nothing is refused.
      await failureOf(cluster.create({ ...review, spec: {} }), 'invalid-object');
    });

    it('gives names to objects that ask for one', async () => {
      const made = await cluster.create({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: '', generateName: 'made-', namespace },
      } as KubernetesObject);
      expect(made.metadata.name).to.match(/^made-[a-z0-9]+$/);
      await failureOf(cluster.create(configMap('Upper', '1')), 'invalid-object');
    });

    it('drops unknown fields of its own kinds, and refuses fields of another type', async () => {
      const made = await cluster.create({ ...configMap('dropped', '1'), stray: true });
      expect(made).to.not.have.property('stray');
      await failureOf(cluster.create({ ...configMap('typed', '1'), data: ['a'] }), 'invalid-object');
      await failureOf(
        cluster.create({
          ...configMap('labeled', '1'),
          metadata: { name: 'labeled', namespace, labels: { a: 'not a value' } },
        }),
        'invalid-object',
      );
    });
  });
}

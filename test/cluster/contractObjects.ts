import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { ApiError } from '../../lib/cluster/apply/apiErrors.ts';
import type { Cluster } from '../../lib/cluster/client.ts';
import type { KubernetesObject } from '../../lib/config/manifest.ts';
import { awaitDone } from '../../lib/context.ts';
import { isPluginError, messageOf, PluginError, type ErrorCode } from '../../lib/errors.ts';
import { fieldsOf, listOf } from '../../lib/fields.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';

/** The schema of the kind of these tests: one field for each keyword that the definitions of this project use. */
const schema = {
  type: 'object',
  required: ['spec'],
  properties: {
    spec: {
      type: 'object',
      required: ['size'],
      properties: {
        size: { type: 'integer', minimum: 1, maximum: 9 },
        color: { type: 'string', default: 'red', enum: ['red', 'blue'] },
        code: { type: 'string', pattern: '^[a-z]+$', maxLength: 5 },
        nested: { type: 'object', default: {}, properties: { on: { type: 'boolean', default: true } } },
        tags: { type: 'array', items: { type: 'string' }, maxItems: 3, 'x-kubernetes-list-type': 'set' },
        free: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
        serial: {
          type: 'string',
          'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: 'serial cannot be changed' }],
        },
      },
      'x-kubernetes-validations': [
        { rule: "self.color != 'blue' || self.size > 1", message: 'a blue one is larger than 1' },
      ],
    },
    status: {
      type: 'object',
      properties: {
        phase: { type: 'string', enum: ['On', 'Off'] },
        parts: {
          type: 'array',
          items: {
            type: 'object',
            required: ['name'],
            properties: { name: { type: 'string' }, count: { type: 'integer' } },
          },
          'x-kubernetes-list-type': 'map',
          'x-kubernetes-list-map-keys': ['name'],
        },
      },
    },
  },
};

/** Tests of custom objects with any API server: definitions, schemas, the status, patches and server-side apply. */
export function describeCustomObjects(
  title: string,
  connect: () => Promise<{ cluster: Cluster; close(): Promise<void> }>,
): void {
  describe(title, () => {
    const group = `test-${randomBytes(4).toString('hex')}.example.com`;
    const kind = { apiVersion: `${group}/v1`, kind: 'Widget' } as const;
    const definition: KubernetesObject = {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `widgets.${group}` },
      spec: {
        group,
        scope: 'Cluster',
        names: { kind: 'Widget', listKind: 'WidgetList', plural: 'widgets', singular: 'widget' },
        versions: [
          {
            name: 'v1',
            served: true,
            storage: true,
            subresources: { status: {} },
            additionalPrinterColumns: [
              { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
              { name: 'Size', type: 'integer', jsonPath: '.spec.size', priority: 1 },
            ],
            schema: { openAPIV3Schema: schema },
          },
        ],
      },
    };
    const status = { subresource: 'status' } as const;
    let connected: Awaited<ReturnType<typeof connect>>;
    let cluster: Cluster;

    const widget = (name: string, spec: object = { size: 1 }, more: object = {}): KubernetesObject => ({
      ...kind,
      metadata: { name },
      spec,
      ...more,
    });
    const reference = (name: string) => ({ ...kind, metadata: { name } });
    const read = async (name: string) => fieldsOf(await cluster.read(reference(name)));
    const generationOf = (object: Readonly<Record<string, unknown>>) => fieldsOf(object['metadata'])['generation'];
    /** Returns the fields that a refusal names. */
    const refusedFields = async (action: Promise<unknown>): Promise<string[]> => {
      const failure = await failureOf(action, 'invalid-object');
      if (!(failure instanceof ApiError)) throw failure;
      expect(failure.status).to.equal(422);
      // Some causes are listed twice.
      return [...new Set(listOf(failure.details['causes']).map(({ field }) => String(field)))];
    };

    before(async () => {
      connected = await connect();
      ({ cluster } = connected);
      await cluster.create(definition);
      const look = () =>
        cluster.list(kind.apiVersion, kind.kind).then(
          () => undefined,
          (error: unknown) => {
            if (isPluginError(error, 'not-served') || isPluginError(error, 'not-found'))
              return new PluginError('not-ready', 'the kind is not served');
            throw error;
          },
        );
      await awaitDone(look, { timeout: 30_000, interval: 50 }, makeContext());
    });
    after(async () => {
      await cluster.delete(definition);
      await connected.close();
    });

    it('says that the definition is accepted and served', async () => {
      const conditions = listOf(fieldsOf((await cluster.read(definition))?.['status'])['conditions']);
      const states = Object.fromEntries(conditions.map(({ type, status: state }) => [String(type), state]));
      expect(states).to.include({ NamesAccepted: 'True', Established: 'True' });
    });

    it('removes unknown fields, sets defaults, and ignores the status of an ordinary write', async () => {
      const stray = { size: 2, stray: 1, free: { any: { thing: [1] } }, nested: {} };
      const created = await cluster.create(widget('shaped', stray, { status: { phase: 'On' }, extra: true }));
      const wanted = { size: 2, color: 'red', free: { any: { thing: [1] } }, nested: { on: true } };
      expect(created['spec']).to.deep.equal(wanted);
      expect(created).to.not.have.any.keys('status', 'extra');
      const updated = await cluster.update({ ...created, status: { phase: 'Off' }, spec: { size: 3, other: 1 } });
      expect(updated['spec']).to.deep.equal({ size: 3, color: 'red', nested: { on: true } });
      expect(await read('shaped')).to.not.have.property('status');
    });

    it('counts generations of the content, and not of the status or the metadata', async () => {
      const created = await cluster.create(widget('counted'));
      expect(generationOf(created)).to.equal(1);
      const set = await cluster.patch(created, { status: { phase: 'On' } }, status);
      expect(generationOf(set)).to.equal(1);
      const labeled = await cluster.patch(reference('counted'), { metadata: { labels: { a: 'b' } } });
      expect(generationOf(labeled)).to.equal(1);
      const changed = await cluster.patch(reference('counted'), { spec: { size: 4 } });
      expect(generationOf(changed)).to.equal(2);
      const same = await cluster.patch(reference('counted'), { spec: { size: 4 } });
      expect(same.metadata).to.deep.equal(changed.metadata);
    });

    it('names the fields that violate the schema, and says if it evaluated no rules', async () => {
      expect(await refusedFields(cluster.create(widget('bad', {})))).to.deep.equal(['spec.size', '<nil>']);
      const several = { size: 10, color: 'green', code: 'A', tags: ['a', 'b', 'c', 'd'] };
      expect(await refusedFields(cluster.create(widget('bad', several)))).to.include.members([
        'spec.size',
        'spec.color',
        'spec.code',
        'spec.tags',
        '<nil>',
      ]);
      expect(await refusedFields(cluster.create(widget('bad', { size: 'x' })))).to.deep.equal(['spec.size', '<nil>']);
      expect(await refusedFields(cluster.create(widget('bad', { size: 1, color: 'blue' })))).to.deep.equal(['spec']);
      expect(await refusedFields(cluster.create(widget('bad', { size: 1, tags: ['a', 'a'] })))).to.deep.equal([
        'spec.tags[1]',
      ]);
      await cluster.create(widget('good'));
      const patched = cluster.patch(reference('good'), { spec: { size: 0 } });
      expect(await refusedFields(patched)).to.deep.equal(['spec.size']);
    });

    it('evaluates rules about the former value on changes only', async () => {
      const created = await cluster.create(widget('serial', { size: 1, serial: 'a' }));
      expect(await refusedFields(cluster.patch(created, { spec: { serial: 'b' } }))).to.deep.equal(['spec.serial']);
      await cluster.patch(reference('serial'), { spec: { serial: null } });
      const set = await cluster.patch(reference('serial'), { spec: { serial: 'b' } });
      expect(set['spec']).to.have.property('serial', 'b');
    });

    it('replaces a custom object only with its resourceVersion', async () => {
      const { metadata, ...content } = await cluster.create(widget('versioned'));
      const { resourceVersion: _, ...rest } = metadata;
      expect(await refusedFields(cluster.update({ ...content, metadata: rest }))).to.deep.equal([
        'metadata.resourceVersion',
      ]);
    });

    it('merges patches: null removes, lists are replaced, and an outdated version is refused', async () => {
      const created = await cluster.create(widget('patched', { size: 1, tags: ['a', 'b'], free: { x: 1, y: 2 } }));
      const patched = await cluster.patch(created, { spec: { tags: ['c'], free: { x: null } } });
      expect(patched['spec']).to.deep.include({ tags: ['c'], free: { y: 2 }, size: 1 });
      const { resourceVersion } = created.metadata;
      await failureOf(
        cluster.patch(reference('patched'), { metadata: { resourceVersion }, spec: { size: 2 } }),
        'conflict',
      );
      await failureOf(cluster.patch(reference('absent'), { spec: { size: 2 } }), 'not-found');
      // The default comes back, because the server sets it in each write.
      const without = await cluster.patch(reference('patched'), { spec: { color: null } });
      expect(without['spec']).to.have.property('color', 'red');
    });

    it('writes only the status through its subresource', async () => {
      const created = await cluster.create(widget('stored'));
      const body = { ...created, spec: { size: 9 }, status: { phase: 'On', stray: 1 } };
      const updated = await cluster.update(
        { ...body, metadata: { ...created.metadata, labels: { stray: 'yes' } } },
        status,
      );
      expect(updated['spec']).to.deep.equal(created['spec']);
      expect(updated['status']).to.deep.equal({ phase: 'On' });
      expect(updated.metadata.labels).to.equal(undefined);
      expect(await refusedFields(cluster.patch(updated, { status: { phase: 'Maybe' } }, status))).to.deep.equal([
        'status.phase',
        '<nil>',
      ]);
      await failureOf(cluster.apply({ ...reference('absent'), status: {} }, status), 'not-found');
    });

    it('applies to one list from several managers, by the keys of the items', async () => {
      await cluster.create(widget('shared'));
      const say = (manager: string, parts: object[], force = false) =>
        cluster.apply({ ...reference('shared'), status: { parts } }, { ...status, manager, force });
      await say('one', [{ name: 'a', count: 1 }]);
      await say('two', [{ name: 'b', count: 1 }]);
      const both = await say('one', [{ name: 'a', count: 2 }, { name: 'c' }]);
      expect(fieldsOf(both['status'])['parts']).to.have.deep.members([
        { name: 'a', count: 2 },
        { name: 'b', count: 1 },
        { name: 'c' },
      ]);
      await failureOf(say('one', [{ name: 'b', count: 2 }]), 'conflict');
      const taken = await say('one', [{ name: 'b', count: 2 }], true);
      expect(fieldsOf(taken['status'])['parts']).to.deep.equal([{ name: 'b', count: 2 }]);
      const twice = say('one', [{ name: 'd' }, { name: 'd' }]);
      expect((await failureOf(twice, 'server-error')).message).to.contain('duplicate');
    });

    it('refuses unknown fields in server-side apply, which other writes remove', async () => {
      const stray = await failureOf(cluster.apply(widget('applied', { size: 1, stray: 1 })), 'server-error');
      expect(stray.message).to.contain('.spec.stray: field not declared in schema');
      const applied = await cluster.apply(widget('applied', { size: 1, free: { any: 1 } }));
      expect(applied['spec']).to.deep.equal({ size: 1, color: 'red', nested: { on: true }, free: { any: 1 } });
      const managers = JSON.stringify(applied.metadata['managedFields']);
      expect(managers).to.contain('f:size').and.not.contain('f:color');
      const again = await cluster.apply(widget('applied', { size: 1, free: { any: 1 } }));
      expect(again.metadata.resourceVersion).to.equal(applied.metadata.resourceVersion);
    });

    it('answers with the columns of the definition', async () => {
      await cluster.create(widget('listed', { size: 5 }));
      await cluster.create(widget('silent', { size: 3 }));
      await cluster.patch(reference('listed'), { status: { phase: 'Off' } }, status);
      const columns = (await cluster.listColumns(kind.apiVersion, kind.kind))?.rows;
      expect(columns?.find(({ Name }) => Name === 'listed')).to.deep.equal({ Name: 'listed', Phase: 'Off', Size: 5 });
      expect(columns?.find(({ Name }) => Name === 'silent')).to.deep.equal({ Name: 'silent', Phase: null, Size: 3 });
    });

    it('reports changes of columns since a list, and not the listed objects', async () => {
      await cluster.create(widget('watched', { size: 5 }));
      const { resourceVersion = '' } = (await cluster.listColumns(kind.apiVersion, kind.kind)) ?? {};
      let isChanged = false;
      const change = cluster.awaitChange(kind.apiVersion, kind.kind, resourceVersion).then(() => (isChanged = true));
      await cluster.list(kind.apiVersion, kind.kind);
      expect(isChanged).to.equal(false);
      await cluster.patch(reference('watched'), { status: { phase: 'On' } }, status);
      await change;
    });

    it('keeps a deleted definition until its objects are gone, and takes no new ones meanwhile', async () => {
      const names = { kind: 'Gadget', listKind: 'GadgetList', plural: 'gadgets', singular: 'gadget' };
      const other = {
        ...definition,
        metadata: { name: `gadgets.${group}` },
        spec: { ...fieldsOf(definition['spec']), names },
      };
      const gadget = (name: string, more: object = {}): KubernetesObject => ({
        apiVersion: kind.apiVersion,
        kind: 'Gadget',
        metadata: { name, ...more },
        spec: { size: 1 },
      });
      const until = (attempt: () => Promise<unknown>, code?: ErrorCode): Promise<void> => {
        const look = () =>
          attempt().then(
            () => (code === undefined ? undefined : new PluginError('not-ready', 'it still succeeds')),
            (error: unknown) => {
              if (code !== undefined && isPluginError(error, code)) return undefined;
              return new PluginError('not-ready', messageOf(error));
            },
          );
        return awaitDone(look, { timeout: 30_000, interval: 50 }, makeContext());
      };
      await cluster.create(other);
      await until(() => cluster.list(kind.apiVersion, 'Gadget'));
      const held = await cluster.create(gadget('held', { finalizers: ['example.com/wait'] }));
      await cluster.create(gadget('plain'));
      await cluster.delete(other);
      await until(() => cluster.create(gadget('late'), { dryRun: true }), 'denied');
      expect((await cluster.read(other))?.metadata['deletionTimestamp']).to.be.a('string');
      await until(async () => expect((await cluster.read(held))?.metadata['deletionTimestamp']).to.be.a('string'));
      await cluster.patch(held, { metadata: { finalizers: [] } });
      await until(async () => expect(await cluster.read(other)).to.equal(undefined));
    });

    it('keeps a deleted object until its finalizers are gone', async () => {
      const metadata = { name: 'held', finalizers: ['example.com/wait'] };
      const held = await cluster.create({ ...widget('held'), metadata });
      expect(await cluster.delete(held)).to.equal(true);
      const waiting = await cluster.read(held);
      expect(waiting?.metadata['deletionTimestamp']).to.be.a('string');
      const added = cluster.patch(reference('held'), {
        metadata: { finalizers: ['example.com/wait', 'example.com/b'] },
      });
      expect(await refusedFields(added)).to.deep.equal(['metadata.finalizers']);
      await cluster.patch(reference('held'), { metadata: { finalizers: [] } });
      expect(await cluster.read(held)).to.equal(undefined);
    });
  });
}

import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';
import type { Attempt } from './apiAccess.ts';
import { startApiServer, type TestApiServer } from './apiServer.ts';

const configMap = (name: string, fields: object = {}, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'default', ...metadata },
  ...fields,
});
const base = '/api/v1/namespaces/default/configmaps';

describe('TestApiServer', () => {
  let server: TestApiServer;
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.14.3' });
  });
  afterEach(() => server.stop());

  interface Answered {
    status: number;
    body: {
      [field: string]: unknown;
      metadata: { resourceVersion?: string; generation: number };
      spec: { channel: string };
      status: { desired: { version: string } };
      details: { causes: object[] };
    };
  }
  const send = async (method: string, path: string, body?: unknown, type = 'application/json'): Promise<Answered> => {
    const headers = { 'content-type': type };
    const answer = await fetch(`${server.url}${path}`, {
      method,
      ...(body !== undefined && { headers, body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Answered['body'] };
  };
  const apply = (manager: string, object: object, query = '') =>
    send('PATCH', `${base}/shared?fieldManager=${manager}${query}`, object, 'application/apply-patch+yaml');

  it('requires the rights to write a status, and to create applied objects', async () => {
    const rights = new Set(['patch clusterversions/status', 'patch configmaps']);
    const allow = ({ verb, resource }: Attempt): boolean => rights.has(`${verb} ${resource}`);
    await server.stop();
    server = await startApiServer({ openshift: '4.14.3', allow });
    const version = '/apis/config.openshift.io/v1/clusterversions/version';
    const change = async (path: string): Promise<number> =>
      (await send('PATCH', path, { status: {} }, 'application/merge-patch+json')).status;
    expect([await change(`${version}/status`), await change(version)]).to.deep.equal([200, 403]);
    expect((await apply('me', configMap('shared'))).status).to.equal(403);
    rights.add('create configmaps');
    expect((await apply('me', configMap('shared'))).status).to.equal(201);
  });

  it('refuses a user who gives rights that the user lacks', async () => {
    const rights = new Set(['create roles', 'create rolebindings', 'get pods']);
    await server.stop();
    server = await startApiServer({ allow: ({ verb, resource }) => rights.has(`${verb} ${resource}`) });
    const path = '/apis/rbac.authorization.k8s.io/v1/namespaces/default';
    const giving = async (verb: string): Promise<number[]> => {
      const [apiVersion, metadata] = ['rbac.authorization.k8s.io/v1', { name: verb }];
      const rules = [{ apiGroups: [''], resources: ['pods'], verbs: [verb] }];
      const role = await send('POST', `${path}/roles`, { apiVersion, kind: 'Role', metadata, rules });
      server.put({ apiVersion, kind: 'Role', metadata, rules });
      const roleRef = { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: verb };
      const body = { apiVersion, kind: 'RoleBinding', metadata, roleRef, subjects: [] };
      return [role.status, (await send('POST', `${path}/rolebindings`, body)).status];
    };
    expect(await giving('get')).to.deep.equal([201, 201]);
    expect(await giving('list')).to.deep.equal([403, 403]);
    rights.add('escalate roles').add('bind roles');
    expect(await giving('watch')).to.deep.equal([201, 201]);
  });

  it('enforces a policy by a binding that denies only', async () => {
    await server.stop();
    server = await startApiServer({ openshift: '4.19.3', policies: true });
    const apiVersion = 'admissionregistration.k8s.io/v1';
    const resourceRules = [{ apiGroups: [''], resources: ['configmaps'], operations: ['CREATE'] }];
    const define = (reason?: string): void => {
      server.put({
        apiVersion,
        kind: 'ValidatingAdmissionPolicy',
        metadata: { name: 'none' },
        spec: {
          matchConstraints: { resourceRules },
          matchConditions: [],
          validations: [{ expression: 'false', message: 'not allowed', ...(reason !== undefined && { reason }) }],
        },
      });
    };
    define();
    const bind = (...validationActions: string[]): void => {
      const spec = { policyName: 'none', validationActions };
      server.put({ apiVersion, kind: 'ValidatingAdmissionPolicyBinding', metadata: { name: 'none' }, spec });
    };
    const create = async (name: string): Promise<number> => (await send('POST', base, configMap(name))).status;
    expect(await create('a')).to.equal(201);
    bind('Warn', 'Audit');
    expect(await create('b')).to.equal(201);
    bind('Deny');
    expect(await create('c')).to.equal(422);
    define('Forbidden');
    expect(await create('c')).to.equal(403);
  });

  it('merges patches of each type, and refuses others', async () => {
    server.put(configMap('x', { data: { a: '1', b: '1' } }));
    const merge = await send('PATCH', `${base}/x`, { data: { a: null, c: '1' } }, 'application/merge-patch+json');
    expect(merge.body['data']).to.deep.equal({ b: '1', c: '1' });
    const operations = [
      { op: 'test', path: '/data/b', value: '1' },
      { op: 'replace', path: '/data/b', value: '2' },
      { op: 'remove', path: '/data/c' },
      { op: 'add', path: '/data/d~1e', value: '3' },
    ];
    const patched = await send('PATCH', `${base}/x`, operations.slice(0, 3), 'application/json-patch+json');
    expect(patched.body['data']).to.deep.equal({ b: '2' });
    expect((await send('PATCH', `${base}/x`, operations.slice(3), 'application/json-patch+json')).status).to.equal(422);
    expect((await send('PATCH', `${base}/x`, operations.slice(0, 1), 'application/json-patch+json')).status).to.equal(
      422,
    );
    expect((await send('PATCH', `${base}/x`, {}, 'text/plain')).status).to.equal(415);
  });

  it('keeps the revision of an object that a write does not change', async () => {
    const before = server.put(configMap('x', { data: { a: '1' } })).metadata.resourceVersion;
    const { body } = await send('PUT', `${base}/x`, configMap('x', { data: { a: '1' } }));
    expect(body.metadata.resourceVersion).to.equal(before);
  });

  it('tracks the owner of each field, and removes fields that a manager no longer applies', async () => {
    const metadata = { name: 'shared', namespace: 'default' };
    await apply('one', { ...configMap('shared'), metadata, data: { a: '1', b: '1' } });
    const two = await apply('two', { ...configMap('shared'), metadata, data: { b: '1', c: '1' } });
    expect(two.body['data']).to.deep.equal({ a: '1', b: '1', c: '1' });
    const fewer = await apply('one', { ...configMap('shared'), metadata, data: { a: '1' } });
    expect(fewer.body['data']).to.deep.equal({ a: '1', b: '1', c: '1' });
    const none = await apply('two', { ...configMap('shared'), metadata, data: { c: '1' } });
    expect(none.body['data']).to.deep.equal({ a: '1', c: '1' });
    const conflict = await apply('two', { ...configMap('shared'), metadata, data: { a: '2' } }, '&dryRun=All');
    expect(conflict.status).to.equal(409);
    expect(conflict.body.details.causes).to.deep.equal([
      { reason: 'FieldManagerConflict', message: 'conflict with "one" using v1', field: '.data.a' },
    ]);
    await apply('two', { ...configMap('shared'), metadata, data: { a: '2' } }, '&force=true');
    const taken = await apply('one', { ...configMap('shared'), metadata, data: { a: '1' } });
    expect(taken.body['message']).to.equal('Apply failed with 1 conflict: conflict with "two" using v1: .data.a');
  });

  it('writes status through its subresource only', async () => {
    const path = '/apis/config.openshift.io/v1/clusterversions/version';
    const { body } = await send('GET', path);
    const changed = { ...body, status: {}, spec: { channel: 'fast-4.14' } };
    const spec = await send('PUT', path, changed);
    expect(spec.body.status.desired.version).to.equal('4.14.3');
    expect(spec.body.metadata.generation).to.equal(body.metadata.generation + 1);
    const patch = { status: { desired: { version: '4.14.4' } }, spec: { channel: 'no' } };
    const status = await send('PATCH', `${path}/status`, patch, 'application/merge-patch+json');
    expect(status.body.status.desired.version).to.equal('4.14.4');
    expect(status.body.spec.channel).to.equal('fast-4.14');
    delete spec.body.metadata.resourceVersion;
    expect((await send('PUT', path, spec.body)).status).to.equal(422);
  });

  it('keeps objects with finalizers until these are gone, and empties namespaces', async () => {
    server.put(configMap('x', {}, { finalizers: ['test/hold'] }));
    await send('DELETE', `${base}/x`);
    expect(server.find('v1', 'ConfigMap', 'x')?.metadata['deletionTimestamp']).to.be.a('string');
    await send('PATCH', `${base}/x`, { metadata: { finalizers: null } }, 'application/merge-patch+json');
    expect(server.find('v1', 'ConfigMap', 'x')).to.equal(undefined);
    server.put(configMap('y'));
    await send('DELETE', '/api/v1/namespaces/default');
    expect(server.find('v1', 'ConfigMap', 'y')).to.equal(undefined);
  });

  it('ends a namespace after its objects, and takes no new ones meanwhile', async () => {
    server.put(configMap('held', {}, { finalizers: ['test/hold'] }));
    await send('DELETE', '/api/v1/namespaces/default');
    await setImmediate();
    expect(server.find('v1', 'Namespace', 'default')?.['status']).to.deep.equal({ phase: 'Terminating' });
    const refused = await send('POST', base, configMap('late'));
    expect([refused.status, refused.body['message']]).to.deep.equal([
      403,
      'configmaps "late" is forbidden: unable to create new content in namespace default because it is being ' +
        'terminated',
    ]);
    await send('PATCH', `${base}/held`, { metadata: { finalizers: null } }, 'application/merge-patch+json');
    expect(server.find('v1', 'Namespace', 'default')).to.equal(undefined);
  });

  it('lets the kubelet end a pod that is on a node', async () => {
    const pods = '/api/v1/namespaces/default/pods';
    const changes: string[] = [];
    server.objects.on('change', ({ type, object }) => changes.push(`${type} ${object.metadata.name}`));
    for (const [name, spec] of Object.entries({ waiting: {}, running: { nodeName: 'one' } })) {
      server.put({ apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec });
      changes.splice(0);
      await send('DELETE', `${pods}/${name}`);
      await setImmediate();
      const marked = name === 'running' ? ['MODIFIED running'] : [];
      expect(changes).to.deep.equal([...marked, `DELETED ${name}`]);
    }
  });

  it('lists all pages as of the first one', async () => {
    for (const name of ['a', 'b', 'd']) server.put(configMap(name));
    const first = await send('GET', `${base}?limit=2`);
    server.put(configMap('c'));
    await send('DELETE', `${base}/a`);
    const { continue: token = '' } = first.body.metadata as { continue?: string };
    const rest = await send('GET', `${base}?limit=2&continue=${token}`);
    const items = rest.body['items'] as { metadata: { name: string } }[];
    expect(items.map(({ metadata }) => metadata.name)).to.deep.equal(['d']);
  });

  it('has the size limits of a server and of etcd', async () => {
    const answers = [3_200_000, 1_600_000, 1_100_000].map(async (size, index) => {
      const { status } = await send('POST', base, configMap(`large-${index}`, { data: { a: 'x'.repeat(size) } }));
      return status;
    });
    expect(await Promise.all(answers)).to.deep.equal([413, 500, 422]);
    const annotations = { a: 'x'.repeat(300_000) };
    expect((await send('POST', base, configMap('annotated', {}, { annotations }))).status).to.equal(422);
  });

  it('selects by labels and fields', async () => {
    for (const [name, labels] of Object.entries({ a: { x: '1' }, b: { x: '2' }, c: {} }))
      server.put(configMap(name, {}, { labels }));
    const names = async (query: Record<string, string>) => {
      const { body } = await send('GET', `${base}?${new URLSearchParams(query).toString()}`);
      return (body['items'] as { metadata: { name: string } }[]).map(({ metadata }) => metadata.name).join('');
    };
    for (const [selector, expected] of [
      ['x', 'ab'],
      ['!x', 'c'],
      ['x=1', 'a'],
      ['x!=1', 'bc'],
      ['x in (1, 2)', 'ab'],
      ['x notin (1)', 'bc'],
      ['x in (1,2),x!=2', 'a'],
    ] as const) {
      expect(await names({ labelSelector: selector }), selector).to.equal(expected);
    }
    expect(await names({ fieldSelector: 'metadata.name=b' })).to.equal('b');
  });

  it('watches from a revision, with bookmarks, until that revision is forgotten', async () => {
    const first = server.put(configMap('x', { data: { a: '1' } }));
    server.put(configMap('y'));
    const watch = async (query: string, count = Infinity) => {
      const { body } = await fetch(`${server.url}${base}?watch=true&${query}`);
      const events: { type: string; object: { kind: string; metadata?: { name: string }; code?: number } }[] = [];
      const reading = (async () => {
        const input = Readable.fromWeb(body as never);
        for await (const line of createInterface({ input }))
          if (events.push(JSON.parse(line) as never) === count) break;
        input.destroy();
      })();
      return { events, reading };
    };
    const { events, reading } = await watch(
      `resourceVersion=${first.metadata.resourceVersion}&allowWatchBookmarks=true`,
      5,
    );
    await send('PUT', `${base}/x`, configMap('x', { data: { a: '2' } }));
    await send('DELETE', `${base}/x`);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'elsewhere' } });
    await reading;
    expect(events.map(({ type, object }) => `${type} ${object.metadata?.name ?? ''}`)).to.deep.equal([
      'ADDED y',
      'BOOKMARK ',
      'MODIFIED x',
      'DELETED x',
      'BOOKMARK ',
    ]);
    await (
      await watch('timeoutSeconds=0.1')
    ).reading;
    server.objects.compact();
    const late = await watch(`resourceVersion=${first.metadata.resourceVersion}`);
    await late.reading;
    expect(late.events).to.have.length(1);
    expect(late.events[0]).to.deep.include({ type: 'ERROR' });
    expect(late.events[0]?.object.code).to.equal(410);
  });

  it('closes watches on request', async () => {
    server.put(configMap('x'));
    server.fault(/watch=true/, { cut: { after: 20, how: 'reset' } });
    const answer = await fetch(`${server.url}${base}?watch=true`);
    let failed = false;
    await answer.text().catch(() => (failed = true));
    expect(failed).to.equal(true);
    await sleep(0);
  });

  it('reads a body in protobuf, as kubectl 1.33 and newer send it, and refuses one of a kind that it cannot read', async () => {
    const post = (body: Buffer): Promise<Response> =>
      fetch(`${server.url}/api/v1/namespaces/default/configmaps`, {
        method: 'POST',
        headers: { 'content-type': 'application/vnd.kubernetes.protobuf' },
        body: new Uint8Array(body),
      });
    // kubectl 1.33.1: create configmap made --from-literal=a=1
    const made = Buffer.from('azhzAAoPCgJ2MRIJQ29uZmlnTWFwEh4KFAoEbWFkZRIAGgAiACoAMgA4AEIAEgYKAWESATEaACIA', 'base64');
    expect((await post(made)).status).to.equal(201);
    expect(server.find('v1', 'ConfigMap', 'made')?.['data']).to.deep.equal({ a: '1' });
    const other = Buffer.from(made.toString('latin1').replace('ConfigMap', 'Configure'), 'latin1');
    expect((await post(other)).status).to.equal(415);
  });

  it('reads a media type with parameters, and refuses CBOR and other formats, as a server without them does', async () => {
    const post = async (type: string, name: string): Promise<number> => {
      const body = JSON.stringify(configMap(name));
      const path = `${server.url}/api/v1/namespaces/default/configmaps`;
      return (await fetch(path, { method: 'POST', headers: { 'content-type': type }, body })).status;
    };
    expect(await post('application/json; charset=utf-8', 'parameters')).to.equal(201);
    for (const type of ['application/cbor', 'text/plain']) expect(await post(type, 'other')).to.equal(415);
  });

  describe('with kubectl', function () {
    requirePeer(this, 'kubectl');
    let folder: KubeconfigFolder;
    let kubeconfig: string;
    beforeEach(async () => {
      folder = await makeKubeconfigFolder();
      kubeconfig = await folder.write({ cluster: { server: server.url } });
    });
    afterEach(() => folder.remove());

    const environment = () => ({ ...process.env, KUBECONFIG: kubeconfig, HOME: folder.folder });
    const kubectl = (...args: string[]): Promise<string> => runSuccessfully('kubectl', args, { env: environment() });
    const failing = (...args: string[]): Promise<RunResult> => run('kubectl', args, { env: environment() });

    it('is discovered, read and written', async () => {
      expect(await kubectl('api-resources', '--no-headers')).to.match(
        /imagedigestmirrorsets +config.openshift.io\/v1 +false/,
      );
      await kubectl('create', 'configmap', 'made', '--from-literal=a=1');
      expect(server.find('v1', 'ConfigMap', 'made')?.['data']).to.deep.equal({ a: '1' });
      expect(await kubectl('get', 'configmap', 'made', '-o', 'jsonpath={.data.a}')).to.equal('1');
      expect(await kubectl('get', 'clusterversion', '-o', 'name')).to.contain('/version');
      expect((await failing('create', 'configmap', 'made')).stderr).to.contain('configmaps "made" already exists');
      expect((await failing('get', 'configmap', 'absent')).stderr).to.contain('configmaps "absent" not found');
      await kubectl('patch', 'configmap', 'made', '--type=merge', '-p', '{"data":{"b":"2"}}');
      await kubectl('delete', 'configmap', 'made', '--wait=false');
      expect(server.find('v1', 'ConfigMap', 'made')).to.equal(undefined);
    });

    it('is applied to, on the client’s side and on the server’s', async () => {
      const file = await folder.file('x.json', JSON.stringify(configMap('x', { data: { a: '1' } })));
      const flags = ['apply', '--validate=false', '-f', file];
      expect(await kubectl(...flags)).to.equal('configmap/x created\n');
      expect(await kubectl(...flags)).to.equal('configmap/x unchanged\n');
      await folder.file('x.json', JSON.stringify(configMap('x', { data: { a: '2' } })));
      expect(await kubectl(...flags)).to.equal('configmap/x configured\n');
      const other = await folder.file('y.json', JSON.stringify(configMap('x', { data: { a: '3' } })));
      const serverSide = ['apply', '--validate=false', '--server-side', '--field-manager=other', '-f', other];
      const conflict = await failing(...serverSide);
      expect(conflict.stderr).to.contain('conflict with "kubectl-client-side-apply"').and.contain('.data.a');
      expect(await kubectl(...serverSide, '--force-conflicts')).to.equal('configmap/x serverside-applied\n');
      expect(server.find('v1', 'ConfigMap', 'x')?.['data']).to.deep.equal({ a: '3' });
    });
  });
});

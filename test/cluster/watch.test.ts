import { expect } from 'chai';
import type { Cluster, ListOptions } from '../../lib/cluster/client.ts';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import type { ApiServerOptions, TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../support/cluster.ts';
import { failureOf } from '../support/program/failure.ts';

const configMap = (name: string, value = '', metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'default', ...metadata },
  data: { value },
});

describe('Cluster.watch', () => {
  let server: TestApiServer;
  let connected: StartedCluster;
  let cluster: Cluster;

  const start = async (options: ApiServerOptions = {}): Promise<void> => {
    connected = await startCluster(options);
    ({ server } = connected);
    ({ cluster } = connected);
  };
  afterEach(async () => {
    connected.context.interrupt();
    await connected.close();
  });

  const brief = (objects: readonly StoredObject[]): string =>
    objects.map(({ metadata, data }) => `${metadata.name}=${(data as { value: string }).value}`).join(' ');
  const watch = (options: ListOptions = {}) => {
    const changes = cluster.watch('v1', 'ConfigMap', { namespace: 'default', ...options });
    const next = async (): Promise<readonly StoredObject[]> => {
      const result = await changes.next();
      if (result.done === true) throw new Error('the watch has ended');
      return result.value;
    };
    /** Reads until the objects are the wanted ones. */
    const until = async (wanted: string): Promise<void> => {
      for (let seen = ''; seen !== wanted;) {
        seen = brief(await next());
      }
    };
    return { next, until };
  };
  const requested = (match: RegExp): number =>
    server.requests.filter(({ method, path, query }) => match.test(`${method} ${path}?${query.toString()}`)).length;
  const lists = (): number => requested(/configmaps\?limit/);
  const watches = (): number => requested(/configmaps\?watch/);
  /** Waits until the server has a watch for changes. */
  const beWatched = async (): Promise<void> => {
    while (server.objects.listenerCount('change') < 2) await new Promise(setImmediate);
  };

  it('returns the present objects, then their changes', async () => {
    await start();
    server.put(configMap('a', '1'));
    const { until } = watch();
    await until('a=1');
    server.put(configMap('b', '2'));
    await until('a=1 b=2');
    await cluster.apply(configMap('a', '3'), { force: true });
    await until('a=3 b=2');
    await cluster.delete(configMap('a'));
    await until('b=2');
    expect([lists(), watches()]).to.deep.equal([1, 1]);
  });

  it('reports changes of the watched kinds only, with their kind', async () => {
    await start();
    server.put(configMap('a', '1', { labels: { mine: '' } }));
    server.put(configMap('b', '1'));
    const { next, until } = watch({ labelSelector: 'mine' });
    const found = await next();
    expect(found).to.have.length(1);
    expect(found[0]).to.deep.include({ apiVersion: 'v1', kind: 'ConfigMap' });
    server.put(configMap('c', '1'));
    server.put(configMap('d', '1', { labels: { mine: '' } }));
    await until('a=1 d=1');
  });

  it('resumes after a lost connection, without a new list', async () => {
    await start();
    server.put(configMap('a', '1'));
    const { until } = watch();
    await until('a=1');
    const pending = until('a=1 b=1');
    await beWatched();
    server.fault(/watch=/, { noAnswer: 'reset' }, { times: 3 });
    server.dropConnections();
    server.put(configMap('b', '1'));
    await pending;
    expect(lists()).to.equal(1);
    expect(watches()).to.be.greaterThan(4);
  });

  it('resumes after a line that is incomplete', async () => {
    await start();
    server.put(configMap('a', '1'));
    server.fault(/watch=/, { cut: { after: 30, how: 'reset' } }, { times: 2 });
    const { until } = watch();
    await until('a=1');
    server.put(configMap('b', '1'));
    await until('a=1 b=1');
  });

  it('ends at a line without an end', async () => {
    await start();
    server.put(configMap('a', '1'));
    server.fault(/watch=/, { answer: { status: 200, body: ' '.repeat(9_000_000) } });
    const { next, until } = watch();
    await until('a=1');
    expect((await failureOf(next(), 'too-large')).message).to.contain('the watch of ConfigMap sent a line');
  });

  it('lists again if the cluster has forgotten the changes meanwhile, and misses no deletion', async () => {
    await start({ bookmarks: false });
    server.put(configMap('a', '1'));
    server.put(configMap('b', '1'));
    const { until } = watch();
    await until('a=1 b=1');
    const pending = until('b=1 c=1');
    await beWatched();
    const blocked = server.fault(/watch=/, { noAnswer: 'reset' }, { times: 2 });
    server.dropConnections();
    server.objects.delete({ kind: kindOf('ConfigMap'), namespace: 'default', name: 'a' }, {}, false);
    server.put(configMap('c', '1'));
    server.objects.compact();
    await pending;
    expect(lists()).to.equal(2);
    expect(blocked.hits).to.equal(2);
  });

  it('requests bookmarks, so that no new list is needed', async () => {
    await start();
    server.put(configMap('a', '1'));
    const { until } = watch();
    await until('a=1');
    const pending = until('a=1 b=1');
    await beWatched();
    // No watched object has changed, but its revision would otherwise be too old.
    for (const name of ['x', 'y']) server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    server.objects.compact();
    server.put(configMap('b', '1'));
    await pending;
    server.dropConnections();
    server.put(configMap('c', '1'));
    await until('a=1 b=1 c=1');
    expect(lists()).to.equal(1);
  });

  it('waits for a server that is busy, or has nothing to say but errors', async () => {
    await start();
    server.put(configMap('a', '1'));
    server.fault(/configmaps/, { answer: { status: 503, body: 'starting' } }, { times: 6 });
    const { until } = watch();
    await until('a=1');
    server.put(configMap('b', '1'));
    await until('a=1 b=1');
  });

  it('ends with the signal, and leaves no connection behind', async () => {
    await start();
    const controller = new AbortController();
    const changes = cluster.within(controller.signal).watch('v1', 'ConfigMap');
    await changes.next();
    const next = changes.next();
    await beWatched();
    controller.abort();
    await failureOf(next, 'interrupted');
    while (server.active > 0) await new Promise(setImmediate);
    // The cluster itself is still connected.
    expect(await cluster.list('v1', 'ConfigMap')).to.deep.equal([]);
  });

  it('does not wait for rights, nor for kinds that are not served', async () => {
    await start({ tokens: new Map([['t', 'somebody']]), allow: ({ verb }) => verb !== 'watch' });
    const { next } = watch();
    await next();
    await failureOf(next(), 'denied');
    await failureOf(cluster.watch('nothing.example.com/v1', 'Nothing').next(), 'not-served');
  });

  const kindOf = (name: string) => {
    const kind = server.kinds.find((known) => known.kind === name);
    if (!kind) throw new Error(`the server has no ${name}`);
    return kind;
  };
});

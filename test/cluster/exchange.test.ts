import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { expect } from 'chai';
import { connectCluster } from '../../lib/cluster/client.ts';
import type { TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { tooManyRequests } from '../fakes/kubernetes/apiStatus.ts';
import { connectTo, hasty, startCluster, type StartedCluster } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';

const configMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'x', namespace: 'default' } };

describe('Exchange', () => {
  let server: TestApiServer;
  let connected: StartedCluster;

  beforeEach(async () => {
    connected = await startCluster({}, 3000);
    ({ server } = connected);
    await connected.cluster.findKind('v1', 'ConfigMap');
  });
  afterEach(() => connected.close());

  it('waits as long as a 429 says, for reads and writes', async () => {
    server.fault(/configmaps/, { answer: tooManyRequests(0) }, { times: 2 });
    await connected.cluster.create(configMap);
    expect(server.find('v1', 'ConfigMap', 'x')).to.not.equal(undefined);
    server.fault(/configmaps/, { answer: tooManyRequests(3600) });
    const failure = await failureOf(connected.cluster.read(configMap), 'rate-limited');
    expect(failure.message).to.contain('too many requests').and.contain('60 min');
  });

  it('reads again after errors and broken connections, and gives up', async () => {
    server.put(configMap);
    for (const fault of [
      { answer: { status: 503, body: 'no backend' } },
      { noAnswer: 'reset' as const },
      { cut: { after: 10, how: 'reset' as const } },
      { cut: { after: 10, how: 'end' as const } },
      { cut: { after: 10, how: 'stall' as const } },
    ]) {
      server.fault(/^GET .*configmaps/, fault, { times: 1 });
      expect(await connected.cluster.read(configMap), JSON.stringify(fault)).to.deep.include({ kind: 'ConfigMap' });
    }
    const broken = server.fault(/^GET .*configmaps/, { answer: { status: 500, body: '{}' } });
    await failureOf(connected.cluster.read(configMap), 'server-error');
    expect(broken.hits).to.equal(3);
  });

  it('knows the time of the server by its responses', async () => {
    const date = new Date(Date.now() - 3_600_000).toUTCString();
    server.fault(/^GET .version/, { answer: { status: 200, headers: { date }, body: '{}' } }, { times: 1 });
    expect(connected.cluster.now() - Date.now()).to.be.within(-1000, 0);
    await connected.cluster.version();
    expect(connected.cluster.now() - Date.parse(date)).to.be.within(0, 60_000);
    await connected.cluster.version();
    expect(Date.now() - connected.cluster.now()).to.be.within(0, 60_000);
  });

  it('does not repeat a write that may have been carried out', async () => {
    for (const fault of [{ noAnswer: 'reset' as const }, { noAnswer: 'hold' as const }]) {
      const handle = server.fault(/^POST /, fault, { times: 1 });
      await failureOf(connected.cluster.create(configMap), 'unreachable');
      expect(handle.hits).to.equal(1);
    }
    server.fault(
      /^POST /,
      { answer: { status: 500, body: '{"kind":"Status","message":"etcd is full"}' } },
      { times: 1 },
    );
    expect((await failureOf(connected.cluster.create(configMap), 'server-error')).message).to.equal('etcd is full');
  });

  it('has a time limit', async () => {
    server.fault(/configmaps/, { noAnswer: 'hold' });
    await using impatient = await connectTo(server, {}, 300);
    const failure = await failureOf(impatient.cluster.list('v1', 'ConfigMap'), 'unreachable');
    expect(failure.message).to.contain('did not answer within 0.3 s');
  });

  it('gives up on a server that takes no connection after two attempts, and says that it tries again', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const sockets: Socket[] = [];
    silent.on('connection', (socket) => sockets.push(socket));
    const { port } = silent.address() as AddressInfo;
    const context = makeContext();
    // It accepts a TCP connection, and never starts a handshake.
    const target = { server: `https://127.0.0.1:${port}`, environment: {}, connectTimeout: 100 };
    const cluster = await connectCluster({ ...target, retry: hasty }, context);
    try {
      const failure = await failureOf(cluster.version(), 'unreachable');
      expect(failure.message).to.contain('did not accept a connection for 1 s');
      expect(sockets).to.have.length(2);
      expect(context.lines.join('\n')).to.contain('trying again');
    } finally {
      cluster[Symbol.dispose]();
      for (const socket of sockets) socket.destroy();
      silent.close();
    }
  });

  it('says when it is not an API server that answers', async () => {
    server.fault(/configmaps/, { answer: { status: 200, body: '<html>Log in to the hotel</html>' } });
    const failure = await failureOf(connected.cluster.read(configMap), 'server-error');
    expect(failure.message).to.contain('not JSON');
    expect(failure.hint).to.contain('proxy');
    server.clearFaults();
    server.fault(/configmaps/, { answer: { status: 302, headers: { location: '/login' }, body: '' } });
    expect((await failureOf(connected.cluster.read(configMap), 'server-error')).message).to.contain('answered 302');
  });

  it('stops reading a response that is too large, and does not repeat the request', async () => {
    server.put({ ...configMap, data: { a: 'x'.repeat(10_000) } });
    const options = { server: server.url, environment: {}, retry: hasty, responseLimit: 9999 };
    using bounded = await connectCluster(options, makeContext());
    const count = (): number => server.requests.filter(({ path }) => path.includes('configmaps')).length;
    for (const status of [200, 500]) {
      if (status === 500) server.fault(/configmaps/, { answer: { status, body: 'x'.repeat(10_000) } });
      const before = count();
      const failure = await failureOf(bounded.read(configMap), 'too-large');
      expect(failure.message).to.contain('sent more than 9999 bytes');
      expect(count()).to.equal(before + 1);
    }
  });

  it('restarts a list if the cluster has forgotten its page', async () => {
    for (const name of ['a', 'b', 'c']) server.put({ ...configMap, metadata: { ...configMap.metadata, name } });
    server.fault(
      ({ query }) => {
        if (query.has('continue')) {
          server.put({ ...configMap, metadata: { ...configMap.metadata, name: 'd' } });
          server.objects.compact();
        }
        return query.has('continue');
      },
      {},
      { times: 1 },
    );
    const listed = await connected.cluster.list('v1', 'ConfigMap', { pageSize: 2 });
    expect(listed.map(({ metadata }) => metadata.name)).to.deep.equal(['a', 'b', 'c', 'd']);
  });

  it('passes the warnings of the server on, once each', async () => {
    server.fault(/configmaps/, { headers: { warning: '299 - "v1 Thing is \\"old\\"", 299 - "other"' } });
    server.put(configMap);
    await connected.cluster.read(configMap);
    await connected.cluster.read(configMap);
    const warned = connected.context.lines.filter((line) => line.startsWith('warn'));
    expect(warned).to.deep.equal(['warn: test: v1 Thing is "old"', 'warn: test: other']);
  });

  it('ends at once when it is interrupted', async () => {
    server.fault(/configmaps/, { noAnswer: 'hold' });
    const asked = failureOf(connected.cluster.read(configMap), 'interrupted');
    await server.nextRequest();
    connected.context.interrupt();
    await asked;
  });

  it('keeps its connection', async () => {
    for (let index = 0; index < 5; index += 1) await connected.cluster.version();
    expect(server.connections).to.equal(1);
  });

  it('reads times as kubectl does', async () => {
    for (const requestTimeout of ['30', '30s', '2m', '0']) {
      await connectCluster({ server: server.url, environment: {}, requestTimeout }, makeContext());
    }
    await failureOf(
      connectCluster({ server: server.url, environment: {}, requestTimeout: 'soon' }, makeContext()),
      'usage',
    );
  });
});

describe('Cluster.clusterVersion', () => {
  let server: TestApiServer;
  let connected: StartedCluster;

  const start = async (openshift?: string) => {
    connected = await startCluster(openshift === undefined ? {} : { openshift });
    ({ server } = connected);
    return connected.cluster;
  };
  afterEach(() => connected.close());

  it('tells version, channel and the releases that it knows', async () => {
    const cluster = await start('4.12.4');
    const image = (digit: string) => `quay.io/r@sha256:${digit.repeat(64)}`;
    const object = server.find('config.openshift.io/v1', 'ClusterVersion', 'version')!;
    server.put({
      ...object,
      spec: { channel: 'eus-4.12', upstream: 'https://graph.test' },
      status: {
        desired: { version: '4.12.9', image: image('9'), architecture: 'Multi' },
        history: [
          { state: 'Partial', version: '4.12.9', image: image('9') },
          { state: 'Completed', version: '4.12.4', image: image('4') },
        ],
        availableUpdates: [{ version: '4.12.10', image: image('a') }],
        conditionalUpdates: [{ release: { version: '4.12.11', image: image('b') } }],
      },
    });
    expect(await cluster.clusterVersion()).to.deep.equal({
      version: '4.12.4',
      desired: '4.12.9',
      channel: 'eus-4.12',
      upstream: 'https://graph.test',
      multi: true,
      releases: new Map([
        ['4.12.4', image('4')],
        ['4.12.9', image('9')],
        ['4.12.10', image('a')],
        ['4.12.11', image('b')],
      ]),
    });
  });

  it('is undefined without a version operator', async () => {
    const cluster = await start();
    expect(await cluster.clusterVersion()).to.equal(undefined);
  });
});

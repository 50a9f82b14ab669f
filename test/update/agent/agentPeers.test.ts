import { once } from 'node:events';
import { copyFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { expect } from 'chai';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentPeers, connectToPeers, peerPath } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer, readyPath } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { formatNodeReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const token = '0123456789abcdef0123';
const namespace = 'oc-upgrade-bundle-reports';

/** Yields a chunk repeatedly, up to a length. */
function* cut(chunk: Buffer, length: number): Generator<Buffer> {
  for (let left = length; left > 0; left -= chunk.length) yield chunk.subarray(0, left);
}

describe('agents among each other', () => {
  let made: TestBundle;
  let digest: Digest;
  let trust: VerifyTrust;
  let api: TestApiServer;
  let connected: StartedCluster;
  let connections: Connections;
  let folder: string;
  let closing: (() => Promise<unknown>)[] = [];

  before(async () => {
    made = await makeBundle({ layerSize: 100_000 });
    digest = digestOf(await readFile(made.path));
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    connected = await startCluster();
    ({ server: api } = connected);
    api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    connections = connectToPeers(token);
  });
  after(async () => {
    connections.close();
    await connected.close();
    await made.remove();
  });
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(async () => {
    for (const close of closing.toReversed()) await close();
    closing = [];
    await removeFolder(folder);
    const { apiVersion, kind } = reportKind;
    for (const { metadata } of await connected.cluster.list(apiVersion, kind, { namespace }))
      await connected.cluster.delete({ apiVersion, kind, metadata: { name: metadata.name, namespace } });
  });

  /** Reports to other nodes that a node offers the bundle. */
  const announce = (name: string, origin: string | undefined): void => {
    const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 5, bytes: 0 } as const;
    api.put({ ...formatNodeReport({ bundle: 'x', progress, origin, offers: digest }) });
  };
  /** Starts the part of a node’s agent that other nodes use. */
  const startNode = async (name: string, { holds = true, secret = token } = {}) => {
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token: secret }, makeContext());
    closing.push(() => server.close());
    const cache = new BundleCache(join(folder, name), trust);
    if (holds) {
      const cached = await cache.verify({ path: made.path, device: made.folder }, digest, makeContext());
      closing.push(() => cached.bundle[Symbol.asyncDispose]());
      server.offer(cached.bundle, digest);
    }
    announce(name, server.origin);
    return server;
  };
  const requestTo = (url: string, method = 'GET') => {
    return { method, url: new URL(url), headers: {}, signal: new AbortController().signal };
  };
  const ask = (server: AgentServer, path: string, method = 'GET', by: Connections = connections) =>
    by.exchange(requestTo(`https://127.0.0.1:${server.port}${path}`, method));
  const peersOf = (node: string): AgentPeers => new AgentPeers(connected.cluster, node, connections);

  it('fetch a bundle from any node that offers it, and offer it too', async () => {
    await startNode('a');
    announce('b', 'https://127.0.0.1:1');
    announce('gone', undefined);
    const cache = new BundleCache(join(folder, 'b'), trust);
    expect(await peersOf('b').fetch(digest, cache.folder, makeContext())).to.equal('fetched');
    expect(await readFile(replicaPath(cache.folder, digest))).to.deep.equal(await readFile(made.path));
    expect(await cache.recall(digest, makeContext())).to.equal(undefined);
    const copy = await cache.openCopy(digest, makeContext());
    closing.push(async () => copy?.bundle[Symbol.asyncDispose]());
    expect(copy?.facts.metadata.version).to.equal('4.12.4');
    expect([...(copy?.facts.signatures.keys() ?? [])]).to.deep.equal([made.release.digest]);
    expect(await cache.recall(digest, makeContext())).to.deep.equal(copy?.facts);
  });

  it('ask the next peer if one has another token, no bundle, or too many requests', async () => {
    await startNode('a', { holds: false });
    await startNode('b', { secret: 'another-token-0123456789' });
    const nobody = await peersOf('z').fetch(digest, join(folder, 'z'), makeContext());
    expect(nobody).to.equal('busy');
    await startNode('c');
    // Each time, a node asks only a few of the others, at random. It asks again with the next check of the cluster.
    await until(async () => (await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())) === 'fetched');
  });

  it('do not ask themselves', async () => {
    await startNode('a');
    expect(await peersOf('a').fetch(digest, join(folder, 'b'), makeContext())).to.equal('none');
  });

  it('ask no other node if their own disk is the reason', async () => {
    await startNode('a');
    // A folder cannot be created below a file.
    await writeFile(join(folder, 'file'), '');
    await failureOf(peersOf('z').fetch(digest, join(folder, 'file/z'), makeContext()), 'not-writable');
  });

  it('are only partly read if many of them have a bundle', async () => {
    const server = await startNode('a', { holds: false });
    for (let count = 0; count < 200; count += 1) announce(`n${count}`, server.origin);
    const before = api.requests.length;
    expect(await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())).to.equal('busy');
    const [listed, ...more] = api.requests.slice(before).filter(({ path }) => path.endsWith('/leases'));
    expect(more).to.deep.equal([]);
    expect(listed?.bytesSent).to.be.lessThan(60_000);
    expect(server.origin).to.equal(`https://127.0.0.1:${server.port}`);
  });

  it('send a bundle to two at a time, so that it spreads from node to node', async () => {
    const server = await startNode('a');
    const sent: PassThrough[] = [];
    const chunks = (): Readable => {
      const body = new PassThrough();
      sent.push(body);
      // The head of a response is sent with its first bytes.
      body.write('a');
      return body;
    };
    server.offer({ size: 3, chunks }, digest);
    const tar = peerPath(digest);
    const [first, second] = await Promise.all([ask(server, tar), ask(server, tar)]);
    expect([first.status, second.status]).to.deep.equal([200, 200]);
    const third = await ask(server, tar);
    expect(third.status).to.equal(503);
    expect(third.headers['retry-after']).to.equal('5');
    third.body.resume();
    const asked = await ask(server, tar, 'HEAD');
    expect(asked.status).to.equal(200);
    asked.body.resume();
    for (const each of sent) each.end('bc');
    expect(await Promise.all([text(first.body), text(second.body)])).to.deep.equal(['abc', 'abc']);
    const late = ask(server, tar);
    await until(() => sent.length === 3);
    sent[2]?.end('bc');
    expect(await text((await late).body)).to.equal('abc');
    server.withdraw();
    expect((await ask(server, tar)).status).to.equal(404);
  });

  it('take a bundle away from nodes that stall, and send it to the next', async () => {
    const limits = { idleTimeout: 2000, minimumRate: 2 ** 30 };
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token, limits }, makeContext());
    closing.push(() => server.close());
    const chunk = Buffer.alloc(1024 * 1024);
    const size = 32 * chunk.length;
    server.offer({ size, chunks: (_, length) => Readable.from(cut(chunk, length)) }, digest);
    const tar = peerPath(digest);
    const stalled = await Promise.all([ask(server, tar), ask(server, tar)]);
    expect(stalled.map(({ status }) => status)).to.deep.equal([200, 200]);
    await until(async () => {
      const { status, body } = await ask(server, tar);
      if (status === 503) return void body.resume();
      let got = 0;
      for await (const chunk of body as AsyncIterable<Buffer>) got += chunk.length;
      expect(got).to.equal(size);
      return true;
    });
    for (const { body } of stalled) body.destroy();
  });

  it('send nothing unencrypted, and nothing to peers without the token', async () => {
    const server = await startNode('a');
    const tar = peerPath(digest);
    await failureOf(ask(server, tar, 'GET', connectToPeers('another-token-0123456789')), 'tls');
    const certificates = new Certificates({ insecure: true, folders: [] });
    await failureOf(ask(server, tar, 'GET', new Connections({ certificates })), 'tls');
    const plain = connect(server.port, '127.0.0.1').end(`GET ${tar} HTTP/1.1\r\nHost: a\r\n\r\n`);
    expect(await text(plain)).not.to.contain('HTTP');

    const seen: Buffer[] = [];
    const wire = createServer((near) => {
      const far = connect(server.port, '127.0.0.1');
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        from.on('data', (chunk: Buffer) => seen.push(chunk));
        from.on('error', () => to.destroy()).pipe(to);
      }
    }).listen(0, '127.0.0.1');
    await once(wire, 'listening');
    closing.push(async () => once(wire.close(), 'close'));
    const { port } = wire.address() as AddressInfo;
    const answer = await connections.exchange(requestTo(`https://127.0.0.1:${port}${tar}`));
    const bundle = await readFile(made.path);
    expect((await buffer(answer.body)).equals(bundle)).to.equal(true);
    const sent = Buffer.concat(seen);
    expect(sent.length).to.be.above(bundle.length);
    for (const secret of [token, 'HTTP/1.1', 'metadata.json']) expect(sent.includes(secret), secret).to.equal(false);
    connections.close();
    connections = connectToPeers(token);
  });

  it('do not ask a node whose report has an address of plain HTTP', async () => {
    const heads: string[] = [];
    const old = createServer((socket) => socket.on('data', (chunk: Buffer) => heads.push(chunk.toString())));
    await once(old.listen(0, '127.0.0.1'), 'listening');
    closing.push(async () => once(old.close(), 'close'));
    announce('old', `http://127.0.0.1:${(old.address() as AddressInfo).port}`);
    expect(await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())).to.equal('none');
    await startNode('new');
    expect(await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())).to.equal('fetched');
    expect(heads).to.deep.equal([]);
  });

  it('give their executable to nodes that have none, who have no key yet', async () => {
    const path = join(folder, 'executable');
    await writeFile(path, 'MZ');
    const executable = { digest: 'abc', path, port: 0 };
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token, executable }, makeContext());
    closing.push(() => server.close());
    const at = (path: string): string => new URL(path, server.executableOrigin).href;
    expect(await (await fetch(at('/executable/abc'))).text()).to.equal('MZ');
    expect((await fetch(at(peerPath(digest)))).status).to.equal(404);
    const isReady = async (): Promise<boolean> => (await fetch(at(readyPath))).status === 200;
    expect(await isReady()).to.equal(false);
    server.setReady(true);
    expect(await isReady()).to.equal(true);
    server.setReady(false);
    expect(await isReady()).to.equal(false);
  });

  it('refuse another bundle, and one without a trusted signature', async () => {
    const cache = new BundleCache(join(folder, 'a'), trust);
    await failureOf(
      cache.verify({ path: made.path, device: made.folder }, digestOf('other'), makeContext()),
      'digest-mismatch',
    );
    const strict = new BundleCache(join(folder, 'a'), { ...trust, keyrings: [], fingerprints: [] });
    await failureOf(strict.verify({ path: made.path, device: made.folder }, digest, makeContext()), 'untrusted');
    expect(await readdir(join(folder, 'a')).catch(() => [])).to.deep.equal([]);
  });

  it('read another bundle only once, until its medium changes', async () => {
    const path = join(folder, 'upgrade.tar');
    await copyFile(made.path, path);
    const cache = new BundleCache(join(folder, 'a'), trust);
    const found = { path, device: folder };
    await failureOf(cache.verify(found, digestOf('other'), makeContext()), 'digest-mismatch');
    await rm(path);
    const error = await failureOf(cache.verify(found, digestOf('another'), makeContext()), 'digest-mismatch');
    expect(error.message).to.contain(`its digest is ${digest}, not ${digestOf('another')}`);
    await copyFile(made.path, path);
    // The allowed bundle itself is always read.
    await using verified = (await cache.verify(found, digest, makeContext())).bundle;
    expect(verified.path).to.equal(path);
  });

  it('remove bundles that are no longer needed', async () => {
    const cache = new BundleCache(folder, trust);
    const { bundle } = await cache.verify({ path: made.path, device: made.folder }, digest, makeContext());
    await bundle[Symbol.asyncDispose]();
    for (const name of ['bundle-0123456789ab.tar.partial', 'other']) await writeFile(join(folder, name), '');
    await cache.discard(new Set([digest]), makeContext());
    expect(await readdir(folder)).to.have.members([`bundle-${digest.slice(7, 19)}.json`, 'other']);
    await cache.discard(new Set(), makeContext());
    expect(await readdir(folder)).to.deep.equal(['other']);
  });
});

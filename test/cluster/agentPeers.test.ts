import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, type Readable } from 'node:stream';
import { expect } from 'chai';
import { AgentHoldings } from '../../lib/cluster/agentHoldings.ts';
import { AgentPeers, peerPaths } from '../../lib/cluster/agentPeers.ts';
import { AgentServer } from '../../lib/cluster/agentServer.ts';
import { formatReport, reportKind } from '../../lib/cluster/nodeReport.ts';
import type { VerifyTrust } from '../../lib/bundle/vouching.ts';
import { digestOf, type Digest } from '../../lib/oci/digest.ts';
import { Certificates } from '../../lib/store/certificates.ts';
import { Connections } from '../../lib/store/connections.ts';
import { startApiServer, type TestApiServer } from '../support/apiServer.ts';
import { makeBundle, type TestBundle } from '../support/bundle.ts';
import { connectTo, type ConnectedCluster } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { until } from '../support/creation.ts';
import { failureOf } from '../support/failure.ts';
import { makeFolder, removeFolder } from '../support/mirrorDirectory.ts';

const token = '0123456789abcdef0123';
const namespace = 'oc-upgrade-bundle';

describe('agents among each other', () => {
  let made: TestBundle;
  let digest: Digest;
  let trust: VerifyTrust;
  let api: TestApiServer;
  let connected: ConnectedCluster;
  let connections: Connections;
  let folder: string;
  let closing: (() => Promise<unknown>)[] = [];

  before(async () => {
    made = await makeBundle({ layerSize: 100_000 });
    digest = digestOf(await readFile(made.path));
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    api = await startApiServer();
    api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    connected = await connectTo(api);
    connections = new Connections({ certificates: new Certificates({ insecure: false, folders: [] }) });
  });
  after(async () => {
    connections.close();
    await connected.close();
    await api.stop();
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

  /** Lets the others know that a node offers the bundle. */
  const announce = (name: string, origin: string | undefined): void => {
    const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 5, bytes: 0 } as const;
    api.put({ ...formatReport({ bundle: 'x', progress, origin, offers: digest }) });
  };
  /** The agent of a node, as far as the others see it. */
  const startNode = async (name: string, { holds = true, secret = token } = {}) => {
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token: secret }, makeContext());
    closing.push(() => server.close());
    const holdings = new AgentHoldings(join(folder, name), trust);
    if (holds) {
      const holding = await holdings.verify(made.path, digest, makeContext());
      closing.push(() => holding.bundle.close());
      server.offer(holding.bundle, holding.facts);
    }
    announce(name, server.origin);
    return server;
  };
  const peersOf = (node: string): AgentPeers => new AgentPeers(connected.cluster, node, token, connections);

  it('bring a bundle from whoever says that it has it, and hand it on', async () => {
    await startNode('a');
    announce('b', 'http://127.0.0.1:1');
    announce('gone', undefined);
    const holdings = new AgentHoldings(join(folder, 'b'), trust);
    const path = await peersOf('b').fetch(digest, holdings.folder, makeContext());
    expect(await readFile(path ?? '')).to.deep.equal(await readFile(made.path));
    expect(await holdings.recall(digest)).to.equal(undefined);
    const copy = await holdings.openCopy(digest, makeContext());
    closing.push(async () => copy?.bundle.close());
    expect(copy?.facts.metadata.version).to.equal('4.12.4');
    expect(copy?.facts.manifests.map(({ object }) => object.kind)).to.deep.equal(['ConfigMap']);
    expect(await holdings.recall(digest)).to.deep.equal(copy?.facts);
    expect(await peersOf('c').readFacts(digest, makeContext())).to.deep.equal(copy?.facts);
  });

  it('ask the next one where one has another token, not the bundle, or enough to do', async () => {
    await startNode('a', { holds: false });
    await startNode('b', { secret: 'another-token-0123456789' });
    const nobody = await peersOf('z').fetch(digest, join(folder, 'z'), makeContext());
    expect(nobody).to.equal(undefined);
    expect(await peersOf('z').readFacts(digest, makeContext())).to.equal(undefined);
    await startNode('c');
    expect(await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())).to.be.a('string');
  });

  it('are asked for some of those that have a bundle, where many have it', async () => {
    const server = await startNode('a', { holds: false });
    for (let count = 0; count < 200; count += 1) announce(`n${String(count)}`, server.origin);
    const before = api.requests.length;
    expect(await peersOf('z').fetch(digest, join(folder, 'z'), makeContext())).to.equal(undefined);
    const [listed, ...more] = api.requests.slice(before).filter(({ path }) => path.endsWith('/leases'));
    expect(more).to.deep.equal([]);
    expect(listed?.bytesSent).to.be.lessThan(60_000);
    expect(server.origin).to.equal(`http://127.0.0.1:${String(server.port)}`);
  });

  it('send a bundle to two at a time, so that it spreads from node to node', async () => {
    const server = await startNode('a');
    const facts = await new AgentHoldings(join(folder, 'a'), trust).recall(digest);
    if (!facts) throw new Error('nothing was verified');
    const sent: PassThrough[] = [];
    const chunks = (): Readable => {
      const body = new PassThrough();
      sent.push(body);
      // The head of an answer leaves with its first bytes.
      body.write('a');
      return body;
    };
    server.offer({ size: 3, chunks }, facts);
    const url = `http://127.0.0.1:${String(server.port)}${peerPaths(digest).tar}`;
    const headers = { authorization: `Bearer ${token}` };
    const [first, second] = await Promise.all([fetch(url, { headers }), fetch(url, { headers })]);
    expect([first.status, second.status]).to.deep.equal([200, 200]);
    const third = await fetch(url, { headers });
    expect(third.status).to.equal(503);
    expect(third.headers.get('retry-after')).to.equal('5');
    expect((await fetch(url, { headers, method: 'HEAD' })).status).to.equal(200);
    for (const each of sent) each.end('bc');
    expect(await Promise.all([first.text(), second.text()])).to.deep.equal(['abc', 'abc']);
    const late = fetch(url, { headers });
    await until(() => sent.length === 3);
    sent[2]?.end('bc');
    expect(await (await late).text()).to.equal('abc');
    expect((await fetch(url)).status).to.equal(401);
    server.withdraw();
    expect((await fetch(url, { headers })).status).to.equal(404);
  });

  it('give their executable to nodes that have none', async () => {
    const path = join(folder, 'executable');
    await writeFile(path, 'MZ');
    const executable = { digest: 'abc', path };
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token, executable }, makeContext());
    closing.push(() => server.close());
    const answer = await fetch(`http://127.0.0.1:${String(server.port)}/executable/abc`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(await answer.text()).to.equal('MZ');
  });

  it('take nothing that is another bundle, or that nobody trusted signed', async () => {
    const holdings = new AgentHoldings(join(folder, 'a'), trust);
    await failureOf(holdings.verify(made.path, digestOf('other'), makeContext()), 'digest-mismatch');
    const strict = new AgentHoldings(join(folder, 'a'), { ...trust, keyrings: [], fingerprints: [] });
    await failureOf(strict.verify(made.path, digest, makeContext()), 'untrusted');
    expect(await readdir(join(folder, 'a')).catch(() => [])).to.deep.equal([]);
  });

  it('remove what is not needed any more', async () => {
    const holdings = new AgentHoldings(folder, trust);
    const { bundle } = await holdings.verify(made.path, digest, makeContext());
    await bundle.close();
    for (const name of ['bundle-0123456789ab.tar.partial', 'other']) await writeFile(join(folder, name), '');
    await holdings.discard(new Set([digest]), makeContext());
    expect(await readdir(folder)).to.have.members([`bundle-${digest.slice(7, 19)}.json`, 'other']);
    await holdings.discard(new Set(), makeContext());
    expect(await readdir(folder)).to.deep.equal(['other']);
  });
});

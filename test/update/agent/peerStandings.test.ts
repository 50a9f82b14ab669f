import { readFile, readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { Connections } from '../../../lib/content/http/connections.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { BundleOutline } from '../../../lib/node/contentCheck.ts';
import { hashBundle, replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { PeerStandings } from '../../../lib/update/agent/peerStandings.ts';
import { formatNodeReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import { lies, startLyingPeer, type Lie } from '../../fakes/cluster/lyingPeer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const token = '0123456789abcdef0123';
const namespace = reportKind.namespace;

describe('PeerStandings', () => {
  let made: TestBundle;
  let bytes: Buffer;
  let digest: Digest;
  let outline: BundleOutline;
  let connected: StartedCluster;
  let connections: Connections;
  let honest: AgentServer;
  let folder: string;
  const random = Math.random;
  const closing: (() => unknown)[] = [];

  before(async () => {
    made = await makeBundle({ layerSize: 100_000 });
    bytes = await readFile(made.path);
    await using bundle = await openBundle(made.path, makeContext());
    ({ digest, outline } = await hashBundle(bundle, makeContext()));
    connected = await startCluster();
    connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    connections = connectToPeers(token);
    honest = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, makeContext());
    const opened = await openBundle(made.path, makeContext());
    closing.push(() => opened[Symbol.asyncDispose]());
    honest.offer(opened, digest);
  });
  after(async () => {
    for (const close of closing) await close();
    await honest.close();
    connections.close();
    await connected.close();
    await made.remove();
  });
  beforeEach(async () => {
    folder = await makeFolder();
    // The nodes are asked in the order of their names: the worker that lies first.
    Math.random = () => 0.5;
  });
  afterEach(async () => {
    Math.random = random;
    await removeFolder(folder);
    for (const name of ['liar', 'middle', 'other'])
      await connected.cluster.delete({ ...reportKind, metadata: { name: `agent-${name}`, namespace } });
  });

  const announce = (name: string, origin: string | undefined): void => {
    const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 5, bytes: 0 } as const;
    connected.server.put({ ...formatNodeReport({ bundle: 'x', progress, origin, offers: digest }) });
  };
  const lie = async (...told: readonly Lie[]) => {
    const peer = await startLyingPeer(token, bytes, told);
    closing.push(() => peer.close());
    announce('liar', peer.origin);
    return peer;
  };
  const peersOf = (): AgentPeers =>
    new AgentPeers(
      connected.cluster,
      'node',
      connections,
      new PeerStandings({ first: 1000, last: 1000, longest: 8000 }),
    );
  const expectFetched = async (): Promise<void> => {
    expect(await readdir(folder)).to.deep.equal([replicaPath('', digest)]);
    expect((await readFile(replicaPath(folder, digest))).equals(bytes)).to.equal(true);
  };

  it('does not ask it again first', async () => {
    const peer = await lie(lies['zeros of the right size']);
    announce('other', honest.origin);
    const peers = peersOf();
    expect(await peers.fetch(digest, folder, makeContext(), { outline })).to.equal('fetched');
    const { requests } = peer;
    const place = await makeFolder();
    expect(await peers.fetch(digest, place, makeContext(), { outline })).to.equal('fetched');
    await removeFolder(place);
    expect(peer.requests).to.equal(requests);
  });

  it('gives nodes more time if all of them are slow', async () => {
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, makeContext());
    closing.push(() => server.close());
    const chunks = async function* (start: number, size: number) {
      await sleep(1300);
      yield bytes.subarray(start, start + size);
    };
    server.offer({ size: bytes.length, chunks }, digest);
    for (const name of ['middle', 'other']) announce(name, server.origin);
    const peers = peersOf();
    const outcomes: string[] = [];
    while (outcomes.at(-1) !== 'fetched' && outcomes.length < 9)
      outcomes.push(await peers.fetch(digest, folder, makeContext(), { outline }));
    expect(outcomes[0]).to.equal('busy');
    await expectFetched();
  });

  it('waits for a busy node rather than for a slow one, but not forever', async () => {
    const busy = await startLyingPeer(token, bytes, [(_, _start, response) => response.writeHead(503).end()]);
    closing.push(() => busy.close());
    announce('other', busy.origin);
    const peer = await lie((_, start, response) => {
      response.writeHead(200, { 'Content-Length': bytes.length - start });
      response.write(bytes.subarray(start, start + 300_000));
    });
    expect(await peersOf().fetch(digest, folder, makeContext(), { outline })).to.equal('busy');
    expect([peer.requests, busy.requests > 0]).to.deep.equal([1, true]);
    const standings = new PeerStandings();
    const limits = [1, 2, 3].map(() => {
      standings.note('liar', 'slow', 300_000, 300_000);
      return standings.lastLimitFor('liar', true)?.longest;
    });
    expect(limits).to.deep.equal([undefined, undefined, 60_000]);
  });
});

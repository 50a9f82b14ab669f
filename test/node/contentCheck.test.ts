import { readFile, stat, truncate, writeFile, readdir } from 'node:fs/promises';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import type { Connections } from '../../lib/content/http/connections.ts';
import { digestOf, type Digest } from '../../lib/content/oci/reference.ts';
import type { BundleOutline } from '../../lib/node/contentCheck.ts';
import { hashBundle, replicaPath } from '../../lib/node/transfer/replica.ts';
import { AgentPeers, connectToPeers } from '../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../lib/update/agent/agentServer.ts';
import { PeerStandings } from '../../lib/update/agent/peerStandings.ts';
import { formatNodeReport, reportKind } from '../../lib/update/record/nodeReport.ts';
import { lies, startLyingPeer, type Lie } from '../fakes/cluster/lyingPeer.ts';
import { startCluster, type StartedCluster } from '../support/cluster.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

const token = '0123456789abcdef0123';
const namespace = reportKind.namespace;

describe('a node that fetches a bundle beside a worker that lies', () => {
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
  const partial = (): string => `${replicaPath(folder, digest)}.partial`;
  const expectFetched = async (): Promise<void> => {
    expect(await readdir(folder)).to.deep.equal([replicaPath('', digest)]);
    expect((await readFile(replicaPath(folder, digest))).equals(bytes)).to.equal(true);
  };

  for (const [words, told] of Object.entries(lies)) {
    it(`gets it from another node after ${words}`, async () => {
      for (const limits of [{}, { outline }]) {
        const peer = await lie(told);
        announce('other', honest.origin);
        const place = await makeFolder();
        expect(await peersOf().fetch(digest, place, makeContext(), limits)).to.equal('fetched');
        expect((await readFile(replicaPath(place, digest))).equals(bytes)).to.equal(true);
        expect(peer.requests).to.be.at.least(1);
        await removeFolder(place);
      }
    });

    it(`keeps nothing that is not proven after ${words}`, async () => {
      await lie(told);
      const { size } = outline.head ?? { size: 0 };
      await writeFile(partial(), bytes.subarray(0, size));
      const outcome = await peersOf().fetch(digest, folder, makeContext(), { outline });
      // What it changes is there already.
      if (outcome === 'fetched') return expectFetched();
      const kept = await readFile(partial());
      expect(kept.length).to.be.at.least(size);
      expect(kept.equals(bytes.subarray(0, kept.length))).to.equal(true);
    });
  }

  it('finds a wrong blob at its end, and not at the end of the bundle', async () => {
    const first = (outline.head?.size ?? 0) + 600;
    await lie((_, start, response) => {
      response.writeHead(200, { 'Content-Length': bytes.length });
      const changed = Buffer.from(bytes);
      changed[first] = (changed[first] ?? 0) ^ 1;
      // The rest of the bundle never comes.
      response.write(changed.subarray(start, Math.floor(bytes.length * 0.7)));
    });
    const context = makeContext();
    expect(await peersOf().fetch(digest, folder, context, { outline })).to.equal('busy');
    expect(context.lines.join()).to.contain('other content for the bundle');
  });

  it('drops the claim of the first node if no record describes the bundle', async () => {
    const other = await makeBundle({ seed: 'other', layerSize: 100_000 });
    const wrong = await readFile(other.path);
    await other.remove();
    await lie((_, start, response, { method }) => {
      response.writeHead(200, { 'Content-Length': wrong.length });
      if (method === 'HEAD') response.end();
      else response.write(wrong.subarray(start, -3000), () => response.destroy());
    });
    announce('other', honest.origin);
    expect(await peersOf().fetch(digest, folder, makeContext())).to.equal('fetched');
    await expectFetched();
  });

  it('is not stopped by a full disk before it knows whether its own unfinished file is right', async () => {
    announce('other', honest.origin);
    await writeFile(partial(), Buffer.alloc(3 * bytes.length));
    expect(await peersOf().fetch(digest, folder, makeContext(), { outline })).to.equal('fetched');
    await expectFetched();
  });

  it('says that its disk is full only if a record, or each node, states a size that is too large', async () => {
    await lie(lies['a size that no disk has']);
    announce('other', honest.origin);
    const limits = { floor: 2 ** 60 };
    const failed = peersOf().fetch(digest, folder, makeContext(), { ...limits, outline });
    const error = await failureOf(failed, 'disk-full');
    expect(error.message).to.contain('of which 1024 PiB must stay free');
    await failureOf(peersOf().fetch(digest, folder, makeContext(), limits), 'disk-full');
    announce('middle', 'https://127.0.0.1:1');
    expect(await peersOf().fetch(digest, folder, makeContext(), limits)).to.equal('busy');
  });

  it('resumes from another node, and checks only changed parts of the file again', async () => {
    await lie(lies['the end of a response in the middle']);
    const peers = peersOf();
    expect(await peers.fetch(digest, folder, makeContext(), { outline })).to.equal('busy');
    const { size } = await stat(partial());
    expect(size).to.be.above(outline.head?.size ?? 0);
    await truncate(partial(), size - 1000);
    announce('other', honest.origin);
    expect(await peers.fetch(digest, folder, makeContext(), { outline })).to.equal('fetched');
    await expectFetched();
  });

  it('takes a tar of another program, which only the digest of the whole proves', async () => {
    const repacked = Buffer.from(bytes);
    // Another owner, as tar programs write it, and its checksum.
    repacked.write('0000001', 108, 'latin1');
    const sum = repacked.subarray(0, 512).reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
    repacked.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, makeContext());
    closing.push(() => server.close());
    const own = digestOf(repacked);
    const chunks = async function* (start: number, size: number) {
      yield await Promise.resolve(repacked.subarray(start, start + size));
    };
    server.offer({ size: repacked.length, chunks }, own);
    const progress = { name: 'other', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 5, bytes: 0 } as const;
    connected.server.put({ ...formatNodeReport({ bundle: 'x', progress, origin: server.origin, offers: own }) });
    for (const limits of [{}, { outline: { size: repacked.length } }]) {
      const place = await makeFolder();
      expect(await peersOf().fetch(own, place, makeContext(), limits)).to.equal('fetched');
      expect((await readFile(replicaPath(place, own))).equals(repacked)).to.equal(true);
      await removeFolder(place);
    }
  });
});

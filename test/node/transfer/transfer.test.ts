import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import type { BlobRecord } from '../../../lib/bundle/metadata/metadata.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Transfer, type RemoteServer, type WantedContent } from '../../../lib/node/transfer/transfer.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';
import { hasty } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { BundleServers, serverToken } from '../../support/content/bundleServers.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('Transfer', () => {
  let made: TestBundle;
  let bytes: Buffer;
  let digest: Digest;
  let folder: string;
  let path: string;
  let partial: string;
  let servers: BundleServers;

  before(async () => {
    made = await makeBundle({ layerSize: 200_000 });
    bytes = await readFile(made.path);
    digest = digestOf(bytes);
  });
  after(() => made.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'transfer-'));
    path = join(folder, 'bundle.tar');
    partial = `${path}.partial`;
    servers = new BundleServers();
  });
  afterEach(async () => {
    await servers[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  /** The bundle, from a server that the user named. */
  const named = (): WantedContent => ({ kind: 'bundle', digest, isAnyTar: true, isNamed: true });
  /** The bundle, from any server. */
  const unnamed = (): WantedContent => ({ kind: 'bundle', digest });
  const fetchFrom = async (
    url: URL,
    context: TestContext = makeContext(),
    { wanted = named(), ...server }: Partial<RemoteServer> & { wanted?: WantedContent; floor?: number } = {},
  ): Promise<void> => {
    await using transfer = await Transfer.open(wanted, path, context, { floor: server.floor });
    await transfer.receive({ url, token: serverToken, retry: hasty, ...server }, servers.connections, context);
  };
  const moved = ({ events }: TestContext): number => {
    return events.reduce((sum, event) => sum + (event.kind === 'bytes' ? event.bytes : 0), 0);
  };
  /** Starts a server that sends some bytes, and then no others. */
  const serveStart = (size: number, onSent?: () => void): Promise<URL> => {
    let sent = false;
    return servers.listen((request, response) => {
      if (request.method === 'HEAD') return response.writeHead(200, { 'Content-Length': bytes.length }).end();
      if (sent) return response.destroy();
      sent = true;
      response.writeHead(200, { 'Content-Length': bytes.length });
      return response.write(bytes.subarray(0, size), () => (onSent ? onSent() : response.destroy()));
    });
  };

  it('fetches a bundle that survives a power failure', async function () {
    // The fake disk reads open files through /proc.
    if (process.platform !== 'linux') this.skip();
    using disk = await ForgetfulDisk.open(folder);
    await fetchFrom(await servers.serve(made.path));
    expect(disk.failPower().get(basename(path))?.equals(bytes)).to.equal(true);
  });

  it('fetches a bundle over a longer file of an earlier run', async () => {
    await writeFile(partial, Buffer.concat([bytes, Buffer.from('more')]));
    await fetchFrom(await servers.serve(made.path));
    expect(await readFile(path)).to.deep.equal(bytes);
  });

  it('needs the token, and shows it in no message', async () => {
    const url = await servers.serve(made.path);
    for (const token of [undefined, 'another-token-0123456789']) {
      const error = await failureOf(fetchFrom(url, makeContext(), { token }), 'unauthorized');
      expect(error.settings).to.deep.equal(['tokenFile']);
      expect(JSON.stringify([error.message, error.hint])).not.to.contain(serverToken);
    }
  });

  it('resumes after lost connections', async () => {
    const { url, starts } = await servers.serveBadly(bytes, Math.ceil(bytes.length / 3));
    const context = makeContext();
    await fetchFrom(url, context);
    expect(await readFile(path)).to.deep.equal(bytes);
    expect(starts).to.have.length(3);
    expect(moved(context)).to.equal(bytes.length);
  });

  it('asks for nothing that the disk has no space for', async () => {
    const requests: (string | undefined)[] = [];
    let size = 2 ** 50;
    const url = await servers.listen(({ method }, response) => {
      requests.push(method);
      response.setHeader('Content-Length', size).end();
    });
    await failureOf(fetchFrom(url), 'disk-full');
    size = 1;
    await failureOf(fetchFrom(url, makeContext(), { floor: 2 ** 50 }), 'disk-full');
    expect(requests).to.deep.equal(['HEAD', 'HEAD']);
  });

  it('needs a server that states the size', async () => {
    const url = await servers.listen((_, response) =>
      response.writeHead(200, { 'Transfer-Encoding': 'chunked' }).end(),
    );
    expect((await failureOf(fetchFrom(url), 'server-error')).message).to.equal(
      `${url.host} did not send the size of the bundle`,
    );
  });

  it('resumes an earlier run, and restarts if it was of another bundle', async () => {
    const half = Math.floor(bytes.length / 2);
    const url = await servers.serve(made.path);
    await writeFile(partial, bytes.subarray(0, half));
    const context = makeContext();
    await fetchFrom(url, context);
    await rm(path);
    expect(moved(context)).to.equal(bytes.length - half);
    await writeFile(partial, Buffer.alloc(half, 'x'));
    const other = makeContext();
    await fetchFrom(url, other);
    expect(await readFile(path)).to.deep.equal(bytes);
    expect(other.lines.join()).to.match(/warn: .* is not part of the bundle/);
  });

  it('refuses another bundle, and gives it no final name', async () => {
    await using other = await makeBundle({ seed: 'other' });
    const error = await failureOf(fetchFrom(await servers.serve(other.path)), 'digest-mismatch');
    expect(error.message).to.contain('other content for the bundle').and.to.contain(digest);
    expect(existsSync(path)).to.equal(false);
  });

  it('keeps the bytes of a named sender that goes away, and of another sender only those of complete parts', async () => {
    const half = Math.floor(bytes.length / 2);
    const left = async (wanted: WantedContent): Promise<number> => {
      await rm(partial, { force: true });
      await failureOf(fetchFrom(await serveStart(half), makeContext(), { wanted, retry: { attempts: 1 } }));
      return (await stat(partial)).size;
    };
    expect(await left(named())).to.equal(half);
    expect(await left(unnamed())).to.be.within(1, half - 1);
    expect(await left({ kind: 'bundle', digest, outline: { size: bytes.length } })).to.equal(0);
  });

  it('keeps all bytes if it is interrupted', async () => {
    const half = Math.floor(bytes.length / 2);
    const context = makeContext(() => {
      if (moved(context) === half) context.interrupt();
    });
    const url = await serveStart(half, () => undefined);
    await failureOf(fetchFrom(url, context, { wanted: unnamed() }), 'interrupted');
    expect((await stat(partial)).size).to.equal(half);
  });

  it('tells bytes that agree only with the claim of a sender, and forgets them', async () => {
    const half = Math.floor(bytes.length / 2);
    await using transfer = await Transfer.open(unnamed(), path, makeContext());
    expect([transfer.isClaimed, transfer.hasClaims]).to.deep.equal([true, false]);
    const liar = await servers.listen(({ method }, response) => {
      if (method === 'HEAD') return response.writeHead(200, { 'Content-Length': 512 }).end();
      return response.destroy();
    });
    for (const url of [liar, await serveStart(half)]) {
      const server = { url, token: undefined, retry: { attempts: 1 } };
      await failureOf(transfer.receive(server, servers.connections, makeContext()));
    }
    expect(transfer.hasClaims).to.equal(true);
    await transfer.clear();
    expect([transfer.hasClaims, (await stat(partial)).size]).to.deep.equal([false, 0]);
    const url = await servers.serve(made.path);
    await transfer.receive({ url, token: serverToken }, servers.connections, makeContext());
    expect(await readFile(path)).to.deep.equal(bytes);
  });

  it('reads the bytes that a closed transfer has checked again only if they changed', async () => {
    await writeFile(partial, bytes.subarray(0, 1000));
    const wanted: WantedContent = { kind: 'bundle', digest, outline: { size: bytes.length } };
    const earlier = await Transfer.open(wanted, path, makeContext());
    await earlier[Symbol.asyncDispose]();
    // Reading ends at once.
    const context = makeContext();
    context.interrupt();
    await (await Transfer.open(wanted, path, context, { earlier }))[Symbol.asyncDispose]();
    await failureOf(Transfer.open(wanted, path, context), 'interrupted');
    const other: WantedContent = { kind: 'bundle', digest: digestOf('other'), outline: { size: bytes.length } };
    await failureOf(Transfer.open(other, path, context, { earlier }), 'interrupted');
    await writeFile(partial, bytes.subarray(0, 1001));
    await failureOf(Transfer.open(wanted, path, context, { earlier }), 'interrupted');
  });

  it('keeps a second transfer away from the same file', async () => {
    await using _first = await Transfer.open(named(), path, makeContext());
    await failureOf(Transfer.open(named(), path, makeContext()), 'busy');
  });

  it('writes to no link, and keeps no lock if it cannot begin', async () => {
    await writeFile(join(folder, 'other'), 'x');
    await symlink('other', partial);
    await failureOf(Transfer.open(named(), path, makeContext()), 'not-writable');
    await failureOf(Transfer.open(named(), join(folder, 'other/below.tar'), makeContext()), 'not-writable');
    await rm(partial);
    await using _transfer = await Transfer.open(named(), path, makeContext());
    expect(await readFile(join(folder, 'other'), 'utf8')).to.equal('x');
  });

  it('fetches the base of a delta blob by blob: resumes behind the last right one, and refuses a wrong one', async () => {
    const cuts = [0, 100_000, 350_000, bytes.length];
    const parts = cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
    const blobs = parts.map((part) => ({ digest: digestOf(part), size: part.length }));
    const { url } = await servers.serveBadly(bytes, bytes.length);
    await writeFile(partial, Buffer.concat([bytes.subarray(0, 110_000), Buffer.alloc(50_000)]));
    const context = makeContext();
    const fetchBase = (blobs: readonly BlobRecord[]): Promise<void> =>
      fetchFrom(url, context, { wanted: { kind: 'base', digest, blobs } });
    await fetchBase(blobs);
    // The wrong blob ends the first response.
    expect(moved(context)).to.be.within(bytes.length - 100_000, 2 * bytes.length - 260_001);
    expect(await readFile(path)).to.deep.equal(bytes);
    await rm(path);
    const wrong = blobs.map((blob, index) => (index === 1 ? { ...blob, digest } : blob));
    await failureOf(fetchBase(wrong), 'digest-mismatch');
    expect([existsSync(path), (await stat(partial)).size]).to.deep.equal([false, 100_000]);
    await failureOf(fetchBase(blobs.slice(1)), 'size-mismatch');
  });
});

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import type { BlobRecord } from '../../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { openRemoteTar } from '../../../lib/bundle/open/openTar.ts';
import { serveBundle } from '../../../lib/bundle/serve.ts';
import type { ArchiveFile } from '../../../lib/content/archive/archive.ts';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { openBaseBlobs } from '../../../lib/node/transfer/baseBlobs.ts';
import {
  baseBlobsPath,
  checkBundleDigest,
  checkWholeDigest,
  fetchBundle,
  hashBundle,
} from '../../../lib/node/transfer/replica.ts';
import { Transfer } from '../../../lib/node/transfer/transfer.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const program = executableOf('oc-adm_upgrade_bundle');
const token = '0123456789abcdef0123';

describe('fetchBundle', () => {
  let made: TestBundle;
  let bytes: Buffer;
  let digest: Digest;
  let folder: string;
  let connections: Connections;
  let cleanups: (() => Promise<unknown>)[] = [];

  before(async () => {
    made = await makeBundle({ layerSize: 200_000 });
    bytes = await readFile(made.path);
    digest = digestOf(bytes);
  });
  after(() => made.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'replica-'));
    connections = new Connections({ certificates: new Certificates({ insecure: false, folders: [] }) });
  });
  afterEach(async () => {
    for (const clean of cleanups) await clean();
    cleanups = [];
    connections.close();
    await rm(folder, { recursive: true });
  });

  /** Starts the server of the `serve` command. */
  const serve = async (path = made.path): Promise<URL> => {
    const context = makeContext();
    const bundle = await openBundle(path, context);
    const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0, token }, context);
    cleanups.push(
      () => server.close(),
      () => bundle[Symbol.asyncDispose](),
    );
    return new URL(server.url);
  };
  /**
   * Starts another server of the tar. It supports ranges, and ends each response after `most` bytes, or in the middle
   * until `gate` opens.
   */
  const serveBadly = async (most: number, gate?: Promise<unknown>): Promise<{ url: URL; starts: number[] }> => {
    const starts: number[] = [];
    const server: Server = createServer((request, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
      response.writeHead(start > 0 ? 206 : 200, {
        'Content-Length': bytes.length - start,
        ...(start > 0 && {
          'Content-Range': `bytes ${start}-${bytes.length - 1}/${bytes.length}`,
        }),
      });
      if (request.method === 'HEAD') return response.end();
      starts.push(start);
      const end = Math.min(start + most, bytes.length);
      response.write(bytes.subarray(start, end), () => {
        if (gate) void gate.then(() => response.end(bytes.subarray(end)));
        else response.destroy();
      });
      return undefined;
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanups.push(async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/bundle.tar`), starts };
  };
  const fetchFrom = (url: URL, context: TestContext = makeContext(), secret: string | undefined = token) => {
    return fetchBundle({ url, token: secret, digest }, folder, connections, context);
  };
  const moved = ({ events }: TestContext): number => {
    return events.reduce((sum, event) => sum + (event.kind === 'bytes' ? event.bytes : 0), 0);
  };

  it('fetches a bundle that other nodes can fetch from it', async () => {
    const path = await fetchFrom(await serve());
    expect(await readFile(path)).to.deep.equal(bytes);
    const second = join(folder, 'second');
    const again = await fetchBundle({ url: await serve(path), token, digest }, second, connections, makeContext());
    expect(await readFile(again)).to.deep.equal(bytes);
    expect(basename(again)).to.match(/^bundle-[0-9a-f]{12}\.tar$/);
  });

  it('fetches a bundle that survives a power failure', async function () {
    // The fake disk reads open files through /proc.
    if (process.platform !== 'linux') this.skip();
    using disk = await ForgetfulDisk.open(folder);
    const path = await fetchFrom(await serve());
    expect(disk.failPower().get(basename(path))?.equals(bytes)).to.equal(true);
  });

  it('fetches a bundle over a longer file of an earlier run', async () => {
    const path = await fetchFrom(await serve());
    await rm(path);
    await writeFile(`${path}.partial`, Buffer.concat([bytes, Buffer.from('more')]));
    expect(await readFile(await fetchFrom(await serve()))).to.deep.equal(bytes);
  });

  it('sends no request if the bundle exists, and detects a corrupt one', async () => {
    const path = await fetchFrom(await serve());
    const context = makeContext();
    expect(await fetchFrom(new URL('http://127.0.0.1:1'), context)).to.equal(path);
    await truncate(path, 1000);
    await failureOf(fetchFrom(new URL('http://127.0.0.1:1'), context), 'digest-mismatch');
  });

  it('needs the token, and shows it in no message', async () => {
    const url = await serve();
    for (const wrong of [undefined, 'another-token-0123456789']) {
      const source = { url, token: wrong, digest };
      const error = await failureOf(fetchBundle(source, folder, connections, makeContext()), 'unauthorized');
      expect(error.settings).to.deep.equal(['tokenFile']);
      expect(JSON.stringify([error.message, error.hint])).not.to.contain(token);
    }
  });

  it('resumes after lost connections', async () => {
    const { url, starts } = await serveBadly(Math.ceil(bytes.length / 3));
    const context = makeContext();
    expect(await readFile(await fetchFrom(url, context))).to.deep.equal(bytes);
    expect(starts).to.have.length(3);
    expect(moved(context)).to.equal(bytes.length);
  });

  it('asks for nothing that the disk has no space for', async () => {
    const server = createServer((_, response) => response.setHeader('Content-Length', 2 ** 50).end());
    const requests: (string | undefined)[] = [];
    server.on('request', ({ method }) => requests.push(method)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanups.push(() => new Promise((resolve) => server.close(resolve)));
    const { port } = server.address() as AddressInfo;
    await failureOf(fetchFrom(new URL(`http://127.0.0.1:${port}/bundle.tar`)), 'disk-full');
    expect(requests).to.deep.equal(['HEAD']);
  });

  it('resumes an earlier run, and restarts if it was of another bundle', async () => {
    const partial = join(folder, `bundle-${digest.slice(7, 19)}.tar.partial`);
    const half = Math.floor(bytes.length / 2);
    const url = await serve();
    await writeFile(partial, bytes.subarray(0, half));
    const context = makeContext();
    await rm(await fetchFrom(url, context));
    expect(moved(context)).to.equal(bytes.length - half);
    await writeFile(partial, Buffer.alloc(half, 'x'));
    const other = makeContext();
    expect(await readFile(await fetchFrom(url, other))).to.deep.equal(bytes);
    expect(other.lines.join()).to.match(/warn: .* is not part of the bundle/);
  });

  it('refuses another bundle, and gives it no final name', async () => {
    const other = await makeBundle({ seed: 'other' });
    cleanups.push(() => other.remove());
    const error = await failureOf(fetchFrom(await serve(other.path)), 'digest-mismatch');
    expect(error.message).to.contain('other content for the bundle').and.to.contain(digest);
    expect(existsSync(join(folder, `bundle-${digest.slice(7, 19)}.tar`))).to.equal(false);
  });

  it('fetches the base of a delta blob by blob: resumes behind the last right one, and refuses a wrong one', async () => {
    const cuts = [0, 100_000, 350_000, bytes.length];
    const parts = cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
    const blobs = parts.map((part) => ({ digest: digestOf(part), size: part.length }));
    const { url } = await serveBadly(bytes.length);
    const partial = `${baseBlobsPath(folder, digest)}.partial`;
    await writeFile(partial, Buffer.concat([bytes.subarray(0, 110_000), Buffer.alloc(50_000)]));
    const context = makeContext();
    const path = baseBlobsPath(folder, digest);
    const fetchBase = async (blobs: readonly BlobRecord[]): Promise<void> => {
      await using transfer = await Transfer.open({ kind: 'base', digest, blobs }, path, context);
      await transfer.receive({ url, token: undefined }, connections, context);
    };
    await fetchBase(blobs);
    // The wrong blob ends the first response.
    expect(moved(context)).to.be.within(bytes.length - 100_000, 2 * bytes.length - 260_001);
    const base = await openBaseBlobs(path, blobs, context);
    cleanups.push(async () => base?.close());
    for (const [index, blob] of blobs.entries()) {
      const read = await buffer((await base?.fetch({ ...blob, mediaType: '' })) ?? Readable.from([]));
      expect(read.equals(parts[index] ?? Buffer.alloc(0))).to.equal(true);
    }
    await rm(path);
    const wrong = blobs.map((blob, index) => (index === 1 ? { ...blob, digest } : blob));
    await failureOf(fetchBase(wrong), 'digest-mismatch');
    expect([existsSync(path), (await stat(partial)).size]).to.deep.equal([false, 100_000]);
    await failureOf(fetchBase(blobs.slice(1)), 'size-mismatch');
  });

  it('checks the digest of a tar on a device, and of every byte of a file or of volumes', async () => {
    await checkWholeDigest(made.path, digest, makeContext());
    const longer = Buffer.concat([bytes, Buffer.alloc(100_000)]);
    const file = join(folder, 'longer.tar');
    await writeFile(file, longer);
    const device: ArchiveFile = {
      size: Infinity,
      read: (buffer, offset, length, position) =>
        Promise.resolve({ bytesRead: longer.copy(buffer, offset, position, position + length), buffer }),
      pieces: () => [{ path: '/dev/sdz' }],
      close: () => Promise.resolve(),
    };
    await using onDevice = await openRemoteTar('/dev/sdz', device, makeContext());
    await checkBundleDigest(onDevice, digest, makeContext());
    const split = await makeBundle({ volumeSize: 40_000 });
    cleanups.push(() => split.remove());
    const whole = split.result.digest ?? digestOf('');
    for (const [path, wanted] of [
      [file, digestOf(longer)],
      [split.path, whole],
    ] as const) {
      await using bundle = await openBundle(path, makeContext());
      await checkBundleDigest(bundle, wanted, makeContext());
      await failureOf(checkBundleDigest(bundle, digestOf('other'), makeContext()), 'digest-mismatch');
      let read = 0;
      await hashBundle(bundle, makeContext(), (bytes) => (read += bytes));
      expect(read).to.equal(path === file ? longer.length : bundle.size);
    }
    const directory = await openBundle(await made.unpack(), makeContext());
    await failureOf(checkBundleDigest(directory, digest, makeContext()), 'unsupported');
    await directory[Symbol.asyncDispose]();
    const error = await failureOf(checkWholeDigest(made.path, digestOf('other'), makeContext()), 'digest-mismatch');
    expect(error.message).to.contain(digest);
  });

  describe('in two processes', function () {
    requirePeer(this, 'skopeo');
    before(async function () {
      await requireRoot(this);
    });

    const partialOf = (node: string): string => join(folder, node, `bundle-${digest.slice(7, 19)}.tar.partial`);
    /** Waits until a node has half of the bundle. */
    const untilHalf = async (node: string): Promise<void> => {
      await until(async () => ((await stat(partialOf(node)).catch(() => undefined))?.size ?? 0) >= bytes.length / 2);
    };
    /** Starts the load of the release image on a node. */
    const startLoad = async (node: string, url: URL) => {
      const tokenFile = join(folder, 'token');
      await writeFile(tokenFile, `${token}\n`);
      const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
      const env = { ...process.env, ...(await storageIn(join(folder, node))) };
      const source = [url.href, `--download-dir=${folder}/${node}`, `--digest=${digest}`, `--token-file=${tokenFile}`];
      const child = spawn(process.execPath, [program, 'load', ...source, ...trust, '--images=release'], {
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
      return { child, ended: once(child, 'close').then(([code]) => ({ code: code as number | null, output })) };
    };

    it('resumes after one is killed, while the other loads its bundle', async () => {
      const gate = Promise.withResolvers<void>();
      const { url, starts } = await serveBadly(Math.ceil(bytes.length / 2), gate.promise);
      const [first, second] = [await startLoad('a', url), await startLoad('b', url)];
      await Promise.all([untilHalf('a'), untilHalf('b')]);
      first.child.kill('SIGKILL');
      await first.ended;
      gate.resolve();
      const { code, output } = await second.ended;
      expect(code, output).to.equal(0);
      expect(output).to.contain('1 loaded');
      const again = await (await startLoad('a', url)).ended;
      expect(again.code, again.output).to.equal(0);
      expect(starts.at(-1)).to.be.at.least(bytes.length / 2);
      expect(await readFile(partialOf('a').replace('.partial', ''))).to.deep.equal(bytes);
    });
  });
});

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { openRemoteTar } from '../../../lib/bundle/open/openTar.ts';
import type { ArchiveFile } from '../../../lib/content/archive/archive.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { checkBundleDigest, checkWholeDigest, fetchBundle, hashBundle } from '../../../lib/node/transfer/replica.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { BundleServers, serverToken as token } from '../../support/content/bundleServers.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const program = executableOf('oc-adm_upgrade_bundle');

describe('fetchBundle', () => {
  let made: TestBundle;
  let bytes: Buffer;
  let digest: Digest;
  let folder: string;
  let servers: BundleServers;

  before(async () => {
    made = await makeBundle({ layerSize: 200_000 });
    bytes = await readFile(made.path);
    digest = digestOf(bytes);
  });
  after(() => made.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'replica-'));
    servers = new BundleServers();
  });
  afterEach(async () => {
    await servers[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  const fetchFrom = (url: URL, to = folder): Promise<string> =>
    fetchBundle({ url, token, digest }, to, servers.connections, makeContext());

  it('fetches a bundle that other nodes can fetch from it', async () => {
    const path = await fetchFrom(await servers.serve(made.path));
    expect(await readFile(path)).to.deep.equal(bytes);
    const again = await fetchFrom(await servers.serve(path), join(folder, 'second'));
    expect(await readFile(again)).to.deep.equal(bytes);
    expect(basename(again)).to.match(/^bundle-[0-9a-f]{12}\.tar$/);
  });

  it('sends no request if the bundle exists, and detects a corrupt one', async () => {
    const path = await fetchFrom(await servers.serve(made.path));
    expect(await fetchFrom(new URL('http://127.0.0.1:1'))).to.equal(path);
    await truncate(path, 1000);
    await failureOf(fetchFrom(new URL('http://127.0.0.1:1')), 'digest-mismatch');
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
    await using split = await makeBundle({ volumeSize: 40_000 });
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
      const { url, starts } = await servers.serveBadly(bytes, Math.ceil(bytes.length / 2), gate.promise);
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

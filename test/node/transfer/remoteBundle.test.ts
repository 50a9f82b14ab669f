import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { checkSigned } from '../../../lib/bundle/open/signedBundle.ts';
import { openRemoteBundle } from '../../../lib/node/transfer/replica.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { BundleServers, serverToken } from '../../support/content/bundleServers.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { acceptUnsigned } from '../../support/release/trust.ts';

describe('openRemoteBundle', () => {
  let made: TestBundle;
  let servers: BundleServers;
  let trust: VerifyTrust;

  before(async () => {
    made = await makeBundle({ layerSize: 200_000 });
    trust = { ...acceptUnsigned, allowUnsigned: false, keyrings: [made.keyFile], fingerprints: [made.key.fingerprint] };
  });
  after(() => made.remove());
  beforeEach(() => {
    servers = new BundleServers();
  });
  afterEach(() => servers[Symbol.asyncDispose]());

  /** Starts another server. `sent` counts the bytes of its responses. */
  const serveFile = async (content: () => Buffer, supportsRanges = true): Promise<{ url: URL; sent: () => number }> => {
    let bytes = 0;
    const url = await servers.listen((request, response) => {
      const whole = content();
      const range = supportsRanges ? (request.headers.range ?? '') : '';
      const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range) ?? [];
      const part = first === undefined ? whole : whole.subarray(Number(first), Number(last) + 1);
      if (first !== undefined) response.setHeader('Content-Range', `bytes ${first}-${last}/${whole.length}`);
      bytes += part.length;
      response.writeHead(first === undefined ? 200 : 206).end(part);
    });
    return { url, sent: () => bytes };
  };
  const open = async (url: URL, token = serverToken) => {
    const bundle = await openRemoteBundle({ url, token, allowUnsigned: false }, servers.connections, makeContext());
    servers.defer(() => bundle[Symbol.asyncDispose]());
    return bundle;
  };

  it('reads the requested parts, and verifies the release', async () => {
    const [remote, local] = [await open(await servers.serve(made.path)), await openBundle(made.path, makeContext())];
    servers.defer(() => local[Symbol.asyncDispose]());
    expect(remote.metadata).to.deep.equal(local.metadata);
    expect(remote.files).to.deep.equal(local.files);
    expect(remote.isRepacked).to.equal(false);
    const { release } = await checkSigned(remote, trust, makeContext());
    expect(release.digest).to.equal(made.release.digest);
    for (const { digest, size } of local.metadata.blobs) {
      const blob = { mediaType: '', digest, size };
      const [ours, theirs] = [await local.content.fetch(blob), await remote.content.fetch(blob)];
      expect((await buffer(theirs)).equals(await buffer(ours))).to.equal(true);
    }
  });

  it('fetches the headers and small files only, before a blob is read', async () => {
    const bytes = await readFile(made.path);
    const { url, sent } = await serveFile(() => bytes);
    const bundle = await open(url);
    await checkSigned(bundle, trust, makeContext());
    expect(sent()).to.be.below(bytes.length / 2);
  });

  it('needs ranges, and the digest for a server without', async () => {
    const bytes = await readFile(made.path);
    const error = await failureOf(open((await serveFile(() => bytes, false)).url), 'unsupported');
    expect(error.settings).to.deep.equal(['digest']);
  });

  it('needs the token', async () => {
    const error = await failureOf(open(await servers.serve(made.path), 'another-token-0123456789'), 'unauthorized');
    expect(error.settings).to.deep.equal(['tokenFile']);
  });

  it('refuses another bundle in the middle of a run, and a corrupt blob', async () => {
    let bytes = await readFile(made.path);
    const { url } = await serveFile(() => bytes);
    const bundle = await open(url);
    const [blob] = bundle.metadata.blobs.toSorted((a, b) => b.size - a.size);
    if (!blob) throw new Error('the bundle has no blob');
    const read = async (): Promise<Buffer> => buffer(await bundle.content.fetch({ ...blob, mediaType: '' }));
    const start = bundle.files.findIndex(({ path }) => path.endsWith(blob.digest));
    expect(start).to.be.above(0);
    bytes = Buffer.from(bytes.map((byte) => byte ^ 1));
    await failureOf(read(), 'digest-mismatch');
    bytes = bytes.subarray(0, -512);
    await failureOf(read(), 'size-mismatch');
  });

  it('refuses a bundle whose signature does not prove all of it', async () => {
    await using other = await makeBundle({ extraImages: [extraImage()] });
    for (const [path, allowUnsigned] of [
      [other.path, false],
      [made.path, true],
    ] as const) {
      const bytes = await readFile(path);
      const { url } = await serveFile(() => bytes);
      const source = { url, token: undefined, allowUnsigned };
      const error = await failureOf(openRemoteBundle(source, servers.connections, makeContext()), 'unsigned');
      expect([error.message, error.settings]).to.deep.equal([
        `${url.href} ` +
          `${allowUnsigned ? 'may be unsigned' : 'has 1 image not covered by the release signature'}, so only ` +
          'its digest proves the content',
        ['digest'],
      ]);
    }
  });
});

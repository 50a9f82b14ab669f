import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { Tokens } from '../../../lib/content/registry/auth/tokens.ts';
import { Registry } from '../../../lib/content/registry/registry.ts';
import { Transport } from '../../../lib/content/registry/transport.ts';
import type { UploadOptions } from '../../../lib/content/registry/upload.ts';
import { PluginError } from '../../../lib/errors.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const bytes = randomBytes(3_000_000);
const blob: Descriptor = { mediaType: 'application/octet-stream', digest: digestOf(bytes), size: bytes.length };

describe('BlobUpload', () => {
  const context = makeContext();
  let server: TestRegistry;
  let connections: Connections;
  let opened: number;
  beforeEach(async () => {
    opened = 0;
    server = await startRegistry();
    connections = new Connections({ certificates: new Certificates({ insecure: true, folders: [] }) });
  });
  afterEach(async () => {
    connections.close();
    await server.stop();
  });

  /** Pushes a blob, in slices as from a file. */
  const push = async (options?: UploadOptions, content = bytes, pushed = blob): Promise<void> => {
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const tokens = new Tokens(credentials, connections, context, { insecure: true });
    const transport = new Transport(connections, tokens, context, { insecure: true, baseDelay: 1 });
    await new Registry({ registry: server.host, repository: 'a/b' }, transport, context, options).push(pushed, () => {
      opened += 1;
      const slices = Array.from({ length: 30 }, (_, index) => content.subarray(index * 100_000, (index + 1) * 100_000));
      return Promise.resolve(Readable.from(slices));
    });
  };
  const sent = (method: string): number => server.requests.filter((request) => request.method === method).length;
  const expectStored = (): void => {
    expect(bytes.equals(server.content.blobs.get(blob.digest) as Buffer)).to.equal(true);
    expect(server.uploads.count, 'uploads left behind').to.equal(0);
  };

  it('sends a blob whole, in one request', async () => {
    await push();
    expectStored();
    expect([sent('POST'), sent('PUT'), sent('PATCH'), opened]).to.deep.equal([1, 1, 0, 1]);
  });

  describe('of a small blob', () => {
    const content = Buffer.from('a configuration');
    const config: Descriptor = { ...blob, digest: digestOf(content), size: content.length };
    const pushTwice = async (): Promise<void> => {
      const singlePosts = new Map<string, boolean>();
      for (let index = 0; index < 2; index += 1) await push({ singlePosts }, content, config);
      expect(content.equals(server.content.blobs.get(config.digest) as Buffer)).to.equal(true);
    };

    it('is one request where the registry takes it', async () => {
      await pushTwice();
      expect([sent('POST'), sent('PUT'), server.uploads.count]).to.deep.equal([2, 0, 0]);
    });

    it('needs no second request to begin where the registry begins an upload', async () => {
      const headers = { location: '/v2/a/b/blobs/uploads/1', range: '0-0' };
      server.fault(/^POST .*digest=/, { answer: { status: 202, headers } });
      const whole = server.fault(/^PUT .*uploads\/1/, { answer: { status: 201 } });
      await push({ singlePosts: new Map() }, content, config);
      expect([sent('POST'), whole.hits, sent('DELETE')]).to.deep.equal([1, 1, 0]);
    });

    for (const [what, answer] of [
      ['refuses it', { status: 405 }],
      ['fails', { status: 503 }],
      ['keeps part of it', { status: 202, headers: { location: '/v2/a/b/blobs/uploads/1', range: '0-7' } }],
      ['accepts it without its digest', { status: 201 }],
    ] as const)
      it(`is tried once where the registry ${what}`, async () => {
        server.fault(/^POST .*digest=/, { answer });
        await pushTwice();
        expect([sent('POST'), sent('PUT')]).to.deep.equal([3, 2]);
      });
  });

  it('restarts a whole blob if its connection drops', async () => {
    server.fault(/^PUT/, { resetUploadAfter: 1_000_000 }, { times: 2 });
    await push();
    expectStored();
    expect(opened).to.equal(3);
  });

  it('uploads to the address of the registry if its answers name another one', async () => {
    const location = 'http://registry.internal:5000/v2/a/b/blobs/uploads/1';
    server.fault(/^POST/, { answer: { status: 202, headers: { location } } });
    server.fault(/^PUT/, { answer: { status: 201 } });
    await push();
    expect(server.requests.find(({ method }) => method === 'PUT')?.path).to.equal('/v2/a/b/blobs/uploads/1');
    expect(context.lines.join()).to.contain('names the address http://registry.internal:5000 for its uploads');
  });

  it('tries an upload again after 503 and 429', async () => {
    server.fault(/^POST/, { answer: { status: 503 } }, { times: 1 });
    server.fault(/^PUT/, { answer: { status: 429 } }, { times: 1 });
    await push();
    expectStored();
  });

  for (const status of [400, 404, 405, 413, 416]) {
    it(`sends chunks if a whole blob is refused with ${status}`, async () => {
      server.fault(/^PUT/, { answer: { status } }, { times: 1 });
      await push({ chunkSize: 1_100_000 });
      expectStored();
      expect(sent('PATCH')).to.equal(3);
    });
  }

  it('makes chunks smaller if they are refused as too large', async () => {
    server.fault(/^(PUT|PATCH)/, { maxBody: 1_048_576 });
    await push({ chunkSize: 8_000_000 });
    expectStored();
  });

  it('makes chunks as large as the registry wants them at least', async () => {
    server.fault(/^POST/, { headers: { 'oci-chunk-min-length': '2000000' } });
    await push({ chunked: true, chunkSize: 500_000 });
    expectStored();
    expect(sent('PATCH')).to.equal(2);
  });

  it('resumes with the chunk at which a connection dropped', async () => {
    server.fault(/^PATCH/, { resetUploadAfter: 400_000 }, { times: 1, after: 1 });
    await push({ chunked: true, chunkSize: 1_000_000 });
    expectStored();
    expect([sent('POST'), opened]).to.deep.equal([1, 2]);
    const total = server.requests.reduce(
      (sum, { method, bytesReceived }) => sum + (method === 'PATCH' ? bytesReceived : 0),
      0,
    );
    expect(total).to.be.below(bytes.length + 500_000);
  });

  it('does not count failures before a chunk that arrived', async () => {
    let chunks = 0;
    server.fault(({ method }) => method === 'PATCH' && (chunks += 1) % 2 === 0, { answer: { status: 503 } });
    await push({ chunked: true, chunkSize: 300_000 });
    expectStored();
    // More of them than the attempts for one chunk.
    expect(chunks - 10).to.be.above(6);
  });

  it('requests the offset if a registry reports a chunk out of order', async () => {
    server.fault(/^PATCH/, { answer: { status: 416 } }, { times: 1, after: 1 });
    await push({ chunked: true, chunkSize: 1_000_000 });
    expectStored();
    expect(sent('GET')).to.equal(1);
  });

  it('resumes at the offset of Quay, which is behind the last byte', async () => {
    server.fault(/^PATCH/, { answer: { status: 503 } }, { times: 1, after: 1 });
    server.fault(/^GET/, { headers: { range: 'bytes=0-1000000' } });
    await push({ chunked: true, chunkSize: 1_000_000 });
    expectStored();
    expect(sent('POST')).to.equal(1);
  });

  it('restarts if the registry has forgotten the upload', async () => {
    server.fault(/^PATCH/, { noAnswer: 'reset' }, { times: 1, after: 1 });
    server.fault(/^GET/, { answer: { status: 404 } });
    await push({ chunked: true, chunkSize: 1_000_000 });
    expectStored();
    expect(sent('POST')).to.equal(2);
  });

  it('gives up on a registry that takes every chunk and forgets the upload at its end', async () => {
    server.fault(/^PUT/, { answer: { status: 500 } });
    server.fault(/^GET/, { answer: { status: 404 } });
    await failureOf(push({ chunked: true, chunkSize: 1_000_000 }), 'server-error');
    expect(sent('PUT')).to.equal(6);
  });

  it('goes over to chunks when connections do not hold for a whole blob', async () => {
    server.fault(/^PUT .*digest/, { resetUploadAfter: 1_000_000 }, { times: 1 });
    await push({ chunkSize: 1_500_000 });
    expectStored();
    expect(sent('PATCH')).to.equal(2);
  });

  it('sends chunks of bytes that are verified before they count', async () => {
    const corrupt = Buffer.from(bytes);
    corrupt.writeUInt8(corrupt.readUInt8(2_000_000) ^ 1, 2_000_000);
    for (const chunked of [true, false]) {
      await failureOf(push({ chunked, chunkSize: 1_000_000 }, corrupt), 'digest-mismatch');
      expect(server.content.blobs.size).to.equal(0);
      expect(server.uploads.count).to.equal(0);
    }
    await failureOf(push({ chunked: true }, bytes.subarray(0, 2_000_000)), 'size-mismatch');
  });

  it('does not log in at the next place of an upload that is of another host', async () => {
    const other = await startRegistry();
    try {
      const realm = `Bearer realm="${other.url}/token",service="s"`;
      other.fault(/./, { answer: { status: 401, headers: { 'www-authenticate': realm } } });
      server.fault(/^POST/, {
        answer: { status: 202, headers: { location: `${other.url.replace('127.0.0.1', 'localhost')}/elsewhere` } },
      });
      await failureOf(push());
      expect(new Set(other.requests.map(({ path }) => path))).to.deep.equal(new Set(['/elsewhere']));
      expect(other.requests.every(({ headers }) => headers.authorization === undefined)).to.equal(true);
    } finally {
      await other.stop();
    }
  });

  it('does not retry an upload whose source cannot be read', async () => {
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const tokens = new Tokens(credentials, connections, context, { insecure: true });
    const transport = new Transport(connections, tokens, context, { insecure: true, baseDelay: 1 });
    const registry = new Registry({ registry: server.host, repository: 'a/b' }, transport, context);
    const error = new PluginError('unreachable', 'the source is gone');
    const failing = registry.push(blob, () => {
      opened += 1;
      return Promise.reject(error);
    });
    expect(await failing.catch((caught: unknown) => caught)).to.equal(error);
    expect(opened).to.equal(1);
    expect(server.uploads.count).to.equal(0);
  });

  it('copies within one registry, however few requests it allows at a time', async () => {
    connections = new Connections({
      certificates: new Certificates({ insecure: true, folders: [] }),
      maxPerRegistry: 2,
    });
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const tokens = new Tokens(credentials, connections, context, { insecure: true });
    const transport = new Transport(connections, tokens, context, { insecure: true, baseDelay: 1 });
    const [from, to] = ['from', 'to'].map(
      (repository) => new Registry({ registry: server.host, repository }, transport, context),
    );
    const blobs = Array.from({ length: 8 }, () => randomBytes(500_000)).map((content) => {
      server.content.blobs.set(digestOf(content), content);
      return { ...blob, digest: digestOf(content), size: content.length };
    });
    if (!from || !to) throw new Error('no registries');
    await Promise.all(blobs.map((one) => to.push(one, () => from.fetch(one))));
    expect(server.peakActive).to.be.below(3);
  });
});

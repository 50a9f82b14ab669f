import fs from 'node:fs/promises';
import http, { type IncomingHttpHeaders } from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { emptyContent, generatedBody } from '../registry/content.ts';
import { startRegistry } from '../registry/registry.ts';
import { startSignatureServer, type SignatureServer } from '../registry/signatureServer.ts';
import { startContentHost } from './contentHost.ts';

interface Outcome {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** The code of the error that ended the body early. */
  error?: string;
}

/** Sends one request on its own connection, with node:http only. Ends early after `enough` bytes. */
async function get(
  url: string,
  {
    method = 'GET',
    headers = {},
    body = '',
    enough = Infinity,
  }: {
    method?: string;
    headers?: Record<string, string>;
    body?: string;
    enough?: number;
  } = {},
): Promise<Outcome> {
  return await new Promise((resolve, reject) => {
    let answered = false;
    const request = http.request(url, { method, headers, agent: false }, (response) => {
      answered = true;
      const chunks: Buffer[] = [];
      let length = 0;
      const end = (error?: Error & { code?: string }): void => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks),
          ...(error && { error: error.code ?? error.message }),
        });
      };
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        length += chunk.length;
        if (length < enough) return;
        end();
        request.destroy();
      });
      response.on('end', () => {
        end();
      });
      response.on('error', end);
    });
    request.on('error', (error) => {
      if (!answered) reject(error);
    });
    request.end(body);
  });
}

describe('FaultyServer', () => {
  const content = Buffer.from('0123456789'.repeat(100_000));
  let server: SignatureServer;
  let url: string;

  beforeEach(async () => {
    server = await startSignatureServer(new Map([['/file', content]]));
    url = `${server.url}/file`;
  });
  afterEach(async () => {
    await server.stop();
  });

  it('answers as planned, as often as planned', async () => {
    const fault = server.fault(
      /^GET .*file/,
      { answer: { status: 429, headers: { 'retry-after': '1' }, body: 'slow' } },
      { times: 1, after: 1 },
    );
    const answers = [await get(url), await get(url), await get(url)];
    expect(answers.map(({ status }) => status)).to.deep.equal([200, 429, 200]);
    expect(answers[1]?.headers['retry-after']).to.equal('1');
    expect(answers[1]?.body.toString()).to.equal('slow');
    expect(fault.hits).to.equal(1);
  });

  it('refuses HEAD alone, until the faults are cleared', async () => {
    server.fault((request) => request.method === 'HEAD', { answer: { status: 405 } });
    expect((await get(url, { method: 'HEAD' })).status).to.equal(405);
    expect((await get(url)).status).to.equal(200);
    server.clearFaults();
    expect((await get(url, { method: 'HEAD' })).headers['content-length']).to.equal(String(content.length));
  });

  it('resets the connection after some bytes', async () => {
    server.fault(/./, { cut: { after: 1000, how: 'reset' } });
    const { headers, body, error } = await get(url);
    expect(headers['content-length']).to.equal(String(content.length));
    expect(body).to.deep.equal(content.subarray(0, 1000));
    expect(error).to.equal('ECONNRESET');
    expect(server.requests[0]?.bytesSent).to.equal(1000);
  });

  it('ends the connection after some bytes', async () => {
    server.fault(/./, { cut: { after: 300_000, how: 'end' } });
    const { body, error } = await get(url);
    expect(body.length).to.equal(300_000);
    expect(error).to.equal('ECONNRESET');
  });

  it('falls silent after some bytes', async () => {
    server.fault(/./, { cut: { after: 10, how: 'stall' } });
    const { body } = await get(url, { enough: 10 });
    expect(body.toString()).to.equal('0123456789');
  });

  it('holds a request without a limit, and releases it when the server stops', async () => {
    server.fault(/./, { noAnswer: 'hold' });
    const held = get(url).catch((error: unknown) => (error as { code: string }).code);
    while (server.active === 0) await new Promise(setImmediate);
    await server.stop();
    expect(await held).to.equal('ECONNRESET');
    server = await startSignatureServer();
  });

  it('resets the connection instead of answering', async () => {
    server.fault(/./, { noAnswer: 'reset' });
    expect(await get(url).catch((error: unknown) => (error as { code: string }).code)).to.equal('ECONNRESET');
  });

  it('lies about the length, both ways', async () => {
    server.fault(/./, { lengthOff: -10 }, { times: 1 });
    const short = await get(url);
    expect(short.headers['content-length']).to.equal(String(content.length - 10));
    expect(short.body.length).to.equal(content.length - 10);
    server.fault(/./, { lengthOff: 10 });
    const long = await get(url);
    expect(long.headers['content-length']).to.equal(String(content.length + 10));
    expect(long.body).to.deep.equal(content);
    expect(long.error).to.equal('ECONNRESET');
  });

  it('changes one byte, the same one in a range, and never the content itself', async () => {
    server.fault(/./, { flipByte: 300_001 });
    const { body } = await get(url);
    expect(body[300_001]).to.equal('1'.charCodeAt(0) ^ 0xff);
    body[300_001] = '1'.charCodeAt(0);
    expect(body).to.deep.equal(content);
    const ranged = await get(url, { headers: { range: 'bytes=300000-300002' } });
    expect([...ranged.body]).to.deep.equal([0x30, 0x31 ^ 0xff, 0x32]);
    server.clearFaults();
    expect((await get(url)).body).to.deep.equal(content);
  });

  it('ignores a range, misstates it, or sends another', async () => {
    const headers = { range: 'bytes=10-13' };
    server.fault(/./, { ignoreRange: true }, { times: 1 });
    expect(await get(url, { headers })).to.include({ status: 200 });
    server.fault(/./, { contentRange: 'bytes 0-3/4' }, { times: 1 });
    const misstated = await get(url, { headers });
    expect(misstated.headers['content-range']).to.equal('bytes 0-3/4');
    expect(misstated.body.toString()).to.equal('0123');
    server.fault(/./, { rangeStart: 12 });
    const other = await get(url, { headers });
    expect(other.headers['content-range']).to.equal('bytes 12-13/1000000');
    expect(other.body.toString()).to.equal('23');
  });

  it('compresses a body without a request for it', async () => {
    server.fault(/./, { gzip: true });
    const { headers, body } = await get(url, { headers: { 'accept-encoding': 'identity' } });
    expect(headers).to.include({ 'content-encoding': 'gzip' }).and.not.have.property('content-length');
    expect(gunzipSync(body)).to.deep.equal(content);
  });

  it('sends chunks without a length', async () => {
    server.fault(/./, { chunked: true });
    const { headers, body } = await get(url);
    expect(headers).to.include({ 'transfer-encoding': 'chunked' }).and.not.have.property('content-length');
    expect(body).to.deep.equal(content);
  });

  it('sets headers and leaves headers out', async () => {
    server.fault(/./, { headers: { 'content-type': null, 'docker-content-digest': 'sha256:wrong' } });
    const { headers } = await get(url);
    expect(headers).to.include({ 'docker-content-digest': 'sha256:wrong' }).and.not.have.property('content-type');
  });

  it('sends bodies without an end, and ten gigabytes that are nowhere', async () => {
    server.fault(/./, { answer: { status: 500, body: generatedBody(Infinity) } }, { times: 1 });
    const endless = await get(url, { enough: 3_000_000 });
    expect(endless.status).to.equal(500);
    expect(endless.body.length).to.be.at.least(3_000_000);
    server.fault(/./, { answer: { status: 200, body: generatedBody(10 * 2 ** 30) } });
    const huge = await get(url, { enough: 1_000_000 });
    expect(huge.headers['content-length']).to.equal(String(10 * 2 ** 30));
    while (server.active > 0) await new Promise(setImmediate);
  });

  it('sends slowly', async () => {
    server.fault(/./, { bytesPerSecond: 500_000, answer: { status: 200, body: 'x'.repeat(30_000) } });
    expect((await get(url)).body.length).to.equal(30_000);
  });

  it('merges the faults that match', async () => {
    server.fault(/./, { chunked: true });
    server.fault(/file/, { flipByte: 0 });
    const { headers, body } = await get(url);
    expect(headers).to.not.have.property('content-length');
    expect(body[0]).to.not.equal(content[0]);
  });
});

describe('startSignatureServer', () => {
  it('serves the files of a folder and nothing outside it', async () => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'signatures-'));
    await fs.mkdir(path.join(folder, 'store/sha256=ab'), { recursive: true });
    await fs.writeFile(path.join(folder, 'store/sha256=ab/signature-1'), 'signed');
    await fs.writeFile(path.join(folder, 'outside'), 'secret');
    const server = await startSignatureServer(path.join(folder, 'store'));
    const found = await get(`${server.url}/sha256=ab/signature-1`);
    expect(found.status).to.equal(200);
    expect(found.body.toString()).to.equal('signed');
    expect((await get(`${server.url}/sha256%3Dab/signature-2`)).status).to.equal(404);
    expect((await get(`${server.url}/..%2Foutside`)).status).to.equal(404);
    await server.stop();
    await fs.rm(folder, { recursive: true });
  });
});

describe('startContentHost', () => {
  it('serves the targets of redirects without credentials', async () => {
    const body = Buffer.from('a layer');
    const content = emptyContent();
    content.blobs.set(digestOf(body), body);
    const [registry, host] = await Promise.all([startRegistry({ content }), startContentHost(content)]);
    for (const status of [301, 302, 303, 307, 308] as const) {
      registry.fault(/^GET .*blobs/, { redirect: { status, to: host.locate } }, { times: 1 });
      const redirected = await get(`${registry.url}/v2/a/b/blobs/${digestOf(body)}`);
      expect(redirected.status).to.equal(status);
      const location = redirected.headers.location ?? '';
      expect(location).to.match(new RegExp(`^${host.url}/`));
      expect((await get(location)).body).to.deep.equal(body);
      expect((await get(location, { headers: { authorization: 'Bearer leaked' } })).status).to.equal(400);
      expect((await get(location.slice(0, -1))).status).to.equal(403);
    }
    expect(host.requests.filter(({ headers }) => headers.authorization !== undefined)).to.have.length(5);
    await Promise.all([registry.stop(), host.stop()]);
  });
});

describe('Uploads', () => {
  it('keeps the bytes before the connection broke, and refuses large bodies as planned', async () => {
    await using registry = await startRegistry();
    const begun = await get(`${registry.url}/v2/a/b/blobs/uploads/`, { method: 'POST' });
    const location = begun.headers.location ?? '';
    const body = 'x'.repeat(1000);
    registry.fault(/^PUT/, { maxBody: 0 });
    const digest = digestOf(body);
    expect((await get(`${location}&digest=${digest}`, { method: 'PUT', body })).status).to.equal(413);
    registry.fault(/^PATCH/, { resetUploadAfter: 600 }, { times: 1 });
    const died = await get(location, { method: 'PATCH', body }).catch(
      (error: unknown) => (error as { code: string }).code,
    );
    expect(died).to.be.oneOf(['ECONNRESET', 'EPIPE']);
    const status = await get(location);
    expect(status.headers.range).to.equal('0-599');
    const resumed = await get(status.headers.location ?? '', { method: 'PATCH', body: body.slice(600) });
    const finished = await get(`${resumed.headers.location ?? ''}&digest=${digest}`, { method: 'PUT' });
    expect(finished.status).to.equal(201);
    expect(registry.content.blobs.get(digest)).to.deep.equal(Buffer.from(body));
  });
});

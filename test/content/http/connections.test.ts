import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { expect } from 'chai';
import { readBody } from '../../../lib/content/http/networkErrors.ts';
import { generatedBody } from '../../fakes/registry/content.ts';
import { type RegistryOptions } from '../../fakes/registry/registry.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import { useConnections } from '../../support/content/connections.ts';
import { failureOf } from '../../support/program/failure.ts';

const { signal } = new AbortController();
const ok = { answer: { status: 200, body: 'hello' } };

describe('Connections', () => {
  const { closing, start, connect, get } = useConnections();

  it('keeps connections alive, one after the other', async () => {
    const server = await start();
    server.fault(/./, ok);
    const connections = connect();
    for (let index = 0; index < 20; index += 1) expect(await get(connections, `${server.url}/x`)).to.equal('hello');
    expect(server.connections).to.equal(1);
  });

  it('asks for bodies as they are, with a user agent', async () => {
    const server = await start();
    await get(connect({ userAgent: 'test/1' }), `${server.url}/v2/`);
    expect(server.requests[0]?.headers).to.include({ 'accept-encoding': 'identity', 'user-agent': 'test/1' });
  });

  it('sends no more requests to a host at a time than allowed, bodies included', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: Buffer.alloc(300_000) }, delay: 5 });
    const connections = connect({ maxPerRegistry: 3 });
    await Promise.all(Array.from({ length: 20 }, () => get(connections, `${server.url}/x`)));
    expect(server.peakActive).to.equal(3);
  });

  it('gives the slot of a body that is destroyed to the next', async () => {
    const server = await start();
    server.fault(/endless/, { answer: { status: 200, body: generatedBody(Infinity) } });
    server.fault(/small/, ok);
    const connections = connect({ maxPerRegistry: 1 });
    const url = new URL(`${server.url}/endless`);
    const { body } = await connections.exchange({ method: 'GET', url, headers: {}, signal });
    const waiting = get(connections, `${server.url}/small`);
    body.destroy();
    expect(await waiting).to.equal('hello');
  });

  it('truncates a body without a receiver at 64 KiB and drops its connection', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 500, body: generatedBody(10 * 2 ** 30) } });
    const request = { method: 'GET', url: new URL(`${server.url}/x`), headers: {}, signal };
    const { status, body } = await connect().receive(request, () => undefined);
    expect(status).to.equal(500);
    expect(body).to.have.length(64 * 1024);
    expect(server.requests[0]?.bytesSent).to.be.below(2 ** 28);
  });

  it('passes a body on in chunks, and errors of the receiver back', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: generatedBody(1_000_000) } });
    const connections = connect();
    const request = { method: 'GET', url: new URL(`${server.url}/x`), headers: {}, signal };
    let received = 0;
    await connections.receive(request, () => (chunk) => (received += chunk.length));
    expect(received).to.equal(1_000_000);
    const broken = new Error('the disk is full');
    const failing = connections.receive(request, () => () => {
      throw broken;
    });
    expect(await failing.catch((error: unknown) => error)).to.equal(broken);
  });

  it('uploads a stream that is opened when its turn has come', async () => {
    const server = await start();
    const bytes = Buffer.alloc(100_000_000, 'up');
    const response = await connect().exchange({
      method: 'POST',
      url: new URL(`${server.url}/v2/a/blobs/uploads/?digest=sha256:wrong`),
      headers: { 'Content-Length': String(bytes.length) },
      body: () => Promise.resolve(Readable.from([bytes.subarray(0, 1_000_000), bytes.subarray(1_000_000)])),
      signal,
    });
    expect(response.status).to.equal(400);
    expect((await readBody(response, 1000)).toString()).to.contain('DIGEST_INVALID');
    expect(server.requests[0]?.bytesReceived).to.equal(bytes.length);
  });

  it('stops an upload that is answered before its end', async () => {
    const server = await start();
    server.fault(/./, { maxBody: 10 });
    const endless = generatedBody(Infinity).open(0);
    const response = await connect().exchange({
      method: 'PUT',
      url: new URL(`${server.url}/x`),
      headers: { 'Content-Length': '1000000000' },
      body: () => Promise.resolve(endless),
      signal,
    });
    expect(response.status).to.equal(413);
    await readBody(response, 1000);
    expect(endless.destroyed).to.equal(true);
  });

  it('sends an upload to its end that is accepted before', async () => {
    let received = 0;
    await using server = http.createServer((request, response) => {
      response.writeHead(201).flushHeaders();
      request.on('data', (chunk: Buffer) => (received += chunk.length)).on('end', () => response.end());
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const { status, body } = await connect().exchange({
      method: 'PUT',
      url: new URL(`http://127.0.0.1:${port}/x`),
      headers: { 'Content-Length': '100000000' },
      body: () => Promise.resolve(generatedBody(100_000_000).open(0)),
      signal,
    });
    expect(status).to.equal(201);
    await readBody({ body }, 1000);
    expect(received).to.equal(100_000_000);
  });

  it('passes on why the body of an upload cannot be read', async () => {
    const server = await start();
    const source = new PassThrough();
    const sending = connect().exchange({
      method: 'PUT',
      url: new URL(`${server.url}/x`),
      headers: { 'Content-Length': '10' },
      body: () => Promise.resolve(source),
      signal,
    });
    source.write('abc');
    source.destroy(new Error('the cable is out'));
    expect(await sending.catch((error: unknown) => error)).to.have.property('message', 'the cable is out');
  });

  it('reports the result of each request once, without secrets', async () => {
    const server = await start();
    const { host } = server;
    server.fault(/x/, ok);
    server.fault(/cut/, { answer: { status: 200, body: Buffer.alloc(300_000) }, cut: { after: 1000, how: 'reset' } });
    const lines: string[] = [];
    const connections = connect({ log: (line) => lines.push(line.replace(/\d+ ms/, 'some ms')) });
    const url = new URL(`${server.url}/x?X-Amz-Signature=secret`);
    const headers = { Authorization: 'Basic secret' };
    await get(connections, url.href);
    await connections.receive({ method: 'GET', url, headers, signal }, () => () => undefined);
    await connections.receive({ method: 'GET', url, headers, signal }, () => undefined);
    await (
      await connections.exchange({ method: 'POST', url, headers, body: Buffer.from('abc'), signal })
    ).body.toArray();
    await failureOf(get(connections, `${server.url}/cut`), 'unreachable');
    server.dropConnections();
    server.fault(/gone/, { noAnswer: 'reset' });
    await failureOf(get(connections, `${server.url}/gone`), 'unreachable');
    const refused = `some ms, ${host} cannot be reached`;
    expect(lines.map((line) => line.replace(/(reached).*/, '$1'))).to.deep.equal([
      ...Array.from({ length: 3 }, () => `GET ${server.url}/x: 200, 5 bytes, some ms`),
      `POST ${server.url}/x: 3 bytes sent, 200, 5 bytes, some ms`,
      `GET ${server.url}/cut: 200, 1000 bytes, ${refused}`,
      `GET ${server.url}/gone: ${refused}`,
    ]);
  });

  describe('with TLS', function () {
    let authority: Authority;
    let folder: string;
    before(async () => {
      authority = await makeAuthority();
      folder = await mkdtemp(join(tmpdir(), 'connections-'));
    });
    after(async () => {
      await authority.remove();
      await rm(folder, { recursive: true });
    });

    const startTls = async (options: Parameters<Authority['issue']>[0] = {}, more: RegistryOptions['tls'] = {}) => {
      const { certificate, key } = await authority.issue(options);
      return await start({ tls: { cert: certificate, key, ...more } });
    };

    it('trusts the authority that it is given, for many connections', async () => {
      const server = await startTls();
      const connections = connect({}, { certificateAuthority: authority.certificateFile });
      await Promise.all(Array.from({ length: 10 }, () => get(connections, `${server.url}/v2/`)));
      expect(server.requests).to.have.length(10);
    });

    it('trusts the authority in the folder of the registry', async () => {
      const server = await startTls();
      const own = join(folder, server.host);
      await mkdir(own, { recursive: true });
      await writeFile(join(own, 'ca.crt'), authority.certificate);
      expect(await get(connect({}, { folders: [folder] }), `${server.url}/v2/`)).to.equal('{}');
    });

    it('says how to trust an authority that is unknown', async () => {
      const server = await startTls();
      const error = await failureOf(get(connect(), `${server.url}/v2/`), 'tls');
      expect(error.message).to.contain(server.host).and.contain('not trusted');
      expect(error.hint)
        .to.match(/certificate authority/)
        .and.contain(`certs.d/${server.host}`);
      expect(await get(connect({}, { insecure: true }), `${server.url}/v2/`)).to.equal('{}');
    });

    it('says since when a certificate has been expired', async () => {
      const server = await startTls({ expired: true });
      const connections = connect({}, { certificateAuthority: authority.certificateFile });
      const error = await failureOf(get(connections, `${server.url}/v2/`), 'tls');
      expect(error.message).to.match(/expired on .*20\d\d/);
    });

    it('says that a certificate is for another name', async () => {
      const server = await startTls({ hosts: ['other.example'] });
      const connections = connect({}, { certificateAuthority: authority.certificateFile });
      expect((await failureOf(get(connections, `${server.url}/v2/`), 'tls')).message).to.contain('another name');
    });

    it('says that a client certificate is wanted, and sends the one of the folder', async () => {
      const server = await startTls({}, { ca: authority.certificate, requestCert: true, rejectUnauthorized: true });
      const connections = connect({}, { certificateAuthority: authority.certificateFile });
      expect((await failureOf(get(connections, `${server.url}/v2/`), 'tls')).hint).to.contain('client.cert');
      const client = await authority.issue({ hosts: ['me'], client: true });
      const own = join(folder, server.host);
      await mkdir(own, { recursive: true });
      await writeFile(join(own, 'ca.crt'), authority.certificate);
      await writeFile(join(own, 'client.cert'), client.certificate);
      await writeFile(join(own, 'client.key'), client.key);
      expect(await get(connect({}, { folders: [folder] }), `${server.url}/v2/`)).to.equal('{}');
    });

    it('says that a server speaks http', async () => {
      const server = await start();
      const error = await failureOf(get(connect(), `https://${server.host}/v2/`), 'tls');
      expect(error.message).to.contain('speaks http, not https');
      expect(error.settings).to.deep.equal(['insecure']);
    });

    it('goes through a proxy to http and to https, with its credentials, and shows none', async () => {
      const server = await startTls({ hosts: ['registry.test'] });
      const plain = await start();
      const proxy = await startProxy();
      closing.push(proxy.stop);
      const environment = { HTTPS_PROXY: proxy.url, HTTP_PROXY: proxy.url };
      proxy.target = server.host;
      const connections = connect({ environment }, { certificateAuthority: authority.certificateFile });
      expect(await get(connections, 'https://registry.test/v2/')).to.equal('{}');
      proxy.target = plain.host;
      expect(await get(connections, 'http://registry.test/v2/')).to.equal('{}');
      expect(proxy.seen).to.deep.equal(['CONNECT registry.test:443', 'GET http://registry.test/v2/']);
    });

    it('reports a refusal of a proxy without its credentials, as a permanent error', async () => {
      const proxy = await startProxy();
      closing.push(proxy.stop);
      const ask = (): Promise<string> => {
        return get(connect({ environment: { HTTPS_PROXY: proxy.url } }), 'https://registry.test/v2/');
      };
      for (const [refusal, code] of [
        ['407 Proxy Authentication Required', 'denied'],
        ['403 Forbidden', 'denied'],
        ['503 Service Unavailable', 'unreachable'],
      ] as const) {
        proxy.refusal = refusal;
        const { message, hint } = await failureOf(ask(), code);
        expect(`${message} ${String(hint)}`)
          .to.contain('registry.test')
          .and.contain(refusal)
          .and.not.match(/p@ss|p%40ss|me:/);
      }
    });

    it('names a proxy that answers nothing, and not the host behind it', async () => {
      const silent = net.createServer(() => undefined);
      await once(silent.listen(0, '127.0.0.1'), 'listening');
      const sockets: net.Socket[] = [];
      silent.on('connection', (socket) => sockets.push(socket));
      closing.push(() => (sockets.forEach((socket) => socket.destroy()), silent.close()));
      const proxy = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
      const connections = connect({ environment: { HTTPS_PROXY: `http://${proxy}` }, connectTimeout: 200 });
      const { message } = await failureOf(get(connections, 'https://registry.test/v2/'), 'unreachable');
      expect(message).to.match(
        new RegExp(`^the proxy ${proxy} for registry.test cannot be reached: it did not accept`),
      );
    });
  });
});

interface Proxy {
  readonly url: string;
  readonly seen: string[];
  /** The target of all connections. */
  target: string;
  refusal: string | undefined;
  stop: () => Promise<void>;
}

/** Starts a proxy that requires the user `me` with the password `p@ss`. */
async function startProxy(): Promise<Proxy> {
  const welcome = (request: http.IncomingMessage): boolean => {
    proxy.seen.push(`${String(request.method)} ${String(request.url)}`);
    const expected = `Basic ${Buffer.from('me:p@ss').toString('base64')}`;
    return proxy.refusal === undefined && request.headers['proxy-authorization'] === expected;
  };
  const server = http.createServer((request, response) => {
    if (!welcome(request)) return void response.writeHead(407).end();
    const [host, port] = proxy.target.split(':');
    const { pathname } = new URL(request.url ?? '');
    return void http.get({ host, port, path: pathname }, (answer) => answer.pipe(response));
  });
  server.on('connect', (request: http.IncomingMessage, client: net.Socket) => {
    if (!welcome(request)) return void client.end(`HTTP/1.1 ${proxy.refusal ?? '407'}\r\n\r\n`);
    const [host, port] = proxy.target.split(':');
    const upstream = net.connect(Number(port), host, () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on('error', () => client.destroy());
    client.on('error', () => upstream.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy: Proxy = {
    url: `http://me:p%40ss@127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen: [],
    target: '',
    refusal: undefined,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => {
          resolve();
        });
        server.closeAllConnections();
      }),
  };
  return proxy;
}

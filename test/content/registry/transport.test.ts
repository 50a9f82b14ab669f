import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { mock } from 'node:test';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections, type ConnectionsOptions } from '../../../lib/content/http/connections.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { Tokens } from '../../../lib/content/registry/auth/tokens.ts';
import type { RegistryRequest } from '../../../lib/content/registry/authenticatedClient.ts';
import { Transport, type ContentRequest, type TransportOptions } from '../../../lib/content/registry/transport.ts';
import { startContentHost, type ContentHost } from '../../fakes/http/contentHost.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const user = { username: 'user', password: 'pa-ss-word' };
const bytes = randomBytes(1_000_000);
const digest = digestOf(bytes);

describe('Transport', () => {
  const closing: (() => unknown)[] = [];
  let context: TestContext;
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'transport-'));
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(() => {
    context = makeContext();
  });
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });

  const start = async (options?: RegistryOptions): Promise<TestRegistry> => {
    const server = await startRegistry(options);
    server.content.blobs.set(digest, bytes);
    closing.push(() => server.stop());
    return server;
  };
  const startContent = async (server: TestRegistry): Promise<ContentHost> => {
    const host = await startContentHost(server.content);
    closing.push(() => host.stop());
    return host;
  };
  const open = async (
    server: Pick<TestRegistry, 'host'>,
    options: TransportOptions & Partial<ConnectionsOptions> = {},
  ): Promise<Transport> => {
    const insecure = options.insecure ?? true;
    const connections = new Connections({ certificates: new Certificates({ insecure, folders: [] }), ...options });
    closing.unshift(() => {
      connections.close();
    });
    const file = join(folder, 'auth.json');
    const auth = Buffer.from(`${user.username}:${user.password}`).toString('base64');
    await writeFile(file, JSON.stringify({ auths: { [server.host]: { auth } } }));
    const tokens = new Tokens(new Credentials({ file, environment: {} }), connections, context, {
      insecure: true,
    });
    return new Transport(connections, tokens, context, { insecure, baseDelay: 1, ...options });
  };
  const blob = (server: TestRegistry): ContentRequest => ({
    registry: server.host,
    repository: 'a/b',
    target: `blobs/${digest}`,
    what: `blob ${digest}`,
    actions: 'pull',
  });
  const get = (server: TestRegistry, more: Partial<RegistryRequest> = {}): RegistryRequest => ({
    ...blob(server),
    method: 'GET',
    limit: 10_000_000,
    ...more,
  });
  const download = async (transport: Transport, server: TestRegistry, from = 0): Promise<Buffer> => {
    const chunks: Buffer[] = [];
    await transport.download(blob(server), bytes.length, from, (chunk) => chunks.push(Buffer.from(chunk)));
    return Buffer.concat(chunks);
  };
  const stream = async (transport: Transport, server: TestRegistry, from = 0): Promise<Buffer> =>
    await buffer(await transport.open(blob(server), bytes.length, from));

  describe('login', () => {
    it('logs in once, and remembers', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      for (let index = 0; index < 3; index += 1)
        expect((await transport.send(get(server))).body.equals(bytes)).to.equal(true);
      expect(server.requests.map(({ status }) => status)).to.deep.equal([401, 200, 200, 200]);
      expect(server.tokens?.requests).to.have.length(1);
    });

    it('logs in again when a token expires in the middle of a run', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      await transport.send(get(server));
      server.revokeTokens();
      expect((await transport.send(get(server))).status).to.equal(200);
      server.fault(/blobs/, { cut: { after: 400_000, how: 'reset' } }, { times: 1 });
      let revoked = false;
      const chunks: Buffer[] = [];
      await transport.download(blob(server), bytes.length, 0, (chunk) => {
        if (!revoked) server.revokeTokens();
        revoked = true;
        chunks.push(Buffer.from(chunk));
      });
      expect(Buffer.concat(chunks).equals(bytes)).to.equal(true);
    });

    it('opens a body again when its request has to be repeated with a login', async () => {
      const server = await start({ bearer: user });
      const transport = await open(server);
      await transport.send(get(server, { actions: 'pull,push' }));
      server.revokeTokens();
      const content = Buffer.from('pushed');
      let opened = 0;
      const body = (): Promise<Readable> => {
        opened += 1;
        return Promise.resolve(Readable.from([content]));
      };
      const target = `blobs/uploads/?digest=${digestOf(content)}`;
      const headers = { 'Content-Length': String(content.length) };
      await transport.send(get(server, { method: 'POST', target, headers, body, actions: 'pull,push' }));
      expect(server.content.blobs.get(digestOf(content))).to.deep.equal(content);
      expect(opened).to.equal(2);
    });

    it('quotes the registry if its token server gives the refused token again', async () => {
      const server = await start({ bearer: user });
      server.tokens?.fault(/./, { answer: { status: 200, body: '{"token":"same"}' } });
      const transport = await open(server);
      for (const most of [2, 3]) {
        const error = await failureOf(transport.send(get(server)), 'unauthorized');
        expect(error.message).to.contain('gave a token').and.contain('authentication required');
        expect(server.requests).to.have.length(most);
      }
    });

    it('gives up when a new token is refused too, in the registry’s words and without a secret', async () => {
      const server = await start({ bearer: { ...user, allow: () => false } });
      const error = await failureOf((await open(server)).send(get(server)), 'unauthorized');
      expect(error.message).to.contain(server.host).and.contain('authentication required');
      expect(error.settings).to.deep.equal(['pullSecret']);
      expect(server.requests).to.have.length(2);
      const token = /Bearer (.+)/.exec(server.requests[1]?.headers.authorization ?? '')?.[1] ?? 'none';
      expect([error.message, error.hint, ...context.lines].join())
        .to.not.contain(token)
        .and.not.contain(user.password);
    });
  });

  describe('trying again', () => {
    for (const status of [408, 429, 500, 502, 503, 504]) {
      it(`tries again after ${status}, and logs it`, async () => {
        const server = await start();
        server.fault(/blobs/, { answer: { status, body: '<h1>no</h1>' } }, { times: 3 });
        expect((await (await open(server)).send(get(server))).status).to.equal(200);
        expect(context.lines.filter((line) => line.includes('retrying in'))).to.have.length(3);
      });
    }

    it('tries again after resets, silence and short bodies', async () => {
      const server = await start();
      server.fault(/blobs/, { noAnswer: 'reset' }, { times: 1, after: 0 });
      server.fault(/blobs/, { noAnswer: 'hold' }, { times: 1, after: 1 });
      server.fault(/blobs/, { cut: { after: 10, how: 'end' } }, { times: 1, after: 2 });
      expect((await (await open(server, { idleTimeout: 100 })).send(get(server))).body.equals(bytes)).to.equal(true);
      expect(server.requests).to.have.length(4);
    });

    it('gives up after so many attempts', async () => {
      const server = await start();
      server.fault(/blobs/, { answer: { status: 503 } });
      await failureOf((await open(server, { attempts: 4 })).send(get(server)), 'server-error');
      expect(server.requests).to.have.length(4);
    });

    it('does not retry a permanent error', async () => {
      const server = await start();
      const transport = await open(server);
      for (const [status, code] of [
        [400, 'server-error'],
        [403, 'denied'],
        [404, 'not-found'],
      ] as const) {
        server.requests.length = 0;
        server.fault(/blobs/, { answer: { status } }, { times: 1 });
        await failureOf(transport.send(get(server)), code);
        expect(server.requests).to.have.length(1);
      }
    });

    it('waits as long as Retry-After says, and not longer than it may', async () => {
      const server = await start();
      const limited = (wait: string) => ({ answer: { status: 429, headers: { 'retry-after': wait } } });
      server.fault(/blobs/, limited('1'), { times: 1 });
      expect((await (await open(server)).send(get(server))).status).to.equal(200);
      expect(context.lines.join()).to.contain('retrying in 1 s');
      server.fault(/blobs/, limited('3600'), { times: 1 });
      const error = await failureOf((await open(server)).send(get(server)), 'rate-limited');
      expect(error.message).to.contain('60 min');
    });

    for (const status of [429, 503]) {
      it(`stops requests to a registry that always responds with ${status} and Retry-After`, async () => {
        const server = await start();
        let time = 0;
        const clock = {
          now: () => time,
          sleep: (wait: number) => {
            time += wait;
            return Promise.resolve();
          },
        };
        const transport = await open(server, { clock, longestWait: 30_000, pause: 3_600_000 });
        server.fault(/blobs/, { answer: { status, headers: { 'retry-after': '1' } } });
        await failureOf(transport.send(get(server)), 'rate-limited');
        expect(context.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
        expect(context.lines.join()).to.contain(server.host);
        const asked = server.requests.length;
        for (const again of [transport.send(get(server)), stream(transport, server), download(transport, server)]) {
          expect((await failureOf(again, 'rate-limited')).message).to.contain('no further requests to');
        }
        expect(server.requests).to.have.length(asked);
      });
    }

    it('is interrupted at once while it waits', async () => {
      const server = await start();
      server.fault(/blobs/, { answer: { status: 503, headers: { 'retry-after': '200' } } });
      const sending = (await open(server)).send(get(server));
      await server.nextRequest();
      context.interrupt();
      await failureOf(sending, 'interrupted');
    });

    it('asks a host that never responded three times at most', async () => {
      const server = await start();
      const transport = await open(server, { attempts: 6 });
      const request = get(server);
      await server.stop();
      await failureOf(transport.send(request), 'unreachable');
      expect(context.lines.filter((line) => line.includes('retrying in'))).to.have.length(2);
    });

    for (const [how, fault, code] of [
      ['refuses everything', { answer: { status: 503 } }, 'server-error'],
      ['resets every connection', { noAnswer: 'reset' }, 'unreachable'],
    ] as const) {
      it(`stops requests for a while to a host that ${how}`, async () => {
        const server = await start();
        const transport = await open(server, { attempts: 4, pause: 3_600_000 });
        await transport.send(get(server));
        server.requests.length = 0;
        server.fault(/./, fault);
        const first = await failureOf(download(transport, server), code);
        expect(server.requests).to.have.length(4);
        for (const again of [transport.send(get(server)), stream(transport, server), download(transport, server)]) {
          expect((await failureOf(again, code)).message).to.equal(
            `no further requests to ${server.host}: ${first.message}`,
          );
        }
        expect(server.requests).to.have.length(4);
      });
    }

    it('asks a failed registry once each time until it responds', async () => {
      const server = await start();
      const transport = await open(server, { attempts: 4, pause: 0 });
      server.fault(/./, { answer: { status: 503 } }, { times: 6 });
      for (const requests of [4, 5, 6]) {
        await failureOf(transport.send(get(server)), 'server-error');
        expect(server.requests).to.have.length(requests);
      }
      await transport.send(get(server));
      server.fault(/./, { answer: { status: 503 } }, { times: 3 });
      expect((await transport.send(get(server))).status).to.equal(200);
    });

    it('keeps asking a registry that has incomplete content', async () => {
      const server = await start();
      const transport = await open(server, { attempts: 3, pause: 3_600_000 });
      const cut = server.fault(/blobs/, { cut: { after: 1000, how: 'end' }, ignoreRange: true });
      await failureOf(download(transport, server), 'size-mismatch');
      expect(cut.hits).to.be.greaterThan(2);
      server.clearFaults();
      expect((await download(transport, server)).equals(bytes)).to.equal(true);
    });
  });

  describe('redirects', () => {
    for (const status of [301, 302, 303, 307, 308] as const) {
      it(`follows ${status} to another origin without credentials`, async () => {
        const server = await start({ basic: user });
        const host = await startContent(server);
        server.fault(/^GET .*blobs/, { redirect: { status, to: host.locate } });
        const transport = await open(server);
        expect((await download(transport, server)).equals(bytes)).to.equal(true);
        expect((await stream(transport, server)).equals(bytes)).to.equal(true);
        expect(host.requests.every(({ headers }) => headers.authorization === undefined)).to.equal(true);
      });
    }

    it('keeps credentials on the way to another place of the same origin', async () => {
      const server = await start({ basic: user });
      const place = `/v2/a/b/blobs/${digest}?moved`;
      server.fault(/^GET .*blobs\/[^?]*$/, { redirect: { status: 302, to: place } }, { after: 1 });
      const transport = await open(server);
      await transport.send(get(server));
      expect((await transport.send(get(server))).body.equals(bytes)).to.equal(true);
      expect(server.requests.at(-1)?.query.has('moved')).to.equal(true);
      expect(server.requests.at(-1)?.headers.authorization).to.not.equal(undefined);
    });

    it('does not give credentials again when redirects lead back', async () => {
      const server = await start({ basic: { ...user, anonymousPull: true } });
      const host = await startContent(server);
      server.fault(
        /first/,
        { answer: { status: 401, headers: { 'www-authenticate': 'Basic realm="x"' } } },
        { times: 1 },
      );
      server.fault(/first/, { redirect: { status: 307, to: `${host.url}/away` } }, { after: 1 });
      host.fault(/away/, { redirect: { status: 307, to: `${server.url}/v2/a/b/blobs/${digest}?back` } });
      const reply = await (await open(server)).send(get(server, { target: 'first' }));
      expect(reply.body.equals(bytes)).to.equal(true);
      expect(server.requests.map(({ headers }) => headers.authorization !== undefined)).to.deep.equal([
        false,
        true,
        false,
      ]);
    });

    for (const [title, request] of [
      ['a download', {}],
      ['an upload', { method: 'POST', target: 'blobs/uploads/', body: Buffer.from('x'), actions: 'pull,push' }],
    ] as const) {
      it(`does not log in at the target of a redirect of ${title} that answers 401`, async () => {
        const server = await start({ basic: user });
        const host = await startContent(server);
        server.fault(/a\/b/, { redirect: { status: 307, to: `${host.url}/away` } }, { after: 1 });
        for (const challenge of [`Bearer realm="${host.url}/token",service="s"`, 'Basic realm="r"']) {
          const headers = { 'www-authenticate': challenge };
          host.fault(/away/, { answer: { status: 401, headers } });
          const transport = await open(server);
          await failureOf(transport.send(get(server, request)));
          host.clearFaults();
        }
        expect(new Set(host.requests.map(({ path }) => path))).to.deep.equal(new Set(['/away']));
        expect(host.requests.every(({ headers }) => headers.authorization === undefined)).to.equal(true);
      });
    }

    it('stops after too many redirects', async () => {
      const server = await start();
      server.fault(/blobs/, { redirect: { status: 302, to: `/v2/a/b/blobs/${digest}` } });
      await failureOf((await open(server)).send(get(server)), 'server-error');
      expect(server.requests).to.have.length(11);
    });

    it('repeats an upload at the address of a 307, and follows no other redirect of it', async () => {
      const server = await start();
      const content = Buffer.from('moved');
      const target = `blobs/uploads/?digest=${digestOf(content)}`;
      const request = get(server, { method: 'POST', target, body: content, actions: 'pull,push' });
      server.fault(/a\/b/, { redirect: { status: 307, to: `/v2/c/d/${target}` } }, { times: 1 });
      const transport = await open(server);
      await transport.send(request);
      expect(server.content.blobs.get(digestOf(content))).to.deep.equal(content);
      server.fault(/a\/b/, { redirect: { status: 302, to: `/v2/c/d/${target}` } }, { times: 1 });
      await failureOf(transport.send(request), 'server-error');
    });

    it('asks the registry again when a signed location is refused, and shows no signature', async () => {
      const server = await start();
      const host = await startContent(server);
      server.fault(/blobs/, { redirect: { status: 307, to: host.locate } });
      const expired = host.fault(
        /data/,
        { answer: { status: 403, body: '<Error><Code>Expired</Code></Error>' } },
        { times: 2 },
      );
      expect((await download(await open(server), server)).equals(bytes)).to.equal(true);
      expect(expired.hits).to.equal(2);
      host.fault(/data/, { answer: { status: 500 } });
      const error = await failureOf(download(await open(server), server), 'server-error');
      expect([error.message, ...context.lines].join())
        .to.contain(host.url)
        .and.not.contain('do-not-print-me');
    });
  });

  describe('schemes', () => {
    it('speaks https only, unless it may be insecure', async () => {
      const server = await start();
      const error = await failureOf((await open(server, { insecure: false })).send(get(server)), 'tls');
      expect(error.message).to.contain('speaks http, not https');
      expect(error.settings).to.deep.equal(['insecure']);
      expect(server.requests).to.have.length(0);
    });

    it('speaks http to a server that closes a connection with a TLS handshake, if it may be insecure', async () => {
      const server = await start();
      const { port } = new URL(server.url);
      const front = createServer((socket) => {
        socket
          .on('error', () => undefined)
          .once('data', (chunk) => {
            if (chunk[0] === 22) return socket.destroy();
            const behind = connect(Number(port), '127.0.0.1').on('error', () => undefined);
            behind.write(chunk);
            return socket.pipe(behind).pipe(socket);
          });
      });
      await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
      closing.push(() => front.close());
      const host = `127.0.0.1:${(front.address() as AddressInfo).port}`;
      const client = await open({ host });
      const reply = await client.send({ ...get(server), registry: host });
      expect(reply.body.equals(bytes)).to.equal(true);
    });

    it('stays with https for a server that closes a connection once', async () => {
      const authority = await makeAuthority();
      closing.push(() => authority.remove());
      const { certificate, key } = await authority.issue();
      const server = await start({ tls: { cert: certificate, key } });
      server.fault(/blobs/, { noAnswer: 'reset' }, { times: 1 });
      expect((await (await open(server)).send(get(server))).body.equals(bytes)).to.equal(true);
    });

    it('follows no redirect to anything else than http and https', async () => {
      const server = await start();
      server.fault(/^GET .*blobs/, { answer: { status: 307, headers: { location: 'file:///etc/passwd' } } });
      const error = await failureOf(download(await open(server), server), 'server-error');
      expect(error.message).to.contain('redirects to a file: address');
    });

    it('follows no redirect from https to http, unless it may be insecure', async function () {
      const authority = await makeAuthority();
      closing.push(() => authority.remove());
      const { certificate, key } = await authority.issue();
      const server = await start({ tls: { cert: certificate, key } });
      const host = await startContent(server);
      server.fault(/^GET .*blobs/, { redirect: { status: 307, to: host.locate } });
      const certificates = new Certificates({
        insecure: false,
        folders: [],
        certificateAuthority: authority.certificateFile,
      });
      const strict = await open(server, { insecure: false, certificates });
      const error = await failureOf(download(strict, server), 'tls');
      expect(error.message).to.contain('not encrypted').and.not.contain('do-not-print-me');
      expect((await download(await open(server), server)).equals(bytes)).to.equal(true);
    });
  });

  describe('a small response', () => {
    const limits = { slowAfter: 50, smallWindow: 200, attempts: 2 };

    it('is named in one warning if it is slow, and has the minimum throughput over a shorter time', async () => {
      const server = await start();
      server.fault(/blobs/, { bytesPerSecond: 20 });
      const reads = [
        (transport: Transport) => transport.send(get(server)),
        (transport: Transport) => stream(transport, server),
      ];
      for (const read of reads) {
        context = makeContext();
        const error = await failureOf(read(await open(server, limits)), 'unreachable');
        expect(error.message).to.include(`${server.host} sent less than 1 KiB/s for 1 s`);
        expect(context.lines.filter((line) => line.startsWith('warn: '))).to.deep.equal([
          `warn: waiting for blob ${digest} of ${server.host}/a/b: it is incomplete after 1 s`,
        ]);
      }
    });

    it('causes no warning if it is complete in time', async () => {
      const server = await start();
      const transport = await open(server, { slowAfter: 300 });
      mock.timers.enable({ apis: ['setTimeout'] });
      try {
        await transport.send(get(server));
        await stream(transport, server);
        mock.timers.tick(300);
      } finally {
        mock.timers.reset();
      }
      expect(context.lines.filter((line) => line.startsWith('warn: '))).to.deep.equal([]);
    });
  });

  for (const [name, read] of [
    ['download', download],
    ['open', stream],
  ] as const) {
    describe(name, () => {
      it('resumes after drops, with each byte once', async () => {
        const server = await start();
        const transport = await open(server, { idleTimeout: 100 });
        for (const [after, how] of (['reset', 'end', 'stall'] as const).entries()) {
          server.fault(/blobs/, { cut: { after: 200_000, how } }, { times: 1, after });
        }
        expect((await read(transport, server)).equals(bytes)).to.equal(true);
        const [first, ...more] = server.requests.map(({ headers }) => headers.range);
        expect(first).to.equal(undefined);
        expect(more.every((range) => range?.startsWith('bytes='))).to.equal(true);
      });

      it('resumes if a response is too slow, and gives up if all are', async () => {
        const server = await start();
        const transport = await open(server, { idleTimeout: 200, attempts: 2 });
        server.fault(/blobs/, { bytesPerSecond: 200 }, { times: 1 });
        expect((await read(transport, server)).equals(bytes)).to.equal(true);
        expect(server.requests.map(({ headers }) => headers.range)[1]).to.match(/^bytes=\d+-/);
        server.fault(/blobs/, { bytesPerSecond: 200 });
        const error = await failureOf(read(transport, server), 'unreachable');
        expect(error.message).to.include(`${server.host} sent less than 1 KiB/s for 1 s`);
        expect(server.requests).to.have.length(4);
      });

      it('skips the bytes that it has if a server ignores Range', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 300_000, how: 'reset' } }, { times: 1 });
        server.fault(/blobs/, { ignoreRange: true });
        expect((await read(await open(server), server)).equals(bytes)).to.equal(true);
      });

      it('reads all of the content again if a server refuses Range', async () => {
        for (const status of [400, 416, 501]) {
          const server = await start();
          server.fault(/blobs/, { cut: { after: 300_000, how: 'reset' } }, { times: 1 });
          server.fault(({ headers }) => headers.range !== undefined, { answer: { status } });
          expect((await read(await open(server), server)).equals(bytes), String(status)).to.equal(true);
        }
      });

      it('begins at an offset', async () => {
        const server = await start();
        const transport = await open(server);
        expect((await read(transport, server, 999_000)).equals(bytes.subarray(999_000))).to.equal(true);
        expect(await read(transport, server, bytes.length)).to.have.length(0);
      });

      it('resumes after server errors in the middle', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 300_000, how: 'reset' } }, { times: 1 });
        server.fault(/blobs/, { answer: { status: 502 } }, { times: 2, after: 1 });
        expect((await read(await open(server), server)).equals(bytes)).to.equal(true);
      });

      it('continues as long as it makes progress, with any number of drops', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 100_000, how: 'end' } }, { times: 9 });
        expect((await read(await open(server, { attempts: 3 }), server)).equals(bytes)).to.equal(true);
      });

      it('gives up on a server that gives a few bytes for each connection', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 100, how: 'end' } });
        await failureOf(read(await open(server, { attempts: 5 }), server), 'unreachable');
        expect(server.requests).to.have.length(5);
      });

      it('names content that is incomplete at its source, if it ends at the same byte each time', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 300_000, how: 'reset' } }, { times: 1 });
        server.fault(/blobs/, { cut: { after: 0, how: 'reset' } }, { after: 1 });
        const lying = await start();
        lying.content.blobs.set(digest, bytes.subarray(0, 300_000));
        lying.fault(/blobs/, { lengthOff: 700_000, ignoreRange: true });
        for (const each of [server, lying]) {
          const error = await failureOf(read(await open(each, { attempts: 3 }), each), 'size-mismatch');
          expect(error.message).to.equal(
            `${each.host}/a/b: blob ${digest} was interrupted after 300000 of 1000000 bytes each time`,
          );
          expect(error.hint).to.contain('Push the image again');
          expect(each.requests).to.have.length.within(3, 4);
        }
      });

      it('refuses at once a size that is not the descriptor’s', async () => {
        for (const other of [Buffer.concat([bytes, bytes]), Buffer.from('<h1>Please log in</h1>')]) {
          const server = await start();
          server.content.blobs.set(digest, other);
          const { message } = await failureOf(read(await open(server), server), 'size-mismatch');
          expect(message).to.contain(`has ${other.length} bytes, not`);
          expect(server.requests).to.have.length(1);
        }
      });

      it('refuses more bytes than the descriptor’s if no size is announced', async () => {
        const server = await start();
        server.content.blobs.set(digest, Buffer.concat([bytes, bytes]));
        server.fault(/blobs/, { chunked: true });
        await failureOf(read(await open(server), server), 'size-mismatch');
        // A download on a plain socket repeats the request through node:http if the response is chunked.
        expect(server.requests).to.have.length.below(3);
      });

      it('refuses content that ends too early for good', async () => {
        const server = await start();
        server.content.blobs.set(digest, bytes.subarray(0, 500_000));
        server.fault(/blobs/, { chunked: true });
        await failureOf(read(await open(server), server), 'size-mismatch');
      });

      it('refuses a part that is not the one it asked for', async () => {
        const server = await start();
        server.fault(/blobs/, { cut: { after: 300_000, how: 'reset' } }, { times: 1 });
        server.fault(/blobs/, { rangeStart: 7 });
        await failureOf(read(await open(server), server), 'server-error');
      });

      it('refuses compressed content', async () => {
        const server = await start();
        server.fault(/blobs/, { gzip: true });
        await failureOf(read(await open(server), server), 'server-error');
      });

      it('names the missing content of a repository', async () => {
        const server = await start();
        server.content.blobs.delete(digest);
        const error = await failureOf(read(await open(server), server), 'not-found');
        expect(error.message).to.contain(`${server.host}/a/b has no blob ${digest}`);
        expect(server.requests).to.have.length(1);
      });
    });
  }

  it('throws errors of a receiver at once', async () => {
    const server = await start();
    const broken = Object.assign(new Error('no space left'), { code: 'ENOSPC' });
    const failing = (await open(server)).download(blob(server), bytes.length, 0, () => {
      throw broken;
    });
    expect(await failing.catch((error: unknown) => error)).to.equal(broken);
    expect(server.requests).to.have.length(1);
  });

  it('buffers only a little of a stream without a reader', async () => {
    const server = await start();
    const transport = await open(server, { maxPerRegistry: 1 });
    const slow = await transport.open(blob(server), bytes.length);
    slow.destroy();
    const hash = createHash('sha256').update((await transport.send(get(server))).body);
    expect(`sha256:${hash.digest('hex')}`).to.equal(digest);
  });
});

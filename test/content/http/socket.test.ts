import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSecureContext } from 'node:tls';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { explainNetworkError } from '../../../lib/content/http/networkErrors.ts';
import {
  UnsupportedResponse,
  type ResponseHead,
  Sockets,
  type SocketResponse,
  type Receiver,
  type SocketOptions,
} from '../../../lib/content/http/socket.ts';
import { generatedBody } from '../../fakes/registry/content.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const { signal: never } = new AbortController();

describe('Sockets', () => {
  const closing: (() => unknown)[] = [];
  const warnings: Error[] = [];
  const hearWarning = (warning: Error): number => warnings.push(warning);
  let sockets: Sockets;
  before(() => process.on('warning', hearWarning));
  after(() => process.off('warning', hearWarning));
  beforeEach(() => {
    sockets = new Sockets();
  });
  afterEach(async () => {
    sockets.close();
    for (const close of closing.splice(0)) await close();
    expect(warnings.splice(0)).to.deep.equal([]);
  });

  const start = async (options?: RegistryOptions): Promise<TestRegistry> => {
    const server = await startRegistry(options);
    closing.push(() => server.stop());
    return server;
  };

  /**
   * Starts a server that responds to each request with the next part of its script, piece by piece. `end` closes the
   * connection.
   */
  const startRaw = async (...script: readonly (readonly string[])[]): Promise<RawServer> => {
    const raw = new RawServer(script);
    await raw.start();
    closing.push(() => raw.stop());
    return raw;
  };

  const get = (
    url: string,
    accept: (head: ResponseHead) => Receiver | undefined = () => undefined,
    { signal = never, ...options }: Partial<SocketOptions> & { signal?: AbortSignal } = {},
  ): Promise<SocketResponse> => {
    const target = new URL(url);
    const explain = (error: unknown): Error => explainNetworkError(error, target);
    const defaults = { tls: undefined, connectTimeout: 2000, idleTimeout: 2000, explain };
    return sockets.get(target, {}, { ...defaults, ...options }, accept, signal);
  };
  const read = async (url: string, options?: Partial<SocketOptions> & { signal?: AbortSignal }): Promise<string> => {
    const chunks: Buffer[] = [];
    await get(url, () => (chunk) => chunks.push(Buffer.from(chunk)), options);
    return Buffer.concat(chunks).toString();
  };
  const errorOf = (action: Promise<unknown>): Promise<unknown> =>
    action.then(
      () => expect.fail('it succeeded'),
      (error: unknown) => error,
    );

  it('gets one answer after the other over one connection', async () => {
    const server = await start();
    server.fault(/a/, { answer: { status: 200, body: generatedBody(1_000_000) } });
    server.fault(/b/, { answer: { status: 404, body: 'there is no b' } });
    server.fault(/c/, { answer: { status: 200, body: '' } });
    for (let round = 0; round < 30; round += 1) {
      expect(await read(`${server.url}/a`)).to.have.length(1_000_000);
      expect(await get(`${server.url}/b`)).to.have.property('status', 404);
      expect(await read(`${server.url}/c`)).to.equal('');
    }
    expect(server.connections).to.equal(1);
  });

  it('never has two requests on one connection', async () => {
    const server = await start();
    server.fault(/./, { delay: 5, answer: { status: 200, body: Buffer.alloc(100_000, 'x') } });
    for (let round = 0; round < 3; round += 1) {
      const all = await Promise.all(Array.from({ length: 5 }, () => read(`${server.url}/x`)));
      expect(all.map(({ length }) => length)).to.deep.equal(all.map(() => 100_000));
    }
    expect(server.connections).to.equal(5);
    expect(server.peakActive).to.equal(5);
  });

  it('passes chunks in memory that it reuses', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: generatedBody(3_000_000) } });
    const buffers = new Set<ArrayBufferLike>();
    await get(`${server.url}/x`, () => (chunk) => buffers.add(chunk.buffer));
    expect(buffers.size).to.equal(1);
  });

  it('sends the request line and headers that servers expect', async () => {
    const server = await startRaw(['HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n']);
    const headers = { Authorization: 'Bearer x' };
    const options = {
      tls: undefined,
      connectTimeout: 2000,
      idleTimeout: 2000,
      explain: (error: unknown) => error as Error,
    };
    await sockets.get(new URL(`${server.url}/v2/a?b=c#d`), headers, options, () => undefined, never);
    expect(server.seen).to.deep.equal([
      `GET /v2/a?b=c HTTP/1.1\r\nHost: ${server.host}\r\nAccept: */*\r\nAuthorization: Bearer x\r\n\r\n`,
    ]);
    const injected = { Authorization: 'x\r\nHost: elsewhere' };
    await failureOf(
      sockets.get(new URL(server.url), injected, options, () => undefined, never),
      'internal',
    );
  });

  it('reads a head that comes in pieces, after others that only announce it', async () => {
    const server = await startRaw([
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 2',
      '00 OK\r\nX-Twice: a\r\nx-twice:  b \r\nContent-',
      'Length: 5\r\n\r',
      '\nhel',
      'lo',
    ]);
    let head: ResponseHead | undefined;
    const chunks: string[] = [];
    await get(server.url, (given) => {
      head = given;
      return (chunk) => chunks.push(chunk.toString());
    });
    expect(head).to.deep.equal({ status: 200, headers: { 'x-twice': 'a, b', 'content-length': '5' } });
    expect(chunks).to.deep.equal(['hel', 'lo']);
  });

  it('refuses a head that is too large, in one piece or many', async () => {
    const large = `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`;
    const server = await startRaw([large], [large.slice(0, 40_000), large.slice(40_000, 69_000), 'x'.repeat(40_000)]);
    const whole = await failureOf(get(server.url), 'server-error');
    expect(whole.message).to.contain(server.host);
    await failureOf(get(server.url), 'server-error');
  });

  it('returns a body without a receiver, truncated at 64 KiB, and drops the connection', async () => {
    const server = await start();
    const body = Buffer.alloc(64 * 1024, 'e');
    server.fault(/exact/, { answer: { status: 500, body } });
    server.fault(/more/, { answer: { status: 500, body: generatedBody(10 * 2 ** 30, body) } });
    expect((await get(`${server.url}/exact`)).body.equals(body)).to.equal(true);
    expect(server.connections).to.equal(1);
    expect((await get(`${server.url}/more`)).body.equals(body)).to.equal(true);
    await until(() => server.connections === 0);
  });

  it('expects no body after 204 and 304, with any length in the head', async () => {
    const server = await startRaw(
      ['HTTP/1.1 204 No Content\r\n\r\n'],
      ['HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n'],
      ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    );
    expect((await get(server.url)).status).to.equal(204);
    expect((await get(server.url)).status).to.equal(304);
    expect(await read(server.url)).to.equal('ok');
    expect(server.accepted).to.equal(1);
  });

  it('does not use a connection again that the server wants closed', async () => {
    const server = await startRaw(
      ['HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok'],
      ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    );
    await read(server.url);
    await read(server.url);
    expect(server.accepted).to.equal(2);
  });

  it('keeps bytes after a body out of the next response', async () => {
    const evil = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil';
    const good = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood';
    const server = await startRaw([`${good}${evil}`], [good, evil], [good]);
    for (let index = 0; index < 3; index += 1) {
      expect(await read(server.url)).to.equal('good');
      // A connection with more data is closed when the data arrives.
      if (index < 2) await until(() => server.open === 0);
    }
    expect(server.accepted).to.equal(3);
  });

  for (const [what, head] of Object.entries({
    'a body that is chunked': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked',
    'a body of unknown length': 'HTTP/1.1 200 OK',
    'two lengths that differ': 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6',
    'a length that is no number': 'HTTP/1.1 200 OK\r\nContent-Length: -5',
    'a length beside a coding': 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked',
    'a header that goes on in another line': 'HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5',
    'a header without a name': 'HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 5',
    'a header with a line feed in it': 'HTTP/1.1 200 OK\r\nX: a\nContent-Length: 6\r\nContent-Length: 5',
    'an old version': 'HTTP/1.0 200 OK\r\nContent-Length: 5',
    'something else': 'SSH-2.0-OpenSSH_9.9',
  })) {
    it(`throws UnsupportedResponse for ${what}, before it passes a byte`, async () => {
      const server = await startRaw([`${head}\r\n\r\nhello`]);
      let asked = 0;
      const error = await errorOf(get(server.url, () => void (asked += 1)));
      expect(error).to.be.instanceOf(UnsupportedResponse);
      expect(asked).to.equal(0);
      await until(() => server.open === 0);
    });
  }

  it('repeats a request if the server has closed the idle connection', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: 'hello' } });
    await Promise.all([read(`${server.url}/x`), read(`${server.url}/x`)]);
    server.dropConnections();
    expect(await read(`${server.url}/x`)).to.equal('hello');
    expect(server.requests).to.have.length(3);
  });

  it('repeats a request over a new connection if the server closes a used one instead of responding', async () => {
    const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
    const server = await startRaw([ok], ['end'], ['end'], [ok]);
    expect(await read(server.url)).to.equal('ok');
    await failureOf(read(server.url), 'unreachable');
    expect(server.seen).to.have.length(3);
    expect(server.accepted).to.equal(2);
    expect(await read(server.url)).to.equal('ok');
  });

  it('does not repeat a request after a part of its response', async () => {
    const server = await startRaw(['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'], ['HTTP/1.1 200', 'end']);
    await read(server.url);
    await failureOf(read(server.url), 'unreachable');
    expect(server.seen).to.have.length(2);
  });

  it('fails if the connection ends in a body, after it has passed on the received bytes', async () => {
    const server = await start();
    const answer = { status: 200, body: generatedBody(500_000) };
    server.fault(/reset/, { answer, cut: { after: 300_000, how: 'reset' } });
    server.fault(/end/, { answer, cut: { after: 300_000, how: 'end' } });
    for (const path of ['reset', 'end']) {
      let received = 0;
      const action = get(`${server.url}/${path}`, () => (chunk) => (received += chunk.length));
      await failureOf(action, 'unreachable');
      expect(received).to.equal(300_000);
    }
  });

  it('throws the errors of the receiver and of accept, and drops the connection', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: generatedBody(2 ** 30) } });
    const broken = new Error('the disk is full');
    const fail = (): never => {
      throw broken;
    };
    expect(await errorOf(get(`${server.url}/x`, () => fail))).to.equal(broken);
    expect(await errorOf(get(`${server.url}/x`, fail))).to.equal(broken);
    await until(() => server.connections === 0);
    expect(server.requests).to.have.length(2);
  });

  it('ends immediately with the reason of its signal, at any point', async () => {
    const server = await start();
    server.fault(/hold/, { noAnswer: 'hold' });
    server.fault(/stall/, {
      answer: { status: 200, body: generatedBody(500_000) },
      cut: { after: 9000, how: 'stall' },
    });
    server.fault(/used/, { answer: { status: 200, body: 'hello' } });
    for (const path of ['hold', 'stall']) {
      await read(`${server.url}/used`);
      const controller = new AbortController();
      const action = errorOf(read(`${server.url}/${path}`, { signal: controller.signal }));
      await until(() => server.requests.at(-1)?.path === `/${path}`);
      controller.abort(new Error('enough'));
      expect(await action).to.have.property('message', 'enough');
      expect(await errorOf(read(`${server.url}/used`, { signal: controller.signal }))).to.have.property(
        'message',
        'enough',
      );
      await until(() => server.connections === 0);
    }
    expect(server.requests).to.have.length(4);
  });

  it('gives up on an idle server, before a response and in the middle of it', async () => {
    const server = await start();
    server.fault(/used/, { answer: { status: 200, body: 'hello' } });
    server.fault(/hold/, { noAnswer: 'hold' });
    server.fault(/stall/, {
      answer: { status: 200, body: generatedBody(500_000) },
      cut: { after: 9000, how: 'stall' },
    });
    for (const path of ['hold', 'stall']) {
      await read(`${server.url}/used`, { idleTimeout: 50 });
      const error = await failureOf(read(`${server.url}/${path}`, { idleTimeout: 50 }), 'unreachable');
      expect(error.message).to.equal(`${server.host} was idle for 1 s`);
    }
    expect(server.requests).to.have.length(4);
  });

  it('counts no idle time while its own thread is blocked', async () => {
    const server = await start();
    server.fault(/./, { answer: { status: 200, body: generatedBody(2_000_000) } });
    let held = false;
    let received = 0;
    await get(
      `${server.url}/x`,
      () => (chunk) => {
        received += chunk.length;
        // The server’s pieces are on their way when the receiver returns.
        if (!held) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150);
        held = true;
      },
      { idleTimeout: 100 },
    );
    expect(received).to.equal(2_000_000);
  });

  it('gives up on a host that accepts no connection, or no TLS', async () => {
    const raw = await startRaw();
    const tls = { secureContext: createSecureContext(), rejectUnauthorized: true };
    const silent = read(`https://${raw.host}`, { connectTimeout: 50, tls });
    expect((await failureOf(silent, 'unreachable')).message).to.contain('did not accept a connection');
    const { url } = raw;
    await raw.stop();
    expect((await failureOf(read(url), 'unreachable')).message).to.contain('connection refused');
  });

  it('fails running requests when it is closed, and does not repeat them', async () => {
    const server = await start();
    server.fault(/used/, { answer: { status: 200, body: 'hello' } });
    server.fault(/hold/, { noAnswer: 'hold' });
    await read(`${server.url}/used`);
    const action = errorOf(read(`${server.url}/hold`));
    await until(() => server.requests.length === 2);
    sockets.close();
    expect(await action).to.have.property('code', 'unreachable');
    await until(() => server.connections === 0);
    expect(server.requests).to.have.length(2);
  });

  it('leaves unsupported responses to the other client, which passes on each byte once', async () => {
    const server = await start();
    const body = generatedBody(500_000);
    server.fault(/chunked/, { answer: { status: 200, body }, chunked: true });
    server.fault(/error/, { answer: { status: 503, body: 'come back later' }, chunked: true });
    const certificates = new Certificates({ insecure: false, folders: [] });
    const connections = new Connections({ certificates, maxPerRegistry: 1 });
    closing.unshift(() => {
      connections.close();
    });
    const ask = (path: string, accept: (status: number) => Receiver | undefined): Promise<unknown> => {
      const url = new URL(`${server.url}/${path}`);
      return connections.receive({ method: 'GET', url, headers: {}, signal: never }, accept);
    };
    let received = 0;
    let asked = 0;
    await ask('chunked', () => {
      asked += 1;
      return (chunk) => (received += chunk.length);
    });
    expect({ received, asked }).to.deep.equal({ received: 500_000, asked: 1 });
    const answer = await ask('error', () => undefined);
    expect(answer).to.deep.include({ status: 503, body: Buffer.from('come back later') });
  });

  describe('with TLS', function () {
    let authority: Authority;
    before(async () => {
      authority = await makeAuthority();
    });
    after(() => authority.remove());
    const startTls = async (): Promise<TestRegistry> => {
      const { certificate, key } = await authority.issue();
      const server = await start({ tls: { cert: certificate, key } });
      server.fault(/./, { answer: { status: 200, body: generatedBody(600_000) } });
      return server;
    };

    it('reads large bodies over one connection from a server with a trusted authority', async () => {
      const server = await startTls();
      const tls = { secureContext: createSecureContext({ ca: authority.certificate }), rejectUnauthorized: true };
      for (let round = 0; round < 12; round += 1) {
        expect(await read(`${server.url}/x`, { tls })).to.have.length(600_000);
      }
      expect(server.connections).to.equal(1);
      const { url } = server;
      server.dropConnections();
      expect(await read(`${url}/x`, { tls })).to.have.length(600_000);
    });

    it('refuses a server with an unknown authority, unless verification is off', async () => {
      const server = await startTls();
      const secureContext = createSecureContext();
      const error = await failureOf(
        read(`${server.url}/x`, { tls: { secureContext, rejectUnauthorized: true } }),
        'tls',
      );
      expect(error.message).to.contain(server.host).and.contain('not trusted');
      expect(server.requests).to.have.length(0);
      expect(await read(`${server.url}/x`, { tls: { secureContext, rejectUnauthorized: false } })).to.have.length(
        600_000,
      );
    });

    it('gives up on a server that falls silent', async () => {
      const server = await startTls();
      server.fault(/stall/, { cut: { after: 90_000, how: 'stall' } });
      const tls = { secureContext: createSecureContext({ ca: authority.certificate }), rejectUnauthorized: true };
      const error = await failureOf(read(`${server.url}/stall`, { tls, idleTimeout: 60 }), 'unreachable');
      expect(error.message).to.contain('was idle');
    });
  });
});

/** A server that responds to each request with the next part of a script, independent of the request. */
class RawServer {
  /** Every request as text. */
  readonly seen: string[] = [];
  /** The number of accepted connections. */
  accepted = 0;
  readonly #script: (readonly string[])[];
  readonly #sockets = new Set<Socket>();
  readonly #server = net.createServer((socket) => {
    this.accepted += 1;
    this.#sockets.add(socket);
    socket
      .setNoDelay(true)
      .on('error', () => undefined)
      .on('close', () => this.#sockets.delete(socket))
      .on('data', (bytes: Buffer) => void this.#answer(socket, bytes.toString()));
  });

  constructor(script: readonly (readonly string[])[]) {
    this.#script = [...script];
  }

  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `http://${this.host}`;
  }

  /** The number of open connections. */
  get open(): number {
    return this.#sockets.size;
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(socket: Socket, request: string): Promise<void> {
    this.seen.push(request);
    for (const piece of this.#script.shift() ?? []) {
      if (piece === 'end') socket.end();
      else socket.write(piece);
      // The client must read each piece separately.
      await sleep(10);
    }
  }
}

import { createHash } from 'node:crypto';
import { connect, createServer, type AddressInfo } from 'node:net';
import { mock } from 'node:test';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import type { Transport } from '../../../lib/content/registry/transport.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { bytes, digest, useTransport } from './transportSite.ts';

describe('Transport', () => {
  const site = useTransport();
  const { start, startContent, open, get, blob, download, stream, closing } = site;

  describe('trying again', () => {
    for (const status of [408, 429, 500, 502, 503, 504]) {
      it(`tries again after ${status}, and logs it`, async () => {
        const server = await start();
        server.fault(/blobs/, { answer: { status, body: '<h1>no</h1>' } }, { times: 3 });
        expect((await (await open(server)).send(get(server))).status).to.equal(200);
        expect(site.context.lines.filter((line) => line.includes('retrying in'))).to.have.length(3);
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
      expect(site.context.lines.join()).to.contain('retrying in 1 s');
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
        expect(site.context.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
        expect(site.context.lines.join()).to.contain(server.host);
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
      site.context.interrupt();
      await failureOf(sending, 'interrupted');
    });

    it('asks a host that never responded three times at most', async () => {
      const server = await start();
      const transport = await open(server, { attempts: 6 });
      const request = get(server);
      await server.stop();
      await failureOf(transport.send(request), 'unreachable');
      expect(site.context.lines.filter((line) => line.includes('retrying in'))).to.have.length(2);
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
        site.context = makeContext();
        const error = await failureOf(read(await open(server, limits)), 'unreachable');
        expect(error.message).to.include(`${server.host} sent less than 1 KiB/s for 1 s`);
        expect(site.context.lines.filter((line) => line.startsWith('warn: '))).to.deep.equal([
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
      expect(site.context.lines.filter((line) => line.startsWith('warn: '))).to.deep.equal([]);
    });
  });

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

import net, { type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { generatedBody } from '../../fakes/registry/content.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { useConnections } from '../../support/content/connections.ts';
import { failureOf } from '../../support/program/failure.ts';

const { signal } = new AbortController();

describe('explainNetworkError', () => {
  const { closing, start, connect, get } = useConnections();

  describe('when the network fails', () => {
    it('names a host without a listener, or with an unknown name', async () => {
      const server = await startRegistry();
      const { host, url } = server;
      await server.stop();
      const refused = await failureOf(get(connect(), url), 'unreachable');
      expect(refused.message).to.contain(host).and.contain('connection refused');
      const unknown = await failureOf(get(connect(), 'http://nowhere.invalid/'), 'unreachable');
      expect(unknown.message).to.contain('nowhere.invalid');
    });

    it('fails with unreachable for a reset, before and in the middle of a body', async () => {
      const server = await start();
      server.fault(/reset/, { noAnswer: 'reset' });
      server.fault(/cut/, { answer: { status: 200, body: Buffer.alloc(300_000) }, cut: { after: 1000, how: 'reset' } });
      server.fault(/short/, { answer: { status: 200, body: Buffer.alloc(300_000) }, cut: { after: 1000, how: 'end' } });
      for (const path of ['reset', 'cut', 'short']) {
        await failureOf(get(connect(), `${server.url}/${path}`), 'unreachable');
      }
    });

    it('gives up on a server that is silent, before and in the middle of a body', async () => {
      const server = await start();
      server.fault(/hold/, { noAnswer: 'hold' });
      server.fault(/stall/, {
        answer: { status: 200, body: Buffer.alloc(300_000) },
        cut: { after: 1000, how: 'stall' },
      });
      const connections = connect({ idleTimeout: 60 });
      for (const path of ['hold', 'stall']) {
        const error = await failureOf(get(connections, `${server.url}/${path}`), 'unreachable');
        expect(error.message).to.contain('was idle');
      }
    });

    it('gives up on a server that does not finish its TLS greeting', async () => {
      const server = net.createServer((socket) => socket.resume());
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      closing.push(() => server.close());
      const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
      const error = await failureOf(get(connect({ connectTimeout: 60 }), url), 'unreachable');
      expect(error.message).to.contain('did not accept a connection');
    });

    for (const [what, said, words] of [
      ['is none of HTTP', 'SSH-2.0-OpenSSH_9\r\n', /sent invalid HTTP: .* \(it sent “SSH-2\.0-OpenSSH_9”\)$/],
      ['is TLS', '\x15\x03\x01\x00\x02\x02\x46', /sent invalid HTTP: [^(]*$/],
      ['never comes to an answer', 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(200), /informational responses/],
    ] as const) {
      it(`fails immediately if a response of the server ${what}`, async () => {
        const server = net.createServer((socket) => {
          socket.on('error', () => undefined).on('data', () => socket.write(said, 'latin1'));
        });
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
        closing.push(() => server.close());
        const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
        const connections = connect();
        const request = { method: 'GET', url: new URL(`http://${host}/`), headers: {}, signal };
        const asks = [() => connections.exchange(request), () => connections.receive(request, () => undefined)];
        for (const ask of asks) {
          const error = await failureOf(ask(), 'server-error');
          expect(error.message).to.contain(host).and.match(words);
        }
      });
    }

    it('waits for a reader who is slower than the server', async () => {
      const server = await start();
      server.fault(/./, { answer: { status: 200, body: generatedBody(4_000_000) } });
      const url = new URL(`${server.url}/x`);
      const { body } = await connect({ idleTimeout: 1000 }).exchange({ method: 'GET', url, headers: {}, signal });
      await new Promise((resolve) => setTimeout(resolve, 1500));
      expect(await text(body)).to.have.length(4_000_000);
    });

    it('ends with interrupted when the signal is aborted, at any point', async () => {
      const server = await start();
      server.fault(/hold/, { noAnswer: 'hold' });
      server.fault(/stall/, {
        answer: { status: 200, body: Buffer.alloc(300_000) },
        cut: { after: 1000, how: 'stall' },
      });
      const connections = connect({ maxPerRegistry: 1 });
      for (const path of ['hold', 'stall']) {
        const controller = new AbortController();
        const request = {
          method: 'GET',
          url: new URL(`${server.url}/${path}`),
          headers: {},
          signal: controller.signal,
        };
        const first = connections.receive(request, () => () => undefined);
        const waiting = connections.receive(request, () => () => undefined);
        await server.nextRequest();
        controller.abort();
        await Promise.all([failureOf(first, 'interrupted'), failureOf(waiting, 'interrupted')]);
        await failureOf(connections.exchange(request), 'interrupted');
      }
    });
  });
});

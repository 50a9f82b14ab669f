import { expect } from 'chai';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { sendChunks } from '../../lib/store/serverAnswer.ts';

describe('sendChunks', () => {
  // More than what the system takes for a client that does not read.
  const chunk = Buffer.alloc(32 * 1024 * 1024, 'x');
  let ended: boolean;
  let sent: Promise<unknown>;
  let stop: () => void;
  let answer: IncomingMessage;

  beforeEach(async () => {
    ended = false;
    const server = createServer((_, response) => {
      response.writeHead(200, { 'Content-Length': chunk.length });
      sent = sendChunks(Readable.from([chunk]), chunk.length, response).then(() => (ended = true));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    stop = () => {
      server.close().closeAllConnections();
    };
    const { port } = server.address() as AddressInfo;
    answer = await new Promise((resolve, reject) => get({ host: '127.0.0.1', port }, resolve).on('error', reject));
  });
  afterEach(() => {
    stop();
  });

  it('ends when the last chunk is out, and may be overwritten', async () => {
    await sleep(50);
    expect(ended).to.equal(false);
    expect((await buffer(answer)).equals(chunk)).to.equal(true);
    await sent;
    expect(ended).to.equal(true);
  });

  it('ends when a client goes away', async () => {
    answer.destroy();
    await sent;
    expect(ended).to.equal(true);
  });
});

import { createHash, randomBytes } from 'node:crypto';
import { open, writeFile } from 'node:fs/promises';
import { createServer, get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, get as getByTls } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { readChunks } from '../../../lib/content/files/fileRange.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { ContentSender, type ReadPart } from '../../../lib/content/server/contentSender.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('ContentSender', () => {
  // More than the system buffers for a client that does not read.
  const size = 32 * 1024 * 1024;
  const zeros: ReadPart = (_, length) => Readable.from([Buffer.alloc(length)]);
  let server: Server | undefined;
  let sent: Promise<void>;

  afterEach(() => {
    server?.close().closeAllConnections();
  });

  /** Has a server send a response. Returns the response of the client. */
  const begin = async (send: (response: ServerResponse) => Promise<void>, length = size): Promise<IncomingMessage> => {
    server = createServer((_, response) => {
      response.writeHead(200, { 'Content-Length': length });
      sent = send(response);
      sent.catch(() => undefined);
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    return new Promise((resolve, reject) => get({ host: '127.0.0.1', port }, resolve).on('error', reject));
  };

  it('waits until a client has taken the answer, or has gone away', async () => {
    for (const finish of ['read', 'leave'] as const) {
      const answer = await begin((response) => new ContentSender().send(zeros, size, response));
      let ended = false;
      void sent.then(() => (ended = true));
      await sleep(50);
      expect(ended).to.equal(false);
      if (finish === 'leave') answer.destroy();
      else expect((await buffer(answer)).length).to.equal(size);
      await sent;
      server?.close().closeAllConnections();
    }
  });

  it('sends content unchanged from reused buffers, to many clients at a time', async () => {
    const folder = await makeFolder();
    try {
      const bytes = randomBytes(17 * 1024 * 1024 + 7);
      const path = join(folder, 'content');
      await writeFile(path, bytes);
      await using file = await open(path);
      const { signal } = new AbortController();
      const sender = new ContentSender();
      const read: ReadPart = (start, length) => readChunks(file, path, start, length, signal);
      await (await begin((response) => sender.send(read, bytes.length, response), bytes.length)).toArray();
      const { port } = server?.address() as AddressInfo;
      const digests = Array.from({ length: 18 }, async () => {
        const answer = await new Promise<IncomingMessage>((resolve, reject) =>
          get({ host: '127.0.0.1', port, agent: false }, resolve).on('error', reject),
        );
        const hash = createHash('sha256');
        for await (const chunk of answer as AsyncIterable<Buffer>) hash.update(chunk);
        return `sha256:${hash.digest('hex')}`;
      });
      expect(new Set(await Promise.all(digests))).to.deep.equal(new Set([digestOf(bytes)]));
    } finally {
      await removeFolder(folder);
    }
  });

  it('writes small parts to a connection by TLS, which keeps memory for its largest write', async () => {
    await using authority = await makeAuthority();
    const { certificate: cert, key } = await authority.issue();
    const written: number[] = [];
    const secure = createTlsServer({ cert, key }, (_, response) => {
      const write = response.write.bind(response) as (chunk: Buffer, done: () => void) => boolean;
      response.write = (chunk: Buffer, done: unknown) => {
        written.push(chunk.length);
        return write(chunk, done as () => void);
      };
      response.writeHead(200, { 'Content-Length': size });
      sent = new ContentSender().send(zeros, size, response);
    });
    server = secure;
    await new Promise<void>((resolve) => secure.listen(0, '127.0.0.1', resolve));
    const { port } = secure.address() as AddressInfo;
    const answer = await new Promise<IncomingMessage>((resolve, reject) =>
      getByTls({ host: '127.0.0.1', port, ca: authority.certificate }, resolve).on('error', reject),
    );
    expect((await buffer(answer)).length).to.equal(size);
    await sent;
    expect(Math.max(...written)).to.equal(64 * 1024);
  });

  it('gives the check every chunk and the rest, and stops before the last one if it throws', async () => {
    const seen: number[] = [];
    const check = (part: Buffer, left: number): void => {
      seen.push(part.length);
      expect(seen.reduce((sum, each) => sum + each, 0) + left).to.equal(size);
      if (left === 0) throw new Error('corrupt');
    };
    const answer = await begin((response) =>
      new ContentSender().send(zeros, size, response, check).finally(() => response.destroy()),
    );
    const read = buffer(answer).then(
      () => 'whole',
      () => 'broken off',
    );
    expect(await read).to.equal('broken off');
    await sent.catch((error: unknown) => {
      expect(String(error)).to.contain('corrupt');
    });
  });

  it('gives a client up that takes nothing for too long, or takes too long for everything', async () => {
    for (const limits of [{ idleTimeout: 100, minimumRate: 2 ** 30 }, { maximumTime: 100 }]) {
      await begin((response) => new ContentSender(limits).send(zeros, size, response));
      expect((await failureOf(sent, 'unreachable')).message).to.contain('in time');
      server?.close().closeAllConnections();
    }
    const small = { idleTimeout: 100, minimumRate: 2 ** 30 };
    await begin((response) => {
      response.write(Buffer.alloc(size));
      return new ContentSender(small).finish(response);
    });
    await failureOf(sent, 'unreachable');
  });

  it('reads a small part first, and then large parts for sixteen clients at most', async () => {
    const [small, large] = [128 * 1024, 16 * 1024 * 1024];
    const parts: number[][] = [];
    const begun = Promise.withResolvers<undefined>();
    const sender = new ContentSender();
    const clients = 18;
    const first = await begin((response) => {
      const own: number[] = [];
      parts.push(own);
      // A client that reads nothing leaves its response in the second part.
      const read: ReadPart = (start, length) => {
        own.push(length);
        if (parts.filter((each) => each.length > 1).length === clients) begun.resolve(undefined);
        return zeros(start, length);
      };
      return sender.send(read, size, response);
    });
    const { port } = server?.address() as AddressInfo;
    for (let count = 1; count < clients; count++)
      get({ host: '127.0.0.1', port, agent: false }, () => undefined).on('error', () => undefined);
    await begun.promise;
    expect(parts.map(([length]) => length)).to.deep.equal(Array.from({ length: clients }, () => small));
    const second = parts.map(([, length]) => length);
    expect(second.filter((length) => length === large)).to.have.length(16);
    expect(second.filter((length) => length === small)).to.have.length(2);
    expect((await buffer(first)).length).to.equal(size);
    expect(parts[0]?.slice(2)).to.deep.equal([size - small - large]);
  });

  it('tells content that ends early', async () => {
    await begin((response) => new ContentSender().send(() => Readable.from([Buffer.alloc(9)]), 10, response), 10);
    await failureOf(sent, 'size-mismatch');
  });
});

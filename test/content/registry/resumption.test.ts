import { expect } from 'chai';
import { failureOf } from '../../support/program/failure.ts';
import { useTransport, bytes, digest } from './transportSite.ts';

describe('the resumption of a response', () => {
  const { start, open, download, stream } = useTransport();

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
});

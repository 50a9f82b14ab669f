import { mock } from 'node:test';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { downloadInto } from '../../../lib/content/registry/download.ts';
import { Registry } from '../../../lib/content/registry/registry.ts';
import { Transport } from '../../../lib/content/registry/transport.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { addBlob, Places } from '../../support/content/places.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('downloadInto', () => {
  const context = makeContext();
  const nobody = { authorize: () => Promise.resolve(undefined) };
  let connections: Connections;
  let transport: Transport;
  let places: Places;
  let first: TestRegistry;
  let second: TestRegistry;
  beforeEach(async () => {
    [first, second] = [await startRegistry(), await startRegistry()];
    places = await Places.make();
    connections = new Connections({ certificates: new Certificates({ insecure: true }), idleTimeout: 100 });
    transport = new Transport(connections, nobody, context, { insecure: true, baseDelay: 1, attempts: 3 });
  });
  afterEach(async () => {
    connections.close();
    await Promise.all([first.stop(), second.stop(), places.remove()]);
  });
  const at = (registry: TestRegistry): Registry =>
    new Registry({ registry: registry.host, repository: 'a/b' }, transport, context);
  const ranges = ({ requests }: TestRegistry): unknown[] => requests.map(({ headers }) => headers.range);
  const none = (): void => undefined;

  it('writes nothing outside its place', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'middle', 700_000);
    const before = await places.next(1000, Buffer.alloc(1000, 'b'));
    const place = await places.next(descriptor.size);
    const after = await places.next(1000, Buffer.alloc(1000, 'a'));
    await downloadInto(place, descriptor, [at(first)], none);
    expect((await places.read(place, descriptor.size)).equals(bytes)).to.equal(true);
    expect((await places.read(before, 1000)).toString()).to.equal('b'.repeat(1000));
    expect((await places.read(after, 1000)).toString()).to.equal('a'.repeat(1000));
  });

  it('never writes beyond its place, for any response of the server', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'long', 100_000);
    first.content.blobs.set(descriptor.digest, Buffer.concat([bytes, Buffer.alloc(5000, 'x')]));
    const place = await places.next(descriptor.size);
    const after = await places.next(1000, Buffer.alloc(1000, 'a'));
    await failureOf(downloadInto(place, descriptor, [at(first)], none), 'size-mismatch');
    first.fault(/blobs/, { chunked: true });
    await failureOf(downloadInto(place, descriptor, [at(first)], none), 'size-mismatch');
    expect((await places.read(after, 1000)).toString()).to.equal('a'.repeat(1000));
  });

  it('takes over after a server that has fallen silent again and again', async () => {
    const { descriptor, bytes } = addBlob(second.content, 'silent', 500_000);
    first.content.blobs.set(descriptor.digest, bytes);
    first.fault(/blobs/, { cut: { after: 1000, how: 'stall' } });
    const place = await places.next(descriptor.size);
    await downloadInto(place, descriptor, [at(first), at(second)], none);
    expect((await places.read(place, descriptor.size)).equals(bytes)).to.equal(true);
    expect(second.requests).to.have.length(1);
  });

  it('reports the number of bytes, including existing ones', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'progress', 20_000_000);
    const present = bytes.subarray(0, 6_000_000);
    const place = await places.next(descriptor.size, present);
    const counts: number[] = [];
    await downloadInto(place, descriptor, [at(first)], (now) => counts.push(now));
    expect(counts).not.to.deep.equal([]);
    expect(counts).to.deep.equal(counts.toSorted((a, b) => a - b));
    expect(counts[0]).to.be.above(present.length);
    expect(counts.at(-1)).to.be.at.most(descriptor.size);
  });

  it('reports less than a megabyte if that takes a while', async () => {
    const pieces = Array.from({ length: 4 }, () => Buffer.alloc(300 * 1024, 'x'));
    const { descriptor } = addBlob(first.content, 'slow', 100);
    let time = 0;
    const slow = {
      name: 'a slow line',
      download: (_: unknown, _start: number, receive: (chunk: Buffer) => void): Promise<void> => {
        for (const piece of pieces) {
          receive(piece);
          time += 1000;
        }
        return Promise.resolve();
      },
    };
    const content = { ...descriptor, digest: digestOf(Buffer.concat(pieces)), size: 1200 * 1024 };
    const counts: number[] = [];
    const place = await places.next(content.size);
    const { mock: clock } = mock.method(performance, 'now', () => time);
    try {
      await downloadInto(place, content, [slow], (present) => counts.push(present / 1024));
    } finally {
      clock.restore();
    }
    expect(counts).to.deep.equal([300, 600, 900, 1200]);
  });

  it('does not trust existing bytes even if the server is right, and requests all of them once', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'corrupt', 300_000);
    const corrupt = Buffer.concat([Buffer.alloc(1), bytes.subarray(1, 200_000)]);
    const place = await places.next(descriptor.size, corrupt);
    await downloadInto(place, descriptor, [at(first), at(second)], none);
    expect((await places.read(place, descriptor.size)).equals(bytes)).to.equal(true);
    expect(ranges(first)).to.deep.equal(['bytes=200000-', undefined]);
    expect(second.requests).to.deep.equal([]);
  });

  it('requests corrupt content once, if no byte of it was present', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'corrupt', 3000);
    first.content.blobs.set(descriptor.digest, bytes.fill(1, 0, 1));
    await failureOf(downloadInto(await places.next(descriptor.size), descriptor, [at(first)], none), 'digest-mismatch');
    expect(first.requests).to.have.length(1);
  });

  it('trusts no journal with more bytes than the content', async () => {
    const { descriptor, bytes } = addBlob(first.content, 'more', 3000);
    const place = await places.next(descriptor.size, bytes);
    await downloadInto({ ...place, present: 1e9 }, descriptor, [at(first)], none);
    expect(first.requests).to.deep.equal([]);
  });

  it('brings content without a byte', async () => {
    const { descriptor } = addBlob(first.content, 'empty', 0);
    const empty = {
      ...descriptor,
      digest: `sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855`,
      size: 0,
    } as const;
    first.content.blobs.set(empty.digest, Buffer.alloc(0));
    await downloadInto(await places.next(0), empty, [at(first)], none);
    await failureOf(downloadInto(await places.next(0), empty, [at(second)], none), 'not-found');
  });
});

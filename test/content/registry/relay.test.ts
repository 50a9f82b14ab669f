import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { DestinationError, relayInto, type RelaySource } from '../../../lib/content/registry/relay.ts';
import { verifyStream } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { failureOf } from '../../support/program/failure.ts';

const small = Buffer.from('a small blob');
const large = Buffer.alloc(33 * 1024 * 1024, 'large ');

function describeBytes(bytes: Buffer): Descriptor {
  return { mediaType: 'application/octet-stream', digest: digestOf(bytes), size: bytes.length };
}

/** A source that returns the same bytes for every request. */
function sourceOf(name: string, bytes: Buffer): RelaySource {
  return {
    name,
    open: () => Promise.resolve(Readable.from([bytes], { objectMode: false })),
    download: (_descriptor, start, receive) => {
      // Chunks are valid only during the call.
      const chunk = Buffer.from(bytes.subarray(start));
      receive(chunk);
      chunk.fill(0);
      return Promise.resolve();
    },
  };
}

const broken: RelaySource = {
  name: 'broken.test/a',
  open: () => Promise.reject(new PluginError('unreachable', 'broken.test does not answer')),
  download: () => Promise.reject(new PluginError('unreachable', 'broken.test does not answer')),
};

describe('relayInto', () => {
  let stored: Buffer[] = [];
  const destination = {
    push: async (descriptor: Descriptor, open: () => Promise<Readable>): Promise<void> => {
      stored.push(await buffer(verifyStream(await open(), descriptor, 'destination')));
    },
  };
  const refusing = {
    push: async (_: Descriptor, open: () => Promise<Readable>): Promise<void> => {
      (await open()).destroy();
      throw new PluginError('denied', 'destination.test: nobody may write here');
    },
  };
  const none = (): void => undefined;
  beforeEach(() => {
    stored = [];
  });

  for (const [size, bytes] of Object.entries({ small, large })) {
    it(`brings ${size} content from the first source that has it right`, async () => {
      const sources = [
        broken,
        sourceOf('corrupt.test/a', Buffer.from(bytes).fill(1, 0, 1)),
        sourceOf('c.test/a', bytes),
      ];
      const heard: number[] = [];
      await relayInto(destination, describeBytes(bytes), sources, (present) => heard.push(present));
      expect(stored).to.have.length(1);
      expect(stored[0]?.equals(bytes)).to.equal(true);
      expect(heard.at(-1) ?? 0).to.be.at.most(bytes.length);
    });

    it(`tells a destination that refuses ${size} content from a source that fails`, async () => {
      const descriptor = describeBytes(bytes);
      const refused: unknown = await relayInto(refusing, descriptor, [sourceOf('a.test/a', bytes)], none).catch(
        (error: unknown) => error,
      );
      expect(refused).to.be.instanceOf(DestinationError);
      expect((refused as DestinationError).failure.code).to.equal('denied');
      const error = await failureOf(relayInto(destination, descriptor, [broken], none), 'unreachable');
      expect(error.message).to.contain('broken.test');
    });

    it(`blames the source for ${size} content that is corrupt`, async () => {
      const sources = [sourceOf('corrupt.test/a', Buffer.from(bytes).fill(1, 0, 1))];
      await failureOf(relayInto(destination, describeBytes(bytes), sources, none), 'digest-mismatch');
    });
  }

  it('blames neither of them for an error of this program', async () => {
    const error = new TypeError('not a function');
    const failing = { push: () => Promise.reject(error) };
    const caught: unknown = await relayInto(failing, describeBytes(small), [sourceOf('a', small)], none).catch(
      (reason: unknown) => reason,
    );
    expect(caught).to.equal(error);
  });

  it('blames the source for large content that ends early', async () => {
    async function* half(): AsyncGenerator<Buffer> {
      yield large.subarray(0, 1000);
      await Promise.resolve();
      throw new PluginError('unreachable', 'cut.test went away');
    }
    const source = { ...sourceOf('cut.test/a', large), open: () => Promise.resolve(Readable.from(half())) };
    await failureOf(relayInto(destination, describeBytes(large), [source], none), 'unreachable');
  });

  it('brings many pieces at once, none of them mixed up', async () => {
    const pieces = Array.from({ length: 40 }, (_, index) => Buffer.alloc(1000 + index, String(index)));
    await Promise.all(
      pieces.map((piece) => relayInto(destination, describeBytes(piece), [sourceOf('a.test/a', piece)], none)),
    );
    expect(stored.map((bytes) => bytes.length).sort()).to.deep.equal(pieces.map((bytes) => bytes.length).sort());
  });
});

import { pipeline, Readable, Transform } from 'node:stream';
import { isPluginError, type PluginError } from '#errors';
import type { Descriptor } from '../oci/descriptor.ts';
import type { ContentStore } from '../store/store.ts';
import type { DownloadSource } from './download.ts';
import { firstSuccess } from './fallbackSource.ts';

/** A source of unverified content, as a stream or in synchronous chunks: a Registry. */
export interface RelaySource extends DownloadSource {
  open(descriptor: Descriptor): Promise<Readable>;
}

type Destination = Pick<ContentStore, 'push'>;

/** The error of a relay that failed at its destination, and not at one of its sources. `failure` is the cause. */
export class DestinationError extends Error {
  readonly failure: PluginError;

  constructor(failure: PluginError) {
    super(failure.message, { cause: failure });
    this.failure = failure;
  }
}

const noteEvery = 4 * 1024 * 1024;

/** The size up to which content is read into memory before it is sent, in bytes. This costs less than a stream. */
const wholeLimit = 32 * 1024 * 1024;

/** Buffers for such content. Reusing them saves half of the work. */
const spare: Buffer[] = [];

/**
 * Copies content into a store from the first source that has it. The store verifies it. `onProgress` gets the number of
 * sent bytes, every few megabytes. Throws DestinationError for errors of the store, and the errors of the sources.
 */
export async function relayInto(
  destination: Destination,
  descriptor: Descriptor,
  sources: readonly RelaySource[],
  onProgress: (present: number) => void,
): Promise<void> {
  await firstSuccess(sources, (source) =>
    descriptor.size > wholeLimit
      ? relayStream(destination, descriptor, source, onProgress)
      : relayWhole(destination, descriptor, source),
  );
}

async function relayWhole(destination: Destination, descriptor: Descriptor, source: RelaySource): Promise<void> {
  const memory = spare.pop() ?? Buffer.allocUnsafeSlow(wholeLimit);
  let length = 0;
  await source.download(descriptor, 0, (chunk) => {
    length += chunk.copy(memory, length);
  });
  const open = (): Promise<Readable> =>
    Promise.resolve(Readable.from([memory.subarray(0, length)], { objectMode: false }));
  await destination.push(descriptor, open).catch(blameDestination);
  // Only after success, because after a failure a connection may still read it.
  spare.push(memory);
}

async function relayStream(
  destination: Destination,
  descriptor: Descriptor,
  source: RelaySource,
  onProgress: (present: number) => void,
): Promise<void> {
  let atSource: Error | undefined;
  const open = async (): Promise<Readable> => {
    atSource = undefined;
    const content = await source.open(descriptor).catch((error: unknown) => {
      atSource = error as Error;
      throw error;
    });
    const counted = countInto(onProgress);
    // A failed destination destroys the stream that it reads. That is not an error of the source.
    content.once('error', (error) => (atSource = counted.destroyed ? undefined : error));
    return pipeline(content, counted, () => undefined);
  };
  await destination.push(descriptor, open).catch((error: unknown) => {
    if (atSource !== undefined) throw atSource;
    blameDestination(error);
  });
}

function blameDestination(error: unknown): never {
  // Content that arrives corrupt is corrupt at the source.
  if (!isPluginError(error) || /^(?:digest|size)-mismatch$|^interrupted$/.test(error.code)) throw error;
  throw new DestinationError(error);
}

function countInto(onProgress: (present: number) => void): Transform {
  let [position, noted] = [0, 0];
  return new Transform({
    readableHighWaterMark: 1024 * 1024,
    transform(chunk: Buffer, _encoding, done) {
      position += chunk.length;
      if (position - noted >= noteEvery) onProgress((noted = position));
      done(null, chunk);
    },
  });
}

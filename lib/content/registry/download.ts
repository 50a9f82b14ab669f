import { isPluginError } from '#errors';
import { WriteTurn } from '../archive/writeTurn.ts';
import { describeWriteError } from '../files/disk.ts';
import { readPieces, writePieces } from '../files/fileRange.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import { Verifier, type ContentPlace } from '../store/store.ts';
import { firstSuccess } from './fallbackSource.ts';

/** A source that delivers content in synchronous chunks, from an offset in bytes: a Registry. */
export interface DownloadSource {
  readonly name: string;
  download(descriptor: Descriptor, start: number, receive: (chunk: Buffer) => void): Promise<void>;
}

/**
 * The smallest number of bytes and the shortest time (milliseconds) between two reports of progress. The second pair is
 * for slow networks.
 */
const noteEvery = [
  { bytes: 1024 * 1024, time: 200 },
  { bytes: 256 * 1024, time: 1000 },
] as const;
const chunkSize = 1024 * 1024;

/**
 * Downloads content into its place in a file, from the first source that has it, and verifies it meanwhile. Hashes
 * existing bytes first, and keeps them. `onProgress` gets the number of written bytes, after each megabyte, or each
 * second on a slow network. Throws `digest-mismatch`, `size-mismatch`, `disk-full`, and the errors of the sources.
 */
export async function downloadInto(
  place: ContentPlace,
  descriptor: Descriptor,
  sources: readonly DownloadSource[],
  onProgress: (present: number) => void,
): Promise<void> {
  await firstSuccess(sources, async (source) => {
    try {
      await receiveInto(place, descriptor, source, onProgress);
    } catch (error) {
      if (place.present === 0 || !isPluginError(error, 'digest-mismatch')) throw error;
      // The bytes of an earlier run may be corrupt.
      await receiveInto({ ...place, present: 0 }, descriptor, source, onProgress);
    }
  });
}

async function receiveInto(
  place: ContentPlace,
  descriptor: Descriptor,
  source: DownloadSource,
  onProgress: (present: number) => void,
): Promise<void> {
  const verifier = new Verifier(descriptor, source.name);
  const turn = new WriteTurn(place.writing);
  const present = Math.min(place.present, descriptor.size);
  const buffer = Buffer.allocUnsafe(Math.min(chunkSize, present));
  while (verifier.length < present) {
    const length = Math.min(buffer.length, present - verifier.length);
    readPieces(place.pieces, buffer.subarray(0, length), verifier.length);
    verifier.update(buffer.subarray(0, length));
  }
  let noted = { bytes: present, time: -Infinity };
  await source.download(descriptor, present, (chunk) => {
    const offset = verifier.length;
    turn.writeAnd(
      () => {
        write(place, chunk, offset);
      },
      () => {
        verifier.update(chunk);
      },
    );
    const fresh = { bytes: verifier.length - noted.bytes, time: performance.now() - noted.time };
    if (!noteEvery.some(({ bytes, time }) => fresh.bytes >= bytes && fresh.time >= time)) return;
    noted = { bytes: verifier.length, time: performance.now() };
    onProgress(noted.bytes);
  });
  verifier.finish();
}

function write({ path, pieces }: ContentPlace, chunk: Buffer, offset: number): void {
  try {
    writePieces(pieces, chunk, offset);
  } catch (error) {
    throw describeWriteError(error, path);
  }
}

import { checkInterrupted, type Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import type { Digest } from '../../oci/digest.ts';
import type { ArchiveWriter } from '../../archive/archiveWriter.ts';
import { Verifier } from '../../store/store.ts';
import { VolumeHash, type ArchiveDigests } from '../../archive/volumeDigests.ts';

/** Large reads, because each read wakes a thread and waits for its reply. */
const readSize = 4 * 1024 * 1024;

/**
 * Computes the digests of a tar and of its volumes while the tar is filled. Reads from the beginning, and waits for
 * each blob with `arrivalOf`. Verifies the blobs of an earlier run, and calls `fetchAgain` for a blob that a power
 * failure damaged.
 */
export async function digestWhole(
  writer: ArchiveWriter,
  arrivalOf: (digest: Digest) => Promise<void>,
  fetchAgain: (digest: Digest) => Promise<void>,
  context: Context,
): Promise<ArchiveDigests> {
  let hash = new VolumeHash(writer.volumes);
  let position = 0;
  const buffer = Buffer.allocUnsafeSlow(readSize);
  const readRange = async (from: number, to: number, readers: readonly (VolumeHash | Verifier)[]): Promise<void> => {
    for (let at = from; at < to;) {
      checkInterrupted(context.signal);
      const length = await writer.read(buffer.subarray(0, to - at), at);
      if (length === 0) {
        throw new PluginError(
          'not-readable',
          `${writer.name} is shorter than expected: another program may be writing it`,
        );
      }
      for (const reader of readers) reader.update(buffer.subarray(0, length));
      at += length;
    }
  };
  for (const { entry, start, size } of writer.layout.entries) {
    if (!('descriptor' in entry)) continue;
    const { digest } = entry.descriptor;
    await arrivalOf(digest);
    await readRange(position, start, [hash]);
    position = start + size;
    const before = hash.copy();
    const verifier = writer.resumed.has(digest) ? new Verifier(entry.descriptor, writer.name) : undefined;
    await readRange(start, position, verifier ? [hash, verifier] : [hash]);
    if (!verifier || verifier.matches()) continue;
    context.log('warn', `${digest} is corrupt since the last run: fetching it again`);
    writer.forget(digest);
    await fetchAgain(digest);
    hash = before;
    await readRange(start, position, [hash]);
  }
  await readRange(position, writer.layout.size, [hash]);
  return hash.finish();
}

import { createHash, type Hash } from 'node:crypto';
import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import type { ArchiveWriter } from '../store/archiveWriter.ts';
import { Verifier } from '../store/store.ts';
import { allOrReport, type Contents, type StoredBlob } from './contents.ts';
import type { Origin } from './origin.ts';

const chunkSize = 1024 * 1024;

/**
 * Brings every blob into its place and returns the digest of the whole tar, which is taken over what is there from the
 * beginning while later blobs are still coming. What an earlier run left is checked on the way and fetched anew where it
 * is altered. Blobs that fail do not keep the others from coming; all are named at the end.
 */
export async function fillBundle(
  writer: ArchiveWriter,
  contents: Contents,
  origin: Origin,
  context: Context,
): Promise<{ digest: Digest; fetched: number }> {
  let fetched = 0;
  const missing = new Map([...contents.images].map((image) => [image, 0]));
  const bring = async (blob: StoredBlob): Promise<void> => {
    const { digest, size } = blob.descriptor;
    let done = writer.place(digest)?.present ?? 0;
    const count = (present: number): void => {
      fetched += present - done;
      context.onEvent({ kind: 'bytes', digest, bytes: present - done });
      done = present;
    };
    await origin.bring(blob, writer, (present) => {
      writer.noteProgress(digest, present);
      count(present);
    });
    count(size);
    context.onEvent({ kind: 'stored', digest, size });
    for (const image of blob.images) arrive(image);
  };
  const arrive = (image: { name: string }): void => {
    const left = (missing.get(image as never) ?? 0) - 1;
    missing.set(image as never, left);
    if (left === 0) context.onEvent({ kind: 'image', name: image.name });
  };

  const blobs = [...contents.blobs.values()];
  const wanted = blobs.filter(({ descriptor }) => !writer.resumed.has(descriptor.digest));
  announce(blobs, wanted, writer, contents, context);
  for (const { images } of wanted) for (const image of images) missing.set(image, (missing.get(image) ?? 0) + 1);
  for (const [image, count] of missing) if (count === 0) context.onEvent({ kind: 'image', name: image.name });

  // Whoever waits for a blob that failed must not be left waiting; the failure itself is reported by allOrReport.
  const arrivals = new Map(wanted.map((blob) => [blob.descriptor.digest, bring(blob)]));
  for (const arrival of arrivals.values()) arrival.catch(() => undefined);
  const whole = hashWhole(
    writer,
    arrivals,
    async (digest) => {
      const blob = contents.blobs.get(digest);
      if (blob) await allOrReport([[nameOf(blob), bring(blob)]]);
    },
    context,
  );
  whole.catch(() => undefined);
  await allOrReport(wanted.map((blob) => [nameOf(blob), arrivals.get(blob.descriptor.digest) ?? Promise.resolve()]));
  return { digest: await whole, fetched };
}

function announce(
  blobs: readonly StoredBlob[],
  wanted: readonly StoredBlob[],
  writer: ArchiveWriter,
  contents: Contents,
  context: Context,
): void {
  const sum = (list: readonly StoredBlob[], size: (blob: StoredBlob) => number): number =>
    list.reduce((total, blob) => total + size(blob), 0);
  const bytes = sum(blobs, ({ descriptor }) => descriptor.size);
  const present = sum(blobs, ({ descriptor }) => writer.place(descriptor.digest)?.present ?? 0);
  context.onEvent({ kind: 'plan', images: contents.images.length, blobs: wanted.length, bytes, present });
}

function nameOf({ images, descriptor }: StoredBlob): string {
  const [first] = images;
  const others = images.size > 1 ? ` and ${String(images.size - 1)} more` : '';
  return first ? `${first.name}${others}` : descriptor.digest;
}

async function hashWhole(
  writer: ArchiveWriter,
  arrivals: ReadonlyMap<Digest, Promise<void>>,
  bringAgain: (digest: Digest) => Promise<void>,
  context: Context,
): Promise<Digest> {
  let hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(chunkSize);
  const hashRange = async (from: number, to: number, into: readonly Pick<Hash, 'update'>[]): Promise<void> => {
    for (let at = from; at < to;) {
      checkInterrupted(context.signal);
      const length = await writer.read(buffer.subarray(0, Math.min(chunkSize, to - at)), at);
      if (length === 0)
        throw new PluginError('not-readable', `${writer.name} ends before its time: is another program writing it?`);
      for (const each of into) each.update(buffer.subarray(0, length));
      at += length;
    }
  };
  let position = 0;
  for (const { entry, start, size } of writer.layout.entries) {
    if (!('descriptor' in entry)) continue;
    const { digest } = entry.descriptor;
    await hashRange(position, start, [hash]);
    await arrivals.get(digest);
    if (writer.resumed.has(digest)) {
      // The journal may say more than the disk kept, after a power failure.
      const before = hash.copy();
      const verifier = new Verifier(entry.descriptor, writer.name);
      await hashRange(start, start + size, [hash, verifier as unknown as Hash]);
      if (!verifier.matches()) {
        context.log('warn', `${digest} was altered since the last run: fetching it again`);
        writer.forget(digest);
        await bringAgain(digest);
        hash = before;
        await hashRange(start, start + size, [hash]);
      }
    } else {
      await hashRange(start, start + size, [hash]);
    }
    position = start + size;
  }
  await hashRange(position, writer.layout.size, [hash]);
  return `sha256:${hash.digest('hex')}`;
}

import { Readable } from 'node:stream';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { makeContext } from '../context.ts';

/** The work of a process: write all content into an archive, but stop in the middle of one item. */
interface Work {
  readonly entries: readonly TarEntry[];
  readonly content: readonly { descriptor: Descriptor; bytes: Uint8Array }[];
  /** The number of complete items. */
  readonly stopAfter: number;
}

const [, , path = ''] = process.argv;

process.once('message', (work: Work) => {
  void write(work);
});

async function write({ entries, content, stopAfter }: Work): Promise<void> {
  const writer = await ArchiveWriter.open(path, layOutTar(entries.map(revive)), makeContext());
  for (const [index, { descriptor, bytes }] of content.entries()) {
    const halfway = async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from(bytes.subarray(0, bytes.length / 2));
      await new Promise(() => undefined);
    };
    const open = (): Readable => (index < stopAfter ? Readable.from([Buffer.from(bytes)]) : Readable.from(halfway()));
    await writer.push(descriptor, () => Promise.resolve(open()));
    process.send?.(descriptor.digest);
  }
}

/** Buffers arrive in another process as plain arrays of bytes. */
function revive(entry: TarEntry): TarEntry {
  return 'content' in entry ? { ...entry, content: Buffer.from(entry.content) } : entry;
}

import { join } from 'node:path';
import { Readable } from 'node:stream';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar, type TarEntry, type TarLayout } from '../../../lib/content/archive/tarLayout.ts';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { contentOf, makeSample, type Sample } from '../../content/store/contract.ts';
import { makeContext } from '../context.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';
import { entriesOf, makeTarFile, withoutContent } from './archive.ts';

/** Gives each test of the suite a layout to write, and returns functions that write all or some of its content. */
export function useWrittenArchive() {
  const repository = 'openshift/release';
  const context = makeContext();
  let sample: Sample;
  let folder: string;
  let path: string;
  let whole: Buffer;
  let entries: TarEntry[];
  let layout: TarLayout;
  let writers: ArchiveWriter[];
  beforeEach(async () => {
    writers = [];
    sample = makeSample(repository);
    folder = await makeFolder();
    path = join(folder, 'upgrade.tar');
    const metadata = { path: 'metadata.json', content: Buffer.from('{"version":"1.0"}\n') };
    const full = [metadata, ...(await entriesOf(sample.content, repository))];
    whole = makeTarFile(full);
    entries = withoutContent(full);
    layout = layOutTar(entries);
  });
  afterEach(async () => {
    for (const writer of writers) await writer.close();
    await removeFolder(folder);
  });

  const openWriter = async (planned = layout, at = path): Promise<ArchiveWriter> => {
    const writer = await ArchiveWriter.open(at, planned, context);
    writers.push(writer);
    return writer;
  };
  const pushAll = async (writer: ArchiveWriter): Promise<void> => {
    for (const { descriptor, bytes } of (await contentOf(sample)).reverse()) {
      await writer.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    }
  };
  const pushSome = async (writer: ArchiveWriter): Promise<Descriptor> => {
    const [first] = await contentOf(sample);
    if (!first) throw new Error('the sample is empty');
    await writer.push(first.descriptor, () => Promise.resolve(Readable.from([first.bytes])));
    return first.descriptor;
  };

  return { made: () => ({ sample, folder, path, whole, entries, layout, writers }), openWriter, pushAll, pushSome };
}

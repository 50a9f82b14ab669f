import {
  Archive,
  type ArchiveFile,
  type ArchiveEntry,
  DigestThread,
  SameBytes,
  VolumeHash,
  type ArchiveDigests,
  type Volume,
  endSize,
  roundToBlock,
} from '#content/archive';
import { sumSizes } from '#content/oci';
import { releaseRepository } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { metadataPath, metadataSizeLimit, parseMetadata } from '../metadata/metadata.ts';
import { type Bundle, type BundlePart, type OpenBundleOptions, type Scanner, comparedName } from './bundle.ts';
import { checkVolumes, volumeError } from './split.ts';

/** Opens a bundle in a tar or in volumes of a tar. Throws `invalid-bundle` and `not-readable`. */
export async function openTar(
  path: string,
  { tolerant = false, onMedium = false }: OpenBundleOptions,
  context: Context,
): Promise<Bundle> {
  return readBundle(path, await Archive.open(path, context, true, onMedium), tolerant, context);
}

/** Opens a bundle in a tar on another machine. Throws what openTar throws, and the errors of reading. */
export async function openRemoteTar(path: string, file: ArchiveFile, context: Context): Promise<Bundle> {
  const foundArchive = { path, volumes: [{ path, size: file.size }], severed: [] };
  return readBundle(path, await Archive.openFile(foundArchive, file, context, true), false, context);
}

/** Returns the bundle in an archive. Closes the archive if it has none. */
async function readBundle(path: string, archive: Archive, tolerant: boolean, context: Context): Promise<Bundle> {
  try {
    if (archive.entries.keys().next().value !== metadataPath) {
      const what = `${path} is a tar, but not an upgrade bundle: it does not begin with ${metadataPath}`;
      throw new PluginError('invalid-bundle', what, { hint: 'Create bundles with the command create.' });
    }
    // The headers of a damaged tar are not all listed. It is never good.
    const same = new SameBytes(path, archive.damage ? undefined : archive.headers);
    const metadata = parseMetadata(same.check(metadataPath, await archive.read(metadataPath, metadataSizeLimit)), path);
    const faults = checkVolumes(metadata, archive.found);
    const damage = archive.damage && (volumeError(faults) ?? archive.damage);
    const refusal = volumeError(faults) ?? damage;
    if (refusal && !tolerant) throw refusal;
    const { volumes } = archive.found;
    const length = sumSizes(volumes);
    const trailing = damage || length === Infinity ? 0 : Math.max(0, length - archive.size);
    return {
      path,
      form: 'tar',
      metadata,
      described: true,
      size: archive.size,
      trailing,
      isRepacked: archive.isRepacked,
      volumes,
      faults,
      content: archive.repository(releaseRepository),
      files: [...archive.entries.values()],
      damage,
      isCut: damage !== undefined && faults.length === 0 && (await endsBefore(archive, metadata.size)),
      cutEntry: archive.cutEntry,
      read: async (file) => same.check(file, await archive.read(file)),
      chunks: (start, size) => archive.chunks(start, size),
      scan: async (scanner) => {
        const watched = same.watch(scanner, comparedName);
        const digests = await scanTar({ archive, volumes, trailing }, watched.scanner, context);
        watched.finish();
        return digests;
      },
      [Symbol.asyncDispose]: () => archive.close(),
    };
  } catch (error) {
    await archive.close();
    throw error;
  }
}

// Returns whether a tar ends before a size. The size of a device is unknown, so the last byte is read.
async function endsBefore(archive: Archive, size: number): Promise<boolean> {
  for await (const chunk of archive.chunks(Math.max(0, size - 1), 1)) return chunk.length === 0;
  return true;
}

interface Section {
  readonly part: BundlePart;
  readonly end: number;
}

interface ScannedTar {
  readonly archive: Archive;
  readonly volumes: readonly Volume[];
  readonly trailing: number;
}

/** The size in bytes up to which hashing takes no longer than starting a thread. */
const smallTar = 16 * 1024 * 1024;

/** Passes each part to the scanner, and hashes the whole tar meanwhile. */
async function scanTar(tar: ScannedTar, scanner: Scanner, context: Context): Promise<ArchiveDigests> {
  const { archive, volumes, trailing } = tar;
  const size = archive.size + trailing;
  const isSmall = size <= smallTar;
  const hash = isSmall ? new VolumeHash(volumes) : new DigestThread(volumes, context);
  try {
    const scanChunk = splitChunks(listSections(archive, trailing), scanner);
    let hashed: Promise<unknown> | void = undefined;
    for await (const chunk of isSmall ? archive.chunks(0, size) : archive.chunksAhead(0, size)) {
      checkInterrupted(context.signal);
      const before = hashed;
      hashed = hash.update(chunk);
      scanChunk(chunk);
      // The buffer of this chunk is reused for the chunk after the next.
      await before;
    }
    return await hash.finish();
  } finally {
    if (hash instanceof DigestThread) await hash.close();
  }
}

/** Returns a function that splits the chunks of a tar into the parts for a scanner. */
function splitChunks(sections: Iterator<Section, undefined>, scanner: Scanner): (chunk: Buffer) => void {
  let section = sections.next().value;
  let position = 0;
  return (chunk) => {
    for (let rest = chunk; section && rest.length > 0;) {
      const part = rest.subarray(0, section.end - position);
      scanner(section.part, part);
      position += part.length;
      rest = rest.subarray(part.length);
      if (position === section.end) section = sections.next().value;
    }
  };
}

/** Lists the sections of a tar, in order and without gaps. */
function* listSections(archive: Archive, trailing: number): Generator<Section, undefined> {
  let end = 0;
  const until = function* (part: BundlePart, next: number): Generator<Section> {
    // A file without content has a section too.
    if (next > end || typeof part === 'object') yield { part, end: (end = next) };
  };
  for (const entry of archive.entries.values()) {
    yield* until('header', entry.start);
    yield* until(entry, contentEnd(entry));
    yield* until('padding', roundToBlock(contentEnd(entry)));
  }
  // Folders may follow the last file.
  yield* until('header', archive.damage ? archive.size : archive.size - endSize);
  yield* until('padding', archive.size);
  yield* until('trailing', archive.size + trailing);
  return undefined;
}

function contentEnd({ start, size }: ArchiveEntry): number {
  return start + size;
}

import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { Archive, type ArchiveEntry } from '../archive/archive.ts';
import { releaseRepository } from '../store/directory.ts';
import { endSize, roundToBlock } from '../archive/tarLayout.ts';
import { metadataPath, metadataSizeLimit, parseMetadata } from './metadata.ts';
import type { Bundle } from './bundle.ts';
import type { OpenBundleOptions } from './bundle.ts';
import type { Scanner } from './bundle.ts';
import type { BundlePart } from './bundle.ts';
import { checkVolumes, volumeError } from './split.ts';

/** Opens a bundle in a tar or in volumes of a tar. Throws `invalid-bundle` and `not-readable`. */
export async function openTar(
  path: string,
  { tolerant = false, onMedium = false }: OpenBundleOptions,
  context: Context,
): Promise<Bundle> {
  const archive = await Archive.open(path, context, true, onMedium);
  try {
    if (archive.entries.keys().next().value !== metadataPath) {
      const what = `${path} is a tar, but not an upgrade bundle: it does not begin with ${metadataPath}`;
      throw new PluginError('invalid-bundle', what, { hint: 'Create bundles with the command create.' });
    }
    const metadata = parseMetadata(await archive.read(metadataPath, metadataSizeLimit), path);
    const faults = checkVolumes(metadata, archive.found);
    const damage = archive.damage && (volumeError(faults) ?? archive.damage);
    if (damage && !tolerant) throw damage;
    // Volumes that the metadata does not name are those of another bundle.
    const volumes = archive.found.volumes.slice(0, metadata.volumes?.length);
    const length = volumes.reduce((sum, { size }) => sum + size, 0);
    const trailing = damage || length === Infinity ? 0 : Math.max(0, length - archive.size);
    for (const { path: stray } of archive.found.volumes.slice(volumes.length))
      context.log('warn', `${stray} is not a volume of this bundle, and is ignored`);
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
      read: (file) => archive.read(file),
      chunks: (start, size) => archive.chunks(start, size),
      scan: (scanner) => scanTar(archive, trailing, scanner, context),
      close: () => archive.close(),
    };
  } catch (error) {
    await archive.close();
    throw error;
  }
}

// A device does not tell its size.
async function endsBefore(archive: Archive, size: number): Promise<boolean> {
  for await (const chunk of archive.chunks(Math.max(0, size - 1), 1)) return chunk.length === 0;
  return true;
}

interface Section {
  readonly part: BundlePart;
  readonly end: number;
}

async function scanTar(archive: Archive, trailing: number, scanner: Scanner, context: Context): Promise<void> {
  const sections = listSections(archive, trailing);
  let section = sections.next().value;
  let position = 0;
  for await (const bytes of archive.chunks(0, archive.size + trailing)) {
    checkInterrupted(context.signal);
    let chunk = bytes;
    while (section && chunk.length > 0) {
      const part = chunk.subarray(0, section.end - position);
      scanner(section.part, part);
      position += part.length;
      chunk = chunk.subarray(part.length);
      if (position === section.end) section = sections.next().value;
    }
  }
}

/** What lies where in a tar, in order and without a gap. */
function* listSections(archive: Archive, trailing: number): Generator<Section, undefined> {
  let end = 0;
  const until = function* (part: BundlePart, next: number): Generator<Section> {
    // A file without content is told of all the same.
    if (next > end || typeof part === 'object') yield { part, end: (end = next) };
  };
  for (const entry of archive.entries.values()) {
    yield* until('header', entry.start);
    yield* until(entry, contentEnd(entry));
    yield* until('padding', roundToBlock(contentEnd(entry)));
  }
  // Behind the last file there may be folders.
  yield* until('header', archive.damage ? archive.size : archive.size - endSize);
  yield* until('padding', archive.size);
  yield* until('trailing', archive.size + trailing);
  return undefined;
}

function contentEnd({ start, size }: ArchiveEntry): number {
  return start + size;
}

/** Archives in the tar format: reading, writing and verifying them, as one file or as volumes. */
export { Archive, type ArchiveFile } from './archive/archive.ts';
export { ArchiveWriter } from './archive/archiveWriter.ts';
export { DigestThread } from './archive/digestThread.ts';
export { isFile, makeLayer, readLayer, type EntryContent, type LayerEntry } from './archive/layerReader.ts';
export { SameBytes } from './archive/sameBytes.ts';
export { isHeader, isZero, looksPacked } from './archive/tarHeader.ts';
export {
  encodeHeader,
  encodeTar,
  endSize,
  layOutTar,
  readTarStream,
  roundToBlock,
  type StreamedFile,
  type TarEntry,
  type TarLayout,
} from './archive/tarLayout.ts';
export type { ArchiveEntry } from './archive/tarListing.ts';
export { isBegun, partialOf } from './archive/unfinished.ts';
export {
  VolumeHash,
  findArchive,
  hashVolume,
  listVolumeSets,
  parseVolumeName,
  planVolumes,
  tarOf,
  volumeLimit,
  volumeName,
  type ArchiveDigests,
  type FoundArchive,
  type Volume,
} from './archive/volumes.ts';

import type { ArchiveDigests } from '../archive/volumeDigests.ts';
import type { Volume } from '../archive/volumes.ts';
import type { ContentSource, LocalContent } from '../store/store.ts';
import type { PluginError } from '../errors.ts';
import type { Problem } from './problem.ts';
import type { BundleMetadata } from './metadata.ts';

/** The part of a bundle that some bytes belong to: a file, or what a tar has around its files. */
export type BundlePart = BundleFile | 'header' | 'padding' | 'trailing';

/** A file of a bundle, or a symbolic link with its target. */
export interface BundleFile {
  readonly path: string;
  /** In bytes. */
  readonly size: number;
  readonly target?: string;
}

/** Takes the bytes of a bundle, synchronously and in order. The first chunk of a file may be empty; a chunk is not kept. */
export type Scanner = (part: BundlePart, chunk: Buffer) => void;

/** Options for opening a bundle. */
export interface OpenBundleOptions {
  /** A tar that is cut short is opened as far as it goes. */
  readonly tolerant?: boolean;
  /** It was found on a medium, not named by a user: only regular files in its folder are opened, and no links are followed. */
  readonly onMedium?: boolean;
}

/**
 * An open bundle: a tar, the volumes of a tar, a device with a tar, or a mirror directory. It is read in place,
 * without extracting.
 */
export interface Bundle {
  readonly path: string;
  readonly form: 'tar' | 'directory';
  /** What metadata.json says, or, in a directory without one, what the release in it does. */
  readonly metadata: BundleMetadata;
  /** There is a metadata.json. */
  readonly described: boolean;
  /** Of the tar, or of all files together, in bytes. */
  readonly size: number;
  /** How many bytes a file has after the end of the tar in it. */
  readonly trailing: number;
  /** Another program packed the tar: it has headers that `create` does not write. */
  readonly isRepacked: boolean;
  /** The files or the device that a tar lies in, in their order. */
  readonly volumes: readonly Volume[];
  /** What is wrong with these: volumes that are missing or have another size. */
  readonly faults: readonly Problem[];
  readonly content: ContentSource & LocalContent;
  readonly files: readonly BundleFile[];
  /** Where the tar ends before its time, or is garbled; only a tolerant opening gives such a bundle. */
  readonly damage?: PluginError | undefined;
  /** It is damaged because it ends before the size that its metadata says. */
  readonly isCut: boolean;
  /** The file in which it breaks off. */
  readonly cutEntry?: string | undefined;
  /** Reads a file whole, 4 MiB at most. */
  read(path: string): Promise<Buffer>;
  /** Bytes of the tar itself, unverified; a directory has none. Each chunk is overwritten with the one after the next. */
  readonly chunks?: (start: number, size: number) => AsyncIterable<Buffer>;
  /** Reads everything once, in the order in which it lies there. Returns the digests of a tar. */
  scan(scanner: Scanner): Promise<ArchiveDigests | undefined>;
  close(): Promise<void>;
}

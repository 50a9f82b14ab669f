import type { ArchiveDigests } from '../content/archive/volumeDigests.ts';
import type { Volume } from '../content/archive/volumes.ts';
import type { ContentSource, LocalContent } from '../content/store/store.ts';
import type { PluginError } from '../errors.ts';
import type { Problem } from './problem.ts';
import type { BundleMetadata } from './metadata.ts';

/** The part of a bundle that some bytes belong to: a file, or the bytes of a tar between its files. */
export type BundlePart = BundleFile | 'header' | 'padding' | 'trailing';

/** A file of a bundle, or a symbolic link with its target. */
export interface BundleFile {
  readonly path: string;
  /** The size in bytes. */
  readonly size: number;
  readonly target?: string;
  /** A pipe, socket or device in a mirror directory. It is never opened. */
  readonly isSpecial?: boolean;
}

/**
 * Receives the bytes of a bundle, synchronously and in order. The first chunk of a file may be empty. A chunk is only
 * valid during the call.
 */
export type Scanner = (part: BundlePart, chunk: Buffer) => void;

/** Options for opening a bundle. */
export interface OpenBundleOptions {
  /** Open a truncated tar up to its damage. */
  readonly tolerant?: boolean;
  /**
   * The bundle was found on a medium, and not named by the user. Only regular files in its folder are opened, and links
   * are not followed.
   */
  readonly onMedium?: boolean;
  /** A mirror directory may have several releases of one architecture. */
  readonly severalReleases?: boolean;
}

/**
 * An open bundle: a tar, the volumes of a tar, a device with a tar, or a mirror directory. It is read in place,
 * without extracting.
 */
export interface Bundle {
  readonly path: string;
  readonly form: 'tar' | 'directory';
  /** The content of metadata.json; in a directory without that file, it is derived from the release. */
  readonly metadata: BundleMetadata;
  /** Whether the bundle has a metadata.json. */
  readonly described: boolean;
  /** The size of the tar, or of all files, in bytes. */
  readonly size: number;
  /** The number of bytes in the file after the end of the tar. */
  readonly trailing: number;
  /** Whether another program packed the tar: it has headers that `create` does not write. */
  readonly isRepacked: boolean;
  /** The files or the device with the tar, in order. */
  readonly volumes: readonly Volume[];
  /** The faults of the volumes: a missing volume, or another size. */
  readonly faults: readonly Problem[];
  readonly content: ContentSource & LocalContent;
  /** The content of the opened bases of a delta bundle, which `content` has too. */
  readonly bases?: readonly ContentSource[];
  readonly files: readonly BundleFile[];
  /** The damage if the tar is truncated or corrupt; only set if opened with `tolerant`. */
  readonly damage?: PluginError;
  /** Whether the tar ends before the size in its metadata. */
  readonly isCut: boolean;
  /** The file in which a truncated tar ends. */
  readonly cutEntry?: string;
  /** Reads a complete file of at most 4 MiB. Throws `digest-mismatch` if an earlier read returned other bytes. */
  read(path: string): Promise<Buffer>;
  /**
   * Reads bytes of the tar itself, unverified; undefined for a directory. Each chunk is overwritten by the one after
   * the next.
   */
  readonly chunks?: (start: number, size: number) => AsyncIterable<Buffer>;
  /**
   * Reads everything once, in the order of the tar or directory. Returns the digests of a tar: of every byte of its
   * files; of a device, of the tar on it. Throws `digest-mismatch` if the headers, metadata.json or the configuration
   * differ from other reads.
   */
  scan(scanner: Scanner): Promise<ArchiveDigests | undefined>;
  [Symbol.asyncDispose](): Promise<void>;
}

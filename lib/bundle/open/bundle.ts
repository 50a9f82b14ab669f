import type { ArchiveDigests, Volume } from '#content/archive';
import type { Digest } from '#content/oci';
import { type ContentSource, type LocalContent, releaseRepository, digestNamed, isTagFile } from '#content/store';
import type { PluginError } from '#errors';
import { type BundleMetadata, metadataPath } from '../metadata/metadata.ts';

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

/** Options of openBundle, all off by default. */
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

/** The kind of a file of a bundle, by its path. A file of kind `other` does not belong in a bundle. */
export type EntryKind =
  | { readonly kind: 'metadata' | 'config' | 'other' }
  | { readonly kind: 'manifest' | 'blob'; readonly digest: Digest }
  | { readonly kind: 'tag'; readonly name: string };

const inRepository = new RegExp(`^v2/${releaseRepository}/(manifests|blobs)/([^/]+)$`);

/**
 * Returns the kind of a file. A symbolic link is a tag or `other`, and a special file is `other`. A tag may be a copy
 * of its manifest, because some file systems have no links.
 */
export function entryKindOf({ path, target, isSpecial }: Omit<BundleFile, 'size'>): EntryKind {
  if (isSpecial) return { kind: 'other' };
  const [, folder, name = ''] = inRepository.exec(path) ?? [];
  if (target === undefined) {
    if (path === metadataPath) return { kind: 'metadata' };
    if (path.startsWith('config/')) return { kind: 'config' };
    const digest = digestNamed(name);
    if (folder !== undefined && digest) return { kind: folder === 'blobs' ? 'blob' : 'manifest', digest };
  }
  return folder === 'manifests' && isTagFile(name) ? { kind: 'tag', name } : { kind: 'other' };
}

/** Returns the name under which the reads of a part are compared: of headers, metadata.json and configuration. */
export function comparedName(part: BundlePart): string | undefined {
  if (typeof part === 'string') return part === 'header' ? part : undefined;
  return ['metadata', 'config'].includes(entryKindOf(part).kind) ? part.path : undefined;
}

/**
 * The kind of a problem. `inconsistent`: two parts of a bundle contradict each other. The last two are about the
 * release signature.
 */
type ProblemKind = 'missing' | 'truncated' | 'corrupt' | 'unexpected' | 'inconsistent' | 'unsigned' | 'untrusted';

/** The part of a bundle that a problem is about. `bundle` is the whole bundle. */
export type ProblemSubject = 'bundle' | 'volume' | 'metadata' | 'signature' | 'manifest' | 'blob' | 'tag' | 'file';

/** A fault that reading or verifying a bundle finds. */
export interface Problem {
  readonly kind: ProblemKind;
  readonly subject: ProblemSubject;
  /** A digest, or a path in the bundle. */
  readonly what: string;
  /** The images that need the content. */
  readonly images: readonly string[];
  readonly message: string;
  /** The hint, if the problem has one of its own. */
  readonly hint?: string;
}

/** Returns a problem whose message is safe for a terminal, even if it quotes the bundle. */
export function describeProblem(
  kind: ProblemKind,
  subject: ProblemSubject,
  what: string,
  message: string,
  hint?: string,
): Problem {
  return { kind, subject, what: clean(what), images: [], message: clean(message), hint };
}

function clean(text: string): string {
  return text.replace(/\p{Cc}/gu, '\u{fffd}');
}

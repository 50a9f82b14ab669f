import { readdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Context } from '../context.ts';
import { messageOf, PluginError } from '../errors.ts';
import { shellWord } from '../shellWord.ts';
import type { ContentSource, LocalContent } from '../store/store.ts';
import type { Volume } from '../store/volumes.ts';
import type { BundleMetadata } from './metadata.ts';
import { openDirectory } from './openDirectory.ts';
import { openTar } from './openTar.ts';
import type { Problem } from './problem.ts';
import { findSplit } from './split.ts';

/** A file of a bundle, or a symbolic link with its target. */
export interface BundleFile {
  readonly path: string;
  /** In bytes. */
  readonly size: number;
  readonly target?: string;
}

/** Which part of a bundle some bytes are: of a file, or of what a tar has around its files. */
export type BundlePart = BundleFile | 'header' | 'padding' | 'trailing';

/** Takes the bytes of a bundle, synchronously and in order. The first chunk of a file may be empty; a chunk is not kept. */
export type Scanner = (part: BundlePart, chunk: Buffer) => void;

/** A bundle that is there: in a tar, in volumes of one, on a device that holds one, or as a mirror directory. Nothing is extracted to read it. */
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
  /** Reads everything once, in the order in which it lies there. */
  scan(scanner: Scanner): Promise<void>;
  close(): Promise<void>;
}

/** How a bundle is opened. */
export interface OpenOptions {
  /** A tar that is cut short is opened as far as it goes. */
  readonly tolerant?: boolean;
  /** It was found in a folder and named by nobody: only regular files in that folder are opened, and links are not followed. */
  readonly onMedium?: boolean;
}

/**
 * Opens a bundle by the path of a file, device or mirror directory; one in volumes by any of them, the name they have in
 * common, or the folder where it is alone. A directory that another tool wrote, without
 * metadata.json, is described by the release in it.
 * Throws `not-readable`, `invalid-bundle`, and `not-found` for a directory without a release.
 */
export async function openBundle(path: string, context: Context, options: OpenOptions = {}): Promise<Bundle> {
  if (options.onMedium) return openTar(path, options, context);
  const split = await findSplit(path);
  if (split !== undefined) return openTar(split, options, context);
  const found = await stat(path).catch(async (cause: unknown) => {
    const isMissing = ['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '');
    const message = isMissing ? `there is no ${path}` : `${path} cannot be read: ${messageOf(cause)}`;
    throw new PluginError('not-readable', message, { hint: isMissing ? await lookAround(path) : undefined, cause });
  });
  if (found.isDirectory()) return openDirectory(path, context);
  if (!found.isFile() && !found.isBlockDevice()) {
    throw new PluginError('not-readable', `${path} is neither a file nor a folder nor a block device`, {
      hint: 'A pipe cannot be read from the end: write the bundle to a file first.',
    });
  }
  if (found.isFile() && found.size === 0) {
    throw new PluginError('invalid-bundle', `${path} is an empty file`, {
      hint: 'Copy the bundle again from where it came from.',
    });
  }
  return openTar(path, options, context);
}

/** What there is in place of a bundle that is not. */
async function lookAround(path: string): Promise<string> {
  const folder = dirname(path);
  const names = await readdir(folder).catch(() => undefined);
  if (!names) return `There is no folder ${folder}: check the path, and whether the medium is mounted.`;
  const bundles = names.filter((name) => name.endsWith('.tar')).sort();
  const others = bundles.length > 5 ? ` and ${String(bundles.length - 5)} more` : '';
  const has = bundles.length === 0 ? 'no .tar file' : bundles.slice(0, 5).map(shellWord).join(', ') + others;
  return `Check the path: ${folder === '.' ? 'this folder' : folder} has ${has}.`;
}

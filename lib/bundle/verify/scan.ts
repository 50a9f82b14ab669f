import { createHash, type Hash } from 'node:crypto';
import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import { manifestSizeLimit, parseManifest, type Manifest } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { isZero, looksPacked } from '../../content/archive/tarHeader.ts';
import { findExcess, listConfig, type ConfigText } from '../bundledConfig.ts';
import type { Bundle, BundleFile } from '../bundle.ts';
import { digestNamed } from '../../content/store/directoryNames.ts';
import { entryKindOf, type EntryKind } from '../entryKind.ts';

/** A manifest or a blob of a bundle, and its fault. */
export interface ScannedItem {
  readonly path: string;
  /** The number of existing bytes. */
  readonly size: number;
  /** The fault of the content. A `malformed` manifest has the digest of its name, but is not a manifest. */
  readonly fault?: 'corrupt' | 'truncated' | 'malformed';
  /** The manifest; undefined for a blob, and if there is a fault. */
  readonly manifest?: Manifest;
  /** Whether a blob is a tar or compressed, by its first bytes. */
  readonly isPacked?: boolean;
}

/** A tag with its manifest; undefined if the tag points to other content. */
export interface ScannedTag {
  readonly path: string;
  readonly leadsTo: string;
  readonly digest: Digest | undefined;
}

/** The result of reading a whole bundle. */
export interface ScannedContent {
  /** The digest of the whole file; undefined for a directory, and for a truncated tar. */
  readonly digest: Digest | undefined;
  /** The digest of each complete volume; empty for a bundle in one file. */
  readonly volumes: readonly Digest[];
  /** The number of bytes that were read. */
  readonly bytes: number;
  readonly manifests: ReadonlyMap<Digest, ScannedItem>;
  readonly blobs: ReadonlyMap<Digest, ScannedItem>;
  readonly tags: ReadonlyMap<string, ScannedTag>;
  /** The configuration manifests, unless they exceed the limits of a bundle. */
  readonly config: readonly ConfigText[];
  /** Files that do not belong in a bundle. */
  readonly others: readonly BundleFile[];
  /** The number of bytes between the files of a tar that are not zero, but should be. */
  readonly strayBytes: number;
  /** The number of bytes after the end of a tar that are not zero. */
  readonly trailingBytes: number;
}

/** Reads a bundle once from the first byte to the last, and checks the digest of each file. */
export async function scanContent(bundle: Bundle, context: Context): Promise<ScannedContent> {
  const findings = new Findings();
  const manifestFiles = listConfig(bundle);
  const configPaths = new Set(findExcess(manifestFiles) ? [] : manifestFiles.map(({ path }) => path));
  for (const file of bundle.files) {
    if (file.target !== undefined) findings.addLink(file, file.target);
    if (file.isSpecial) findings.others.push(file);
  }
  if (bundle.cutEntry !== undefined) findings.addCut(bundle.cutEntry);

  let bytes = 0;
  let strayBytes = 0;
  let trailingBytes = 0;
  let current: OpenFile | undefined;
  const total = bundle.size + bundle.trailing;
  context.onEvent({ kind: 'plan', images: 0, blobs: bundle.files.length, bytes: total, present: 0 });
  const digests = await bundle.scan((part, chunk) => {
    bytes += chunk.length;
    const file = typeof part === 'object' ? part : undefined;
    context.onEvent({ kind: 'bytes', digest: file?.path ?? '', bytes: chunk.length });
    if (part === 'padding') strayBytes += countNonZero(chunk);
    if (part === 'trailing') trailingBytes += countNonZero(chunk);
    if (current && current.file !== file) {
      findings.addFile(current);
      current = undefined;
    }
    if (!file || file.target !== undefined) return;
    current ??= openFile(file, configPaths);
    current.read += chunk.length;
    current.hash.update(chunk);
    if (current.head.length < 512) current.head = Buffer.concat([current.head, chunk.subarray(0, 512)]);
    current.kept?.push(Buffer.from(chunk));
  });
  if (current) findings.addFile(current);
  const digest = bundle.damage ? undefined : digests?.digest;
  const { manifests, blobs, tags, config, others } = findings;
  const volumes = digests?.volumes ?? [];
  return { digest, volumes, bytes, manifests, blobs, tags, config, others, strayBytes, trailingBytes };
}

function countNonZero(chunk: Buffer): number {
  return isZero(chunk) ? 0 : chunk.reduce((count, byte) => count + Math.sign(byte), 0);
}

interface OpenFile {
  readonly file: BundleFile;
  readonly place: EntryKind;
  readonly hash: Hash;
  /** The content, if it is small and needed. */
  readonly kept: Buffer[] | undefined;
  /** The first 512 bytes, or more. */
  head: Buffer;
  read: number;
}

function openFile(file: BundleFile, config: ReadonlySet<string>): OpenFile {
  const place = entryKindOf(file);
  const isKept = config.has(file.path) || (place.kind === 'manifest' && file.size <= manifestSizeLimit);
  return { file, place, hash: createHash('sha256'), kept: isKept ? [] : undefined, head: Buffer.alloc(0), read: 0 };
}

class Findings implements Pick<ScannedContent, 'manifests' | 'blobs' | 'tags' | 'config' | 'others'> {
  readonly manifests = new Map<Digest, ScannedItem>();
  readonly blobs = new Map<Digest, ScannedItem>();
  readonly tags = new Map<string, ScannedTag>();
  readonly config: ConfigText[] = [];
  readonly others: BundleFile[] = [];

  addLink(file: BundleFile, target: string): void {
    const place = entryKindOf(file);
    if (place.kind !== 'tag') this.others.push(file);
    else this.tags.set(place.name, { path: file.path, leadsTo: target, digest: digestNamed(target) });
  }

  /** Adds the file in which a truncated tar ends. */
  addCut(path: string): void {
    const place = entryKindOf({ path });
    if (place.kind === 'manifest') this.manifests.set(place.digest, { path, size: 0, fault: 'truncated' });
    if (place.kind === 'blob') this.blobs.set(place.digest, { path, size: 0, fault: 'truncated' });
  }

  addFile({ file, place, hash, kept, head, read }: OpenFile): void {
    const { path } = file;
    const actual: Digest = `sha256:${hash.digest('hex')}`;
    const content = kept && Buffer.concat(kept);
    switch (place.kind) {
      case 'manifest':
      case 'blob': {
        const item = { path, size: read };
        const fault = read < file.size ? 'truncated' : actual === place.digest ? undefined : 'corrupt';
        if (fault) this[`${place.kind}s`].set(place.digest, { ...item, fault });
        else if (place.kind === 'blob')
          this.blobs.set(place.digest, { ...item, ...(looksPacked(head.subarray(0, 512)) && { isPacked: true }) });
        else this.manifests.set(place.digest, { ...item, ...readManifest(content, path) });
        break;
      }
      case 'tag':
        this.tags.set(place.name, { path, leadsTo: `a copy of ${actual}`, digest: actual });
        break;
      case 'config':
        if (content) this.config.push({ path, text: content.toString() });
        break;
      case 'other':
        this.others.push(file);
        break;
      case 'metadata':
    }
  }
}

function readManifest(content: Buffer | undefined, path: string): Pick<ScannedItem, 'manifest' | 'fault'> {
  try {
    return content ? { manifest: parseManifest(content, path) } : { fault: 'malformed' };
  } catch (error) {
    if (!isPluginError(error, 'invalid-manifest')) throw error;
    return { fault: 'malformed' };
  }
}

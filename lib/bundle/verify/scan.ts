import { createHash, type Hash } from 'node:crypto';
import { isZero, looksPacked } from '#content/archive';
import {
  manifestSizeLimit,
  parseManifest,
  type Manifest,
  hasImageLayers,
  isContainerImage,
  isManifest,
  type Descriptor,
  type Digest,
  attachedTo,
  attachmentName,
} from '#content/oci';
import { digestNamed, isAttachment, walkManifests } from '#content/store';
import type { Context } from '#context';
import { isPluginError } from '#errors';
import { findExcess, listConfig, type ConfigText } from '../metadata/bundledConfig.ts';
import {
  type Bundle,
  type BundleFile,
  entryKindOf,
  type EntryKind,
  describeProblem,
  type Problem,
} from '../open/bundle.ts';

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
interface ScannedTag {
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

/** Follows images down to their blobs in the scanned content, and collects missing and corrupt content. */
export class Walk {
  /** All content that images need, present or missing, with its first image; blobs with their sizes in bytes. */
  readonly manifests = new Map<Digest, string>();
  readonly blobs = new Map<Digest, number>();
  readonly #scanned: ScannedContent;
  readonly #lacking = new Map<string, Problem & { readonly images: string[] }>();

  constructor(scanned: ScannedContent) {
    this.#scanned = scanned;
  }

  /** The content that the visited images lack, each item once with all the images that need it. */
  get problems(): readonly Problem[] {
    return [...this.#lacking.values()];
  }

  /** Whether a manifest is missing, so that the needed content is not fully known. */
  get isPartial(): boolean {
    return this.problems.some(({ subject }) => subject === 'manifest');
  }

  /** Follows an image. Returns whether all its content is present and intact. */
  visit(root: Digest, image: string): boolean {
    let isWhole = true;
    const { manifests } = this.#scanned;
    for (const { digest, manifest, children } of walkManifests(root, (each) => manifests.get(each)?.manifest)) {
      if (!this.manifests.has(digest)) this.manifests.set(digest, image);
      if (!manifest) {
        this.#note('manifest', digest, manifests.get(digest)?.fault ?? 'missing', image);
        isWhole = false;
      }
      for (const child of children) if (!isManifest(child) && !this.#visitBlob(child, image)) isWhole = false;
    }
    return isWhole;
  }

  #visitBlob({ digest, size }: Descriptor, image: string): boolean {
    this.blobs.set(digest, size);
    const item = this.#scanned.blobs.get(digest);
    const fault = faultOf(item, size);
    if (fault) this.#note('blob', digest, fault, image);
    return fault === undefined;
  }

  #note(subject: 'manifest' | 'blob', what: Digest, fault: Fault, image: string): void {
    const key = `${subject} ${what}`;
    const words = {
      missing: `the ${key} is missing`,
      truncated: `the ${key} is cut short`,
      corrupt: `the ${key} is corrupt`,
      malformed: `the ${key} is not an image manifest`,
      resized: `the ${key} has another size than its manifest says`,
    }[fault];
    const kind = fault === 'malformed' || fault === 'resized' ? 'inconsistent' : fault;
    const noted = this.#lacking.get(key) ?? { ...describeProblem(kind, subject, what, words), images: [] };
    this.#lacking.set(key, noted);
    if (noted.images.at(-1) !== image) noted.images.push(image);
  }
}

/** The tags that have the names of attachments: those of attachments, and those of images. */
export interface VisitedAttachments {
  readonly tags: readonly string[];
  readonly images: ReadonlySet<string>;
}

/** Follows what is attached to the images so far, except for images that a runtime may run. */
export function visitAttachments({ tags, manifests, blobs }: ScannedContent, walk: Walk): VisitedAttachments {
  const isRunnable = (manifest: Manifest): boolean =>
    hasImageLayers(manifest) ||
    (isContainerImage(manifest) && manifest.layers.some(({ digest }) => blobs.get(digest)?.isPacked === true));
  const attachments = [...tags].flatMap(([tag, { digest }]) => {
    const subject = attachedTo(tag);
    const image = subject && walk.manifests.get(subject);
    if (!digest || image === undefined) return [];
    return [
      { tag, digest, image, isOne: isAttachment(tag, digest, (each) => manifests.get(each)?.manifest, isRunnable) },
    ];
  });
  const { true: own = [], false: images = [] } = Object.groupBy(attachments, ({ isOne }) => `${isOne}`);
  for (const { tag, digest, image } of own) walk.visit(digest, `the ${attachmentName(tag)} of ${image}`);
  return { tags: own.map(({ tag }) => tag), images: new Set(images.map(({ tag }) => tag)) };
}

type Fault = 'missing' | 'truncated' | 'corrupt' | 'malformed' | 'resized';

function faultOf(item: ScannedItem | undefined, size: number): Fault | undefined {
  if (!item) return 'missing';
  if (item.fault) return item.size < size ? 'truncated' : item.fault;
  return item.size === size ? undefined : 'resized';
}

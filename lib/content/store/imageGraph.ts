import { ignoring, isPluginError, PluginError } from '#errors';
import { attachmentKinds, attachmentTag, parseAttachmentTag, type AttachmentKind } from '../oci/attachment.ts';
import {
  childrenOf,
  hasImageLayers,
  isManifest,
  parseManifest,
  type Descriptor,
  type Manifest,
  mediaTypes,
} from '../oci/descriptor.ts';
import { digestOf, type Digest } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';
import { readContent, type ContentSource } from './store.ts';

/**
 * The largest number of pages of tags that are read in advance. Beyond it, each tag costs less as a request of its own.
 */
const pageLimit = 20;

/**
 * Knows the tags of remote repositories, so that an attachment that does not exist costs no request. Expect each image
 * before the first question about its repository: with more images, a longer list of tags is worth its requests.
 */
class KnownTags {
  readonly #images = new Map<string, number>();
  readonly #tags = new Map<string, Promise<ReadonlySet<string> | undefined>>();

  expectImage({ name }: ContentSource): void {
    this.#images.set(name, (this.#images.get(name) ?? 0) + 1);
  }

  /**
   * Returns the tags of a repository; undefined if they are not known, because there are too many or the source is
   * local.
   */
  of(source: ContentSource): Promise<ReadonlySet<string> | undefined> {
    const { name } = source;
    const tags =
      this.#tags.get(name) ?? Promise.resolve(source.knownTags?.(Math.min(this.#images.get(name) ?? 1, pageLimit)));
    this.#tags.set(name, tags);
    return tags;
  }
}

/**
 * Lists the manifests that refer to an image: by the API of a registry, or else by the tag that stands for it. Throws
 * what the source throws.
 */
async function listReferrers(
  source: ContentSource,
  subject: Digest,
  tags?: ReadonlySet<string>,
): Promise<readonly Descriptor[]> {
  const listed = await source.referrers?.(subject);
  if (listed) return listed;
  return tags?.has(attachmentTag(subject, 'referrers')) === false ? [] : readReferrersTag(source, subject);
}

/** Reads the list of referrers that has a tag; empty if there is none. */
async function readReferrersTag(source: ContentSource, subject: Digest): Promise<readonly Descriptor[]> {
  const tag = attachmentTag(subject, 'referrers');
  const descriptor = await source.resolve(tag).catch(ignoring('not-found'));
  // Some tools give an image its own digest as a tag.
  if (!descriptor || descriptor.digest === subject) return [];
  const bytes = await readContent(source, descriptor).catch(ignoring('not-found'));
  return bytes ? parseManifest(bytes, `${tag} in ${source.name}`).manifests : [];
}

/** A referrer with the bytes of its manifest. */
interface Referrer {
  readonly descriptor: Descriptor;
  readonly bytes: Buffer;
}

/**
 * Writes the list of the manifests that refer to an image. It follows from these manifests alone, so that it is the
 * same whether a registry has the API or the tag. Manifests that refer to another image are left out; undefined if no
 * other is left.
 */
function formatReferrers(subject: Digest, referrers: readonly Referrer[]): Referrer | undefined {
  const manifests = referrers.flatMap(({ descriptor: { mediaType, digest, size }, bytes }) => {
    const fields = parseJson(bytes.toString('utf8')) as ReferrerFields;
    if (fields.subject?.digest !== subject) return [];
    const artifactType = fields.artifactType ?? fields.config?.mediaType;
    const { annotations } = fields;
    return [
      {
        mediaType,
        digest,
        size,
        artifactType,
        annotations,
      },
    ];
  });
  if (manifests.length === 0) return undefined;
  manifests.sort((a, b) => (a.digest < b.digest ? -1 : 1));
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests }));
  return { descriptor: { mediaType: mediaTypes.ociIndex, digest: digestOf(bytes), size: bytes.length }, bytes };
}

interface ReferrerFields {
  readonly subject?: { readonly digest?: unknown };
  readonly artifactType?: unknown;
  readonly annotations?: object;
  readonly config?: { readonly mediaType?: unknown };
}

/** Most referrers of one image. */
const referrerLimit = 100;

/** The referrers that can be copied: OCI manifests, each once, a hundred at most. */
function usableReferrers(descriptors: readonly Descriptor[]): Descriptor[] {
  const manifests = new Map(descriptors.filter(isManifest).map((each) => [each.digest, each]));
  return [...manifests.values()].sort((a, b) => (a.digest < b.digest ? -1 : 1)).slice(0, referrerLimit);
}

/** A manifest with its bytes. The descriptor has the media type of the manifest itself. */
export interface StoredManifest {
  readonly descriptor: Descriptor;
  readonly bytes: Buffer;
  readonly manifest: Manifest;
}

/** Manifests by their digests. */
export type StoredManifests = ReadonlyMap<Digest, StoredManifest>;

/** The manifests of an image or a manifest list, and of what is attached to them. */
export interface ImageGraph {
  readonly root: Descriptor;
  /** Each manifest is before the manifests below it. Attachments are last. */
  readonly manifests: StoredManifests;
  /** The attachments by their tags, in the order of their manifests. */
  readonly attachments: ReadonlyMap<string, Descriptor>;
  /** The tags of attachments that lead to images. They are not in `attachments`. */
  readonly notAttached: readonly string[];
}

/** A manifest found by walkManifests; `manifest` is undefined if it is missing. */
interface WalkedManifest {
  readonly digest: Digest;
  readonly manifest: Manifest | undefined;
  readonly children: readonly Descriptor[];
}

const depthLimit = 8;
const descriptorLimit = 100_000;

/** Reads the manifests of images. A manifest that several images share is read once. */
export class ImageGraphReader {
  readonly #manifests = new Map<Digest, Promise<StoredManifest>>();
  readonly #tags = new KnownTags();

  /**
   * Reads an image by its digest. If `onError` is given, calls it for each manifest that cannot be read, and leaves
   * that manifest out. Throws the errors of the source, and `invalid-manifest` for more than 8 levels or 100,000
   * descriptors.
   */
  async read(source: ContentSource, digest: Digest, onError?: (error: unknown) => void): Promise<ImageGraph> {
    this.#tags.expectImage(source);
    const root = await source.resolve(digest);
    const allManifests = new Map<Digest, StoredManifest>();
    const readBelow = (descriptor: Descriptor): Promise<void> =>
      this.#readBelow(source, descriptor, {
        found: allManifests,
        visited: new Set(allManifests.keys()),
        count: 0,
        onError,
      });
    await readBelow(root);
    const own = listManifests(root.digest, allManifests);
    const attachments = await this.#findAttachments(source, own, onError);
    await Promise.all([...attachments.values()].map(readBelow));
    const notAttached = [...attachments].flatMap(([tag, { digest: each }]) =>
      isAttachment(tag, each, (below) => allManifests.get(below)?.manifest) ? [] : [tag],
    );
    for (const tag of notAttached) attachments.delete(tag);
    const attached = [...attachments.values()].flatMap((attachment) => listManifests(attachment.digest, allManifests));
    const manifests = new Map<Digest, StoredManifest>();
    for (const each of [...own, ...attached]) {
      const stored = allManifests.get(each);
      if (stored) manifests.set(each, stored);
    }
    return { root, manifests, attachments, notAttached };
  }

  /** Finds what is attached to some manifests, in their order. */
  async #findAttachments(
    source: ContentSource,
    subjects: readonly Digest[],
    onError: Reading['onError'],
  ): Promise<Map<string, Descriptor>> {
    const tags = await this.#tags.of(source);
    const find = async (subject: Digest, kind: AttachmentKind, tag: string): Promise<Descriptor | undefined> => {
      if (kind === 'referrers') return this.#readReferrers(source, subject, tags);
      // Clusters require signatures, so that no list is trusted about them.
      return kind === 'signature' || tags?.has(tag) !== false ? resolveTag(source, tag) : undefined;
    };
    const questions = subjects.flatMap((subject) =>
      attachmentKinds.map((kind) => ({ subject, kind, tag: attachmentTag(subject, kind) })),
    );
    const answers = await Promise.all(
      questions.map(({ subject, kind, tag }) =>
        find(subject, kind, tag).catch((error: unknown) => passOver(error, kind, onError)),
      ),
    );
    return new Map(
      questions.flatMap(({ tag }, index) => {
        const descriptor = answers[index];
        return descriptor ? [[tag, descriptor] as const] : [];
      }),
    );
  }

  /** Reads the manifests that refer to an image. The list has only manifests that exist. */
  async #readReferrers(
    source: ContentSource,
    subject: Digest,
    tags: ReadonlySet<string> | undefined,
  ): Promise<Descriptor | undefined> {
    const listed = usableReferrers(await listReferrers(source, subject, tags));
    const reads = await Promise.all(
      listed.map((each) => this.#readManifest(source, each).catch((error: unknown) => passOver(error, 'referrers'))),
    );
    const list = formatReferrers(
      subject,
      reads.flatMap((stored) => (stored && !hasImageLayers(stored.manifest) ? [stored] : [])),
    );
    if (!list) return undefined;
    const { descriptor, bytes } = list;
    const manifest = parseManifest(bytes, `the referrers of ${subject}`);
    this.#manifests.set(descriptor.digest, Promise.resolve({ descriptor, bytes, manifest }));
    return descriptor;
  }

  async #readBelow(source: ContentSource, descriptor: Descriptor, reading: Reading, depth = 1): Promise<void> {
    const { visited, onError } = reading;
    if (visited.has(descriptor.digest)) return;
    visited.add(descriptor.digest);
    try {
      const stored = await this.#readManifest(source, descriptor);
      const children = childrenOf(stored.manifest);
      reading.count += children.length;
      if (depth > depthLimit || reading.count > descriptorLimit) {
        const limit = `the limit of ${depthLimit} levels or ${descriptorLimit.toLocaleString('en')} descriptors`;
        throw new PluginError('invalid-manifest', `${descriptor.digest} in ${source.name} exceeds ${limit}`);
      }
      reading.found.set(descriptor.digest, stored);
      await Promise.all(children.filter(isManifest).map((child) => this.#readBelow(source, child, reading, depth + 1)));
    } catch (error) {
      if (!onError) throw error;
      onError(error);
    }
  }

  #readManifest(source: ContentSource, descriptor: Descriptor): Promise<StoredManifest> {
    const earlierReading = this.#manifests.get(descriptor.digest);
    if (earlierReading) return earlierReading;
    const reading = readManifest(source, descriptor);
    this.#manifests.set(descriptor.digest, reading);
    return reading;
  }
}

/** The state of reading one image: the manifests so far, and the number of descriptors. */
interface Reading {
  readonly found: Map<Digest, StoredManifest>;
  readonly visited: Set<Digest>;
  readonly onError: ((error: unknown) => void) | undefined;
  count: number;
}

/**
 * Walks from a manifest to the manifests below it. Visits each once, and before those below it. `choose` returns the
 * descriptors to follow; all by default.
 */
export function* walkManifests(
  root: Digest,
  manifestOf: (digest: Digest) => Manifest | undefined,
  choose: (manifest: Manifest) => readonly Descriptor[] = childrenOf,
): Generator<WalkedManifest> {
  const seen = new Set<Digest>();
  const pending = [root];
  for (let digest = pending.pop(); digest !== undefined; digest = pending.pop()) {
    if (seen.has(digest)) continue;
    seen.add(digest);
    const manifest = manifestOf(digest);
    const children = manifest ? choose(manifest) : [];
    yield { digest, manifest, children };
    for (const child of children.toReversed()) if (isManifest(child)) pending.push(child.digest);
  }
}

/**
 * Returns whether what a tag attaches to an image is an attachment: no runtime can run it, and what a list of referrers
 * names refers to the image. Some tools give an image its own digest as a tag.
 */
export function isAttachment(
  tag: string,
  root: Digest,
  manifestOf: (digest: Digest) => Manifest | undefined,
  isRunnable: (manifest: Manifest) => boolean = hasImageLayers,
): boolean {
  const { subject, kind } = parseAttachmentTag(tag) ?? {};
  if (root === subject) return true;
  for (const { digest, manifest } of walkManifests(root, manifestOf)) {
    if (manifest && isRunnable(manifest)) return false;
    if (manifest && kind === 'referrers' && digest !== root && manifest.subject !== subject) return false;
  }
  return subject !== undefined;
}

/** Lists the blobs that some manifests name, each as often as they name it. */
export function blobsOf(manifests: Iterable<StoredManifest>): Descriptor[] {
  return [...manifests].flatMap(({ manifest }) => childrenOf(manifest).filter((child) => !isManifest(child)));
}

function listManifests(root: Digest, manifests: StoredManifests): Digest[] {
  return [...walkManifests(root, (digest) => manifests.get(digest)?.manifest)].map(({ digest }) => digest);
}

async function readManifest(source: ContentSource, descriptor: Descriptor): Promise<StoredManifest> {
  const bytes = await readContent(source, descriptor);
  // Some sources do not verify. If the digest matches, no manifest can be below itself.
  if (digestOf(bytes) !== descriptor.digest) {
    throw new PluginError('digest-mismatch', `the content of ${descriptor.digest} in ${source.name} is corrupt`);
  }
  const manifest = parseManifest(bytes, `${descriptor.digest} in ${source.name}`);
  return { descriptor: { ...descriptor, mediaType: manifest.mediaType }, bytes, manifest };
}

async function resolveTag(source: ContentSource, tag: string): Promise<Descriptor | undefined> {
  return source.resolve(tag).catch(ignoring('not-found'));
}

/**
 * Treats an attachment that cannot be read as absent, if errors are taken or no cluster requires its kind. Throws other
 * errors.
 */
function passOver(error: unknown, kind: AttachmentKind, onError?: Reading['onError']): undefined {
  const isFatal = !isPluginError(error) || ['interrupted', 'unreachable', 'tls'].includes(error.code);
  if (onError) onError(error);
  else if (isFatal || kind === 'signature') throw error;
}

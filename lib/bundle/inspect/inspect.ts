import {
  attachmentKinds,
  attachmentTag,
  parseAttachmentTag,
  childrenOf,
  isManifest,
  sumSizes,
  isDigest,
  type Digest,
  digestIn,
} from '#content/oci';
import { ImageGraphReader, walkManifests, type ImageGraph, type ContentSource } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { asFailure } from '#errors';
import { readBundledConfig, type BundledConfig } from '../metadata/bundledConfig.ts';
import { describedSubject, checkConfig } from '../metadata/configCheck.ts';
import { listNamedImages } from '../metadata/images.ts';
import {
  type BundleBase,
  type BundleMetadata,
  splitReleases,
  type BundledRelease,
  type SignatureRecord,
} from '../metadata/metadata.ts';
import type { Bundle } from '../open/bundle.ts';
import { readDigestFile } from '../open/sidecars.ts';

/** An image of a bundle. Sizes are in bytes by its manifests, and count each content once. */
export interface InspectedImage {
  /**
   * The component’s name, `release`, or the pullspec of an extra image. With several releases, the version is before
   * the first two: `4.19.12/etcd`.
   */
  readonly name: string;
  /** Other components that are the same image. */
  readonly aliases: readonly string[];
  readonly kind: 'release' | 'operating-system' | 'component' | 'extra';
  readonly pullspec: string;
  readonly digest: Digest;
  /** The size of its layers, configurations, manifests and sigstore attachments. */
  readonly size: number;
  /** The size of the content that no other image needs. */
  readonly unique: number;
  /** The size of the content that other images need too. */
  readonly shared: number;
  readonly layers: number;
  /** The platforms of the images in a manifest list (`linux/arm64`); empty for a single image. */
  readonly platforms: readonly string[];
  /** Whether it, or an image of the manifest list, has a sigstore signature in the bundle. */
  readonly hasAttachment: boolean;
  /** The tags of everything that is attached to it, or to an image of the manifest list. */
  readonly attachments: readonly string[];
  /** Whether all its content is in the bundle, or in the base of a delta, by names and sizes. */
  readonly complete: boolean;
}

/** A blob that several images need. */
interface SharedBlob {
  readonly digest: Digest;
  readonly size: number;
  /** The number of images that need it. */
  readonly images: number;
}

/** The contents of a bundle, not verified; sizes in bytes. */
export interface Inspection extends Pick<
  BundleMetadata,
  'version' | 'arch' | 'release' | 'previous' | 'risks' | 'tool' | 'volumes' | 'skippedImages' | 'reports'
> {
  readonly path: string;
  readonly form: Bundle['form'];
  readonly size: number;
  /** The digest of the whole file, by the .sha256 file beside it. */
  readonly digest?: Digest;
  readonly verified: false;
  readonly signatures: readonly InspectedSignature[];
  /** The base release of a delta bundle, and the number and size of the blobs that the bundle leaves out. */
  readonly base?: Omit<BundleBase, 'blobs'> & { readonly blobs: number; readonly bytes: number };
  /** The images by digest that the release signature cannot cover. */
  readonly extraImages: readonly string[];
  /** The releases in the order of the updates; absent if there is only one. */
  readonly releases?: readonly InspectedRelease[];
  /** The images: the release first, the others by name. */
  readonly images: readonly InspectedImage[];
  readonly totals: {
    readonly images: number;
    readonly manifests: number;
    readonly blobs: number;
    readonly bytes: number;
    /** The size in bytes if images shared no content. */
    readonly bytesUnshared: number;
    readonly saved: number;
  };
  /** The blobs of several images, sorted by the number of images that need them. */
  readonly sharedBlobs: readonly SharedBlob[];
  /** Missing or unusual content, as messages. */
  readonly notes: readonly string[];
}

interface Subject extends Pick<InspectedImage, 'name' | 'kind' | 'pullspec' | 'digest'> {
  readonly aliases: string[];
}

interface Piece {
  readonly size: number;
  readonly kind: 'manifest' | 'config' | 'layer' | 'attached';
}

interface Walk {
  readonly pieces: ReadonlyMap<Digest, Piece>;
  readonly platforms: ReadonlyMap<Digest, string>;
  readonly attachments: readonly string[];
  readonly notes: readonly string[];
}

const emptyGraph: Omit<ImageGraph, 'root'> = { manifests: new Map(), attachments: new Map(), notAttached: [] };

/**
 * Lists the contents of a bundle without verifying it. Reads the metadata, the manifests and the signatures in place,
 * but no blob. Missing or unreadable content becomes a note.
 */
export async function inspectBundle(bundle: Bundle, context: Context): Promise<Inspection> {
  const { path, form, size, metadata, content } = bundle;
  const { version, arch, release, previous, tool, volumes, base } = metadata;
  const inBase = new Set(base?.blobs.map(({ digest }) => digest));
  const notes = bundle.faults.map(({ message }) => message);
  if (bundle.damage && notes.length === 0) notes.push(bundle.damage.message);
  const tags = new Set(await content.tags());
  const reader = new ImageGraphReader();
  const sizes = new ReleaseSizes(metadata);
  const pieces = new Map<Digest, { size: number; isBlob: boolean; images: number; last: Subject }>();
  const measured: { subject: Subject; walk: Omit<Walk, 'pieces'>; size: number; layers: number }[] = [];
  for (const subject of listSubjects(metadata)) {
    checkInterrupted(context.signal);
    const { pieces: own, ...walk } = await walkImage(content, reader, tags, subject, inBase);
    for (const [digest, piece] of own) {
      const { images } = pieces.get(digest) ?? { images: 0 };
      pieces.set(digest, { size: piece.size, isBlob: piece.kind !== 'manifest', images: images + 1, last: subject });
    }
    sizes.add(subject.digest, own);
    const parts = [...own.values()];
    const layers = parts.filter(({ kind }) => kind === 'layer').length;
    measured.push({ subject, walk, size: sumSizes(parts), layers });
    notes.push(...walk.notes.map((note) => `${subject.name}: ${note}`));
  }

  const unique = new Map<Subject, number>();
  for (const { size: bytes, images, last } of pieces.values())
    if (images === 1) unique.set(last, (unique.get(last) ?? 0) + bytes);
  const images = measured.map(({ subject, walk, size: bytes, layers }): InspectedImage => {
    const alone = unique.get(subject) ?? 0;
    const { platforms, attachments, notes: lacks } = walk;
    const hasAttachment = attachments.some((tag) => parseAttachmentTag(tag)?.kind === 'signature');
    const attached = { hasAttachment, attachments };
    const sizes = { size: bytes, unique: alone, shared: bytes - alone, layers };
    return { ...subject, ...sizes, platforms: [...platforms.values()], ...attached, complete: lacks.length === 0 };
  });
  const bytes = sumSizes(pieces.values());
  const bytesUnshared = sumSizes(images);
  const blobs = [...pieces].filter(([, { isBlob }]) => isBlob);
  const payloads = measured.filter(({ subject: { kind } }) => kind === 'release');
  const config = await readBundledConfig(bundle, context);
  const subject = describedSubject(metadata);
  const { problems } = checkConfig(bundle, config, subject, { good: [], lenient: true });
  notes.push(...problems.map(({ message }) => message));
  const signatures = listSignatures(bundle, config, nameSigned(payloads));
  const releases = sizes.list();
  const digest = form === 'tar' ? await readDigestFile(path) : undefined;
  return {
    path,
    form,
    size,
    ...(digest && { digest }),
    volumes,
    version,
    arch,
    release,
    // A site updates to the first release.
    previous: metadata.releases?.[0]?.previous ?? previous,
    tool,
    verified: false,
    signatures,
    extraImages: metadata.extraImages,
    ...(metadata.risks && { risks: metadata.risks }),
    ...(metadata.skippedImages && { skippedImages: metadata.skippedImages }),
    ...(metadata.reports && { reports: metadata.reports }),
    releases,
    ...(base && { base: { ...base, blobs: base.blobs.length, bytes: sumSizes(base.blobs) } }),
    images,
    totals: {
      images: images.length,
      manifests: pieces.size - blobs.length,
      blobs: blobs.length,
      bytes,
      bytesUnshared,
      saved: bytesUnshared - bytes,
    },
    sharedBlobs: blobs
      .filter(([, piece]) => piece.images > 1)
      .map(([name, piece]) => ({ digest: name, size: piece.size, images: piece.images }))
      .sort((a, b) => b.images - a.images || b.size - a.size || (a.digest < b.digest ? -1 : 1)),
    // Messages quote text from manifests.
    notes: notes.map((note) => note.replace(/\p{Cc}/gu, '\u{fffd}')),
  };
}

/** Returns the images of a bundle, each digest once: the releases, the components by name, the extra images. */
function listSubjects(metadata: BundleMetadata): Iterable<Subject> {
  const { extraImages, images } = metadata;
  const releases = new Set(splitReleases(metadata).map(({ release }) => release));
  const systems = new Set(splitReleases(metadata).flatMap(({ osImages }) => osImages));
  const named = listNamedImages({ ...sortComponents(metadata), images: [...extraImages, ...images] });
  const subjects = new Map<Digest, Subject>();
  for (const { name, pullspec } of named) {
    const digest = digestIn(pullspec);
    if (!isDigest(digest)) continue;
    // Other images are named by their pullspecs.
    const isComponent = name !== pullspec && !releases.has(pullspec);
    const subject = subjects.get(digest);
    if (subject && isComponent) subject.aliases.push(name);
    if (subject) continue;
    const component = systems.has(pullspec) ? 'operating-system' : 'component';
    const kind = releases.has(pullspec) ? 'release' : isComponent ? component : 'extra';
    subjects.set(digest, { name, aliases: [], kind, pullspec, digest });
  }
  return subjects.values();
}

function sortComponents({ release, components, releases }: BundleMetadata) {
  const sort = (unsorted: BundleMetadata['components']): BundleMetadata['components'] =>
    Object.fromEntries(Object.entries(unsorted).sort(([a], [b]) => (a < b ? -1 : 1)));
  const sorted = releases?.map((each) => ({ ...each, components: sort(each.components) }));
  return { release, components: sort(components), releases: sorted };
}

async function walkImage(
  content: ContentSource,
  reader: ImageGraphReader,
  tags: ReadonlySet<string>,
  { digest: root }: Subject,
  inBase: ReadonlySet<Digest>,
): Promise<Walk> {
  const pieces = new Map<Digest, Piece>();
  const platforms = new Map<Digest, string>();
  const notes = new Set<string>();
  const note = (error: unknown): void => void notes.add(asFailure(error).message);
  const { manifests, attachments, notAttached } = (await reader.read(content, root, note).catch(note)) ?? emptyGraph;
  const walked = [...walkManifests(root, (digest) => manifests.get(digest)?.manifest)];
  const own = new Set(walked.map(({ digest }) => digest));
  let missing = 0;
  for (const [digest, { descriptor, manifest }] of manifests) {
    const attached = !own.has(digest);
    pieces.set(digest, { size: descriptor.size, kind: 'manifest' });
    for (const child of childrenOf(manifest)) {
      if (isManifest(child)) {
        if (!attached) platforms.set(child.digest, nameOf(child.platform));
      } else if (!pieces.has(child.digest)) {
        const kind = attached ? 'attached' : child === manifest.config ? 'config' : 'layer';
        pieces.set(child.digest, { size: child.size, kind });
        if (!inBase.has(child.digest) && !(await content.exists(child))) missing += 1;
      }
    }
  }
  const attachedTags = [...own]
    .flatMap((digest) => attachmentKinds.map((kind) => attachmentTag(digest, kind)))
    .filter((tag) => tags.has(tag) && !notAttached.includes(tag))
    // A list of referrers is read without the images in it.
    .filter((tag) => attachments.has(tag) || parseAttachmentTag(tag)?.kind !== 'referrers');
  for (const tag of notAttached) notes.add(`the tag ${tag} leads to an image that can run`);
  for (const tag of attachedTags) if (!attachments.has(tag)) await content.resolve(tag).catch(note);
  if (missing > 0) notes.add(`${missing === 1 ? 'a blob is' : `${missing} blobs are`} missing`);
  return { pieces, platforms, attachments: attachedTags, notes: [...notes] };
}

/** Manifests are not verified, so a platform may be any value. */
function nameOf(platform: unknown): string {
  const { os, architecture, variant } = (platform ?? {}) as Record<string, unknown>;
  const parts = [os, architecture, variant].filter((part) => typeof part === 'string' && /^[\w.-]{1,40}$/.test(part));
  return parts.length === 0 ? 'unknown' : parts.join('/');
}

/** One of several releases of a bundle. Sizes are in bytes by its manifests, and count each content once. */
interface InspectedRelease extends Pick<BundledRelease, 'version' | 'release' | 'risks'> {
  readonly images: number;
  /** The size of the content of its images. */
  readonly size: number;
  /** The size of the content that no earlier release of the bundle has. */
  readonly added: number;
}

/** Adds up the content of each release of a bundle. */
class ReleaseSizes {
  readonly #metadata: BundleMetadata;
  readonly #digests: readonly ReadonlySet<string>[];
  readonly #contents: readonly Map<Digest, number>[];

  constructor(metadata: BundleMetadata) {
    this.#metadata = metadata;
    this.#digests = splitReleases(metadata).map(({ images }) => new Set(images.map(digestIn)));
    this.#contents = this.#digests.map(() => new Map());
  }

  /** Adds the content of an image to each release that has the image. Sizes are in bytes. */
  add(image: Digest, content: Iterable<readonly [Digest, { readonly size: number }]>): void {
    const own = this.#contents.filter((_, index) => this.#digests[index]?.has(image));
    for (const [digest, { size }] of content) for (const each of own) each.set(digest, size);
  }

  /** Lists the releases in the order of the updates; undefined for a bundle with one release. */
  list(): InspectedRelease[] | undefined {
    const countedBlobs = new Set<Digest>();
    return this.#metadata.releases?.map(({ version, release, risks }, index) => {
      let [size, added] = [0, 0];
      for (const [digest, bytes] of this.#contents[index] ?? []) {
        size += bytes;
        if (!countedBlobs.has(digest)) added += bytes;
        countedBlobs.add(digest);
      }
      return { version, release, risks, images: this.#digests[index]?.size ?? 0, size, added };
    });
  }
}

/** The signatures of a release image. */
interface InspectedSignature {
  readonly digest: Digest;
  /**
   * `release`, or `4.19.12/release` of several releases; an image of a multi-architecture release:
   * `release for linux/arm64`.
   */
  readonly image: string;
  /** The signers of the good signatures when the bundle was created, by its metadata. */
  readonly signers: readonly SignatureRecord[];
  /** The number of signatures in the bundle’s configuration manifests. */
  readonly held: number;
  /** The first of these manifests. */
  readonly file?: string;
}

/** A release image with the platforms of its manifest list. */
interface NamedPayload {
  readonly subject: { readonly name: string; readonly digest: Digest };
  readonly walk: { readonly platforms: ReadonlyMap<Digest, string> };
}

/** Returns the names of release images, and of their images for single architectures, by digest. */
function nameSigned(payloads: readonly NamedPayload[]) {
  return new Map(
    payloads.flatMap(({ subject: { name, digest }, walk: { platforms } }) => [
      [digest, name] as const,
      ...[...platforms].map(([child, platform]) => [child, `${name} for ${platform}`] as const),
    ]),
  );
}

/** Lists the signatures in the metadata and in the configuration of a bundle: those of releases first. */
function listSignatures(
  bundle: Bundle,
  { files }: BundledConfig,
  names: ReadonlyMap<Digest, string>,
): InspectedSignature[] {
  const { signatures } = bundle.metadata;
  const held = new Map<Digest, { count: number; file: string }>();
  for (const { path, signatures: signaturesByDigest } of files) {
    for (const [digest, list] of signaturesByDigest) {
      const { count, file } = held.get(digest) ?? { count: 0, file: path };
      held.set(digest, { count: count + list.length, file });
    }
  }
  const releases = splitReleases(bundle.metadata).map(({ release }) => digestIn(release));
  const digests = new Set([...Object.keys(signatures).filter(isDigest), ...held.keys()]);
  return [...digests]
    .map((digest): InspectedSignature => {
      const image = names.get(digest) ?? 'another image';
      const { count = 0, file } = held.get(digest) ?? {};
      return { digest, image, signers: signatures[digest] ?? [], held: count, file };
    })
    .sort(
      (a, b) =>
        Number(releases.includes(b.digest)) - Number(releases.includes(a.digest)) || (a.image < b.image ? -1 : 1),
    );
}

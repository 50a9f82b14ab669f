import { addAbortSignal, pipeline, Readable, Transform } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '#context';
import {
  ignoreFailure,
  PluginError,
  hintOf,
  isPluginError,
  messageOf,
  type ErrorCode,
  collectFailures,
  nameSome,
} from '#errors';
import { RequestLimiter } from '../http/requestLimiter.ts';
import { childrenOf, isContainerConfig, isIndex, isManifest, type Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/reference.ts';
import type { StoredManifest, StoredManifests } from '../store/imageGraph.ts';
import type { ContentSource, ContentStore } from '../store/store.ts';

/** An image or manifest list to copy, with all its content. */
export interface Image {
  /** The name in events and errors. */
  readonly name: string;
  readonly source: ContentSource;
  readonly root: Descriptor;
  /** Its manifests, and possibly those of other images. */
  readonly manifests: StoredManifests;
  /** The tags at the destination, pushed after all content. */
  readonly tags?: readonly string[];
  /** Whether it is a sigstore attachment, which events do not count as an image. */
  readonly isAttachment?: boolean;
}

/** Options of copyImages. */
export interface CopyOptions {
  /** The largest number of concurrent requests and transfers; default 6. */
  readonly concurrency?: number;
  /** Whether the destination has no tags: it is asked for layers only, because what is small is pushed as fast. */
  readonly isEmpty?: boolean;
  /**
   * Repositories of the destination that may have a blob. If the store can mount, they are tried before the blob is
   * moved.
   */
  readonly mountFrom?: (blob: Descriptor) => readonly string[];
  /**
   * Returns a function that moves blobs of a source to the destination; undefined if the caller has none. The function
   * itself emits `bytes`.
   */
  readonly moverOf?: (source: ContentSource) => ((blob: Descriptor, signal: AbortSignal) => Promise<void>) | undefined;
}

const defaultConcurrency = 6;
// More images than requests, because some images only wait for shared content.
const imagesPerRequest = 3;

/**
 * Copies images whose manifests were read to a store, byte for byte: the content of a manifest, then the manifest, then
 * its tags. So a second run resumes an interrupted copy. Skips existing content, and moves shared content once. A
 * failed image does not stop the others: one error at the end (`partial`; a single failure keeps its code) has all
 * failures. `interrupted` and a failure of the whole destination (full, read-only, unreachable, access denied) stop
 * all.
 */
export async function copyImages(
  images: readonly Image[],
  destination: ContentStore,
  options: CopyOptions,
  context: Context,
): Promise<void> {
  const copy = new Copy(destination, options, context);
  const results: CopyFailure[][] = [];
  // Not all images at once, because the manifest of the first image would then wait for the last blob of all.
  const waiting = images.entries();
  const work = async (): Promise<void> => {
    for (const [index, image] of waiting) results[index] = await copy.copyImage(image);
  };
  await Promise.all(Array.from({ length: imagesPerRequest * (options.concurrency ?? defaultConcurrency) }, work));
  // In the order of the images, not of their failures.
  const failed = new Map<CopyFailure, string[]>();
  for (const [index, { name }] of images.entries()) {
    for (const failure of results[index] ?? []) failed.set(failure, [...(failed.get(failure) ?? []), name]);
  }
  checkInterrupted(context.signal);
  if (copy.fatal) throw describeFailures(new Map([[copy.fatal, failed.get(copy.fatal) ?? []]]), images.length);
  if (failed.size > 0) throw describeFailures(failed, images.length);
}

class Copy {
  /** The failure that stopped all copies. */
  fatal: CopyFailure | undefined;
  readonly #destination: ContentStore & Partial<Mounting & TaggedPushing & UnaskedPushing>;
  readonly #options: CopyOptions;
  readonly #context: Context;
  readonly #limiter: RequestLimiter;
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  readonly #copies = new Map<string, Promise<CopyFailure[]>>();
  /** The tags with which manifests were pushed. */
  readonly #pushedTags = new Map<Digest, string>();

  constructor(destination: ContentStore, options: CopyOptions, context: Context) {
    this.#destination = destination;
    this.#options = options;
    this.#context = context;
    this.#limiter = new RequestLimiter(options.concurrency ?? defaultConcurrency);
    this.#signal = AbortSignal.any([context.signal, this.#stop.signal]);
  }

  /** Copies and tags an image. Returns its failures. Images with shared content return the same objects. */
  async copyImage(image: Image): Promise<CopyFailure[]> {
    const { name, root, tags = [], isAttachment = false } = image;
    const failures = [...new Set(await this.#copyOnce(root, image))];
    if (failures.length > 0) return failures;
    const untagged = await this.#collect(async () => {
      for (const tag of tags) {
        if (this.#pushedTags.get(root.digest) === tag) continue;
        await this.#attempt('destination', this.#destination, root, () => this.#destination.tag(root, tag));
      }
    });
    if (untagged.length === 0 && !isAttachment) this.#context.onEvent({ kind: 'image', name });
    return untagged;
  }

  #copyOnce(node: Descriptor, image: Image): Promise<CopyFailure[]> {
    const key = `${isManifest(node) ? 'manifest' : 'blob'} ${node.digest}`;
    let copy = this.#copies.get(key);
    if (!copy) {
      copy = this.#collect(() => this.#copy(node, image));
      this.#copies.set(key, copy);
    }
    return copy;
  }

  async #collect(action: () => Promise<CopyFailure[] | void>): Promise<CopyFailure[]> {
    try {
      return (await action()) ?? [];
    } catch (error) {
      if (error instanceof CopyFailure) return [error];
      throw error;
    }
  }

  async #copy(node: Descriptor, image: Image): Promise<CopyFailure[]> {
    const { digest, size } = node;
    const exists = (): Promise<boolean> => this.#destination.exists(node);
    if (!this.#isUnasked(node) && (await this.#attempt('destination', this.#destination, node, exists))) {
      if (isIndex(node)) {
        // Some registries have lists without all of their images.
        const images = childrenOf(manifestOf(node, image).manifest);
        const failures = (await Promise.all(images.map((child) => this.#copyOnce(child, image)))).flat();
        if (failures.length > 0) return failures;
      }
      this.#context.onEvent({ kind: 'skipped', digest, size });
      return [];
    }
    let isMounted = false;
    if (isManifest(node)) {
      const { bytes, manifest } = manifestOf(node, image);
      const children = childrenOf(manifest);
      const below = await Promise.all(children.map((child) => this.#copyOnce(child, image)));
      const failures = below.flat();
      if (failures.length > 0) return failures;
      await this.#putManifest(node, bytes, children, image);
    } else {
      isMounted = await this.#putBlob(node, image);
    }
    this.#context.onEvent({ kind: isMounted ? 'mounted' : 'stored', digest, size });
    return [];
  }

  /** Returns whether content is pushed without asking for it, because it is small, and the store rarely has it. */
  #isUnasked(node: Descriptor): boolean {
    const { unaskedSize } = this.#destination;
    const { isEmpty = false } = this.#options;
    if (unaskedSize === undefined) return false;
    // The manifest above a configuration is not there.
    return isManifest(node) ? isEmpty : node.size <= unaskedSize && (isEmpty || isContainerConfig(node));
  }

  async #putManifest(node: Descriptor, bytes: Buffer, children: readonly Descriptor[], image: Image): Promise<void> {
    try {
      await this.#pushManifest(node, bytes, node.digest === image.root.digest ? image.tags?.[0] : undefined);
    } catch (error) {
      if (!(error instanceof CopyFailure) || !error.isBlobUnknown) throw error;
      // Some registries report a child as present, but refuse its parent until it is pushed again
      // (oras-go #1212).
      for (const child of children) {
        if (isManifest(child)) await this.#pushManifest(child, manifestOf(child, image).bytes);
        else await this.#putBlob(child, image);
      }
      await this.#pushPatiently(node, bytes);
    }
  }

  /**
   * Pushes a manifest again for some seconds: registries with replicas know a blob only later (goharbor/harbor #4259).
   */
  async #pushPatiently(node: Descriptor, bytes: Buffer): Promise<void> {
    for (const pause of [1000, 2000, 4000, 8000]) {
      try {
        await this.#pushManifest(node, bytes);
        return;
      } catch (error) {
        if (!(error instanceof CopyFailure) || !error.isBlobUnknown) throw error;
        await sleep(pause, undefined, { signal: this.#signal }).catch(ignoreFailure);
      }
    }
    await this.#pushManifest(node, bytes);
  }

  /** Pushes a manifest: with its first tag in one request, if the store can do so. */
  async #pushManifest(node: Descriptor, bytes: Buffer, tag?: string): Promise<void> {
    const tagged = tag !== undefined && this.#destination.pushTagged ? tag : undefined;
    await this.#attempt('destination', this.#destination, node, () =>
      tagged === undefined
        ? this.#destination.push(node, () => Promise.resolve(Readable.from([bytes])))
        : this.#destination.pushTagged?.(node, bytes, tagged),
    );
    if (tagged !== undefined) this.#pushedTags.set(node.digest, tagged);
  }

  /** Mounts or moves a blob. Returns whether it was mounted. */
  async #putBlob(blob: Descriptor, { source }: Image): Promise<boolean> {
    const { mountFrom, moverOf } = this.#options;
    if (this.#destination.mount) {
      for (const repository of mountFrom?.(blob) ?? []) {
        const mount = (): Promise<boolean> | undefined => this.#destination.mount?.(blob, repository);
        if (await this.#attempt('destination', this.#destination, blob, mount)) return true;
      }
    }
    const move = moverOf?.(source);
    if (move) await this.#attempt('source', source, blob, () => move(blob, this.#signal));
    else await this.#attempt('destination', this.#destination, blob, () => this.#push(blob, source));
    return false;
  }

  async #push(blob: Descriptor, source: ContentSource): Promise<void> {
    let atSource: unknown;
    let reported = 0;
    const open = async (): Promise<Readable> => {
      atSource = undefined;
      let position = 0;
      const content = await source.fetch(blob).catch((error: unknown) => {
        atSource = error;
        throw error;
      });
      const counted = new Transform({
        readableHighWaterMark: 1024 * 1024,
        transform: (chunk: Buffer, _encoding, done) => {
          position += chunk.length;
          // A second attempt sends bytes that the first attempt reported.
          if (position > reported) {
            this.#context.onEvent({ kind: 'bytes', digest: blob.digest, bytes: position - reported });
            reported = position;
          }
          done(null, chunk);
        },
      });
      // A failed destination destroys the stream that it reads. That is not an error of the source.
      content.once('error', (error) => (atSource = counted.destroyed ? undefined : error));
      return addAbortSignal(
        this.#signal,
        pipeline(content, counted, () => undefined),
      );
    };
    try {
      await this.#destination.push(blob, open);
    } catch (error) {
      throw atSource === undefined ? error : new CopyFailure('source', source.name, blob.digest, atSource);
    }
  }

  /** Runs an action within the limit of requests, and adds the side and the store to its error. */
  async #attempt<T>(
    side: 'source' | 'destination',
    store: ContentSource,
    { digest }: Descriptor,
    action: () => Promise<T> | T,
  ): Promise<T> {
    let release: (() => void) | undefined;
    try {
      release = await this.#limiter.take('plain', this.#signal);
      return await action();
    } catch (error) {
      const failure = error instanceof CopyFailure ? error : new CopyFailure(side, store.name, digest, error);
      if (failure.isFatal && !this.#signal.aborted) {
        this.fatal = failure;
        this.#stop.abort();
      }
      throw failure;
    } finally {
      release?.();
    }
  }
}

/** A store that can mount a blob from another repository. `mount` returns false if that is not possible. */
interface Mounting {
  mount(descriptor: Descriptor, fromRepository: string): Promise<boolean>;
}

/** A store that can push a manifest with a tag, by which it can also be found by its digest. */
interface TaggedPushing {
  pushTagged(descriptor: Descriptor, bytes: Buffer, tag: string): Promise<void>;
}

/** A store to which small content is pushed without asking for it: configurations, and all of it into an empty one. */
interface UnaskedPushing {
  /** The largest size of such a blob, in bytes. */
  readonly unaskedSize: number;
}

function manifestOf({ digest }: Descriptor, { name, manifests }: Image): StoredManifest {
  const stored = manifests.get(digest);
  if (!stored) throw new PluginError('internal', `the manifest ${digest} of ${name} was not read`);
  return stored;
}

const namesShown = 5;

/** One failure of a copy: its side, store and content. */
export class CopyFailure extends Error {
  readonly side: 'source' | 'destination';
  readonly store: string;
  readonly digest: Digest;

  constructor(side: 'source' | 'destination', store: string, digest: Digest, cause: unknown) {
    super(messageOf(cause), { cause });
    this.side = side;
    this.store = store;
    this.digest = digest;
  }

  /** The code of the cause; `internal` for an error that is not a PluginError. */
  get code(): ErrorCode {
    return isPluginError(this.cause) ? this.cause.code : 'internal';
  }

  /**
   * Whether the copy must stop: the disk is full, or the destination refuses the user or the content, or is
   * unreachable.
   */
  get isFatal(): boolean {
    if (this.code === 'disk-full' || this.code === 'not-writable') return true;
    const codes: ErrorCode[] = ['unauthorized', 'denied', 'unreachable', 'too-large', 'unsupported'];
    return this.side === 'destination' && codes.includes(this.code);
  }

  /** Whether a registry refused a manifest because content of it is missing. */
  get isBlobUnknown(): boolean {
    for (let error: unknown = this.cause; error instanceof Error; error = error.cause) {
      if (/MANIFEST_(?:BLOB_)?UNKNOWN|blob unknown/i.test(error.message)) return true;
    }
    return false;
  }
}

/**
 * Combines all failures and their images into one error: the failure itself if there is only one, else `partial`. See
 * collectFailures.
 */
export function describeFailures(failures: ReadonlyMap<CopyFailure, readonly string[]>, total: number): PluginError {
  const errors = [...failures].map(([failure, images]) => {
    const { code, cause } = failure;
    return new PluginError(code, describeFailure(failure, images), { hint: hintOf(cause), cause });
  });
  const failed = new Set([...failures.values()].flat()).size;
  const title = `${failed} of ${total} images could not be copied`;
  const hint = 'Run the same command again: it skips the content that was copied.';
  return collectFailures(errors, { title, hint });
}

function describeFailure({ side, store, digest, message }: CopyFailure, images: readonly string[]): string {
  const names = nameSome(images, namesShown);
  const where = message.includes(store) ? side : `${side} ${store}`;
  const what = message.includes(digest) ? message : `${digest}: ${message}`;
  return `${names === '' ? '' : `${names}: `}${where}: ${what}`;
}

/** An image to copy that may be the image of a release. */
export interface OrderedImage extends Image {
  readonly isRelease?: boolean;
}

/** The images that were copied to a store. */
export interface CopiedImages {
  readonly store: ContentStore;
  readonly images: readonly Pick<Image, 'name' | 'root' | 'manifests' | 'tags'>[];
}

/** Guards copies against other runs, which may remove images from the same stores. */
export interface CopyGuard {
  /** Called before anything is copied. Throws if images are being removed. */
  readonly beforeCopies: (stores: readonly ContentStore[]) => Promise<void>;
  /** Called with all images except those of releases, before these are copied. Throws if any of them was removed. */
  readonly beforeReleases: (copied: readonly CopiedImages[]) => Promise<void>;
  /** Called with all images after those of releases are copied. Returns whether all are there. */
  readonly areThere: (copied: readonly CopiedImages[]) => Promise<boolean>;
}

/** The images for one store, and the function that copies some of them; `isEmpty` as in CopyOptions. */
interface StoreCopy<Copied extends OrderedImage> {
  readonly store: ContentStore;
  readonly images: readonly Copied[];
  readonly copy: (images: readonly Copied[], isEmpty: boolean) => Promise<void>;
}

/** The number of times that images are copied if they are removed meanwhile. */
const attempts = 3;

/**
 * Copies images to stores. Copies release images last, and only if everything else succeeded, because clients expect
 * all components of a release tag. If images are removed while a release is tagged, copies them again. Throws
 * `conflict` if they are removed each time, and the errors of the copies and of the guard.
 */
export async function copyReleasesLast<Copied extends OrderedImage>(
  stores: readonly StoreCopy<Copied>[],
  guard?: CopyGuard,
): Promise<void> {
  await guard?.beforeCopies(stores.map(({ store }) => store));
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    await copyAll(stores, false, attempt === 1);
    // Afterwards the release may have its tag, and an error would leave it incomplete.
    if (attempt === 1) await guard?.beforeReleases(stores.map((each) => ({ ...each, images: select(each, false) })));
    await copyAll(stores, true, false);
    if ((await guard?.areThere(stores)) !== false) return;
  }
  const names = stores.map(({ store }) => store.name).join(', ');
  throw new PluginError('conflict', `another program removes images from ${names} while they are copied`, {
    hint: 'Wait for it to end, and run the same command again: it copies what is missing.',
  });
}

async function copyAll<Copied extends OrderedImage>(
  stores: readonly StoreCopy<Copied>[],
  isRelease: boolean,
  isFirst: boolean,
): Promise<void> {
  for (const each of stores) {
    const images = select(each, isRelease);
    if (images.length > 0) await each.copy(images, isFirst && (await each.store.knownTags?.(1))?.size === 0);
  }
}

function select<Copied extends OrderedImage>({ images }: StoreCopy<Copied>, isRelease: boolean): Copied[] {
  return images.filter((image) => (image.isRelease ?? false) === isRelease);
}

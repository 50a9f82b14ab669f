import { addAbortSignal, pipeline, Readable, Transform } from 'node:stream';
import { checkInterrupted, type Context } from '../context.ts';
import { CopyFailure, describeFailures } from './copyFailure.ts';
import { PluginError } from '../errors.ts';
import { childrenOf, isManifest, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf } from '../oci/digest.ts';
import { RequestLimiter } from '../http/requestLimiter.ts';
import { readContent, type ContentSource, type ContentStore } from '../store/store.ts';

/** An image, or a list of images, to copy with everything below it. */
export interface Image {
  /** What to call it in events and errors. */
  readonly name: string;
  readonly source: ContentSource;
  readonly root: Descriptor;
  /** The tags that it gets at the destination, once it is whole there. */
  readonly tags?: readonly string[];
}

/** How to copy. */
export interface CopyOptions {
  /** How many questions and transfers may be under way at a time; 6 where it is not given. */
  readonly concurrency?: number;
  /** Other repositories at the destination that may have a blob: where the store can mount, they are tried before any byte moves. */
  readonly mountFrom?: (blob: Descriptor) => readonly string[];
  /** Brings a blob to the destination by means of the caller’s own, whose errors it throws; it emits `bytes` itself. */
  readonly moveBlob?: (blob: Descriptor, source: ContentSource, signal: AbortSignal) => Promise<void>;
}

const usualConcurrency = 6;
// Some only wait for what they share with others, and the slots should not be idle meanwhile.
const imagesPerSlot = 3;
const depthLimit = 8;
const nodeLimit = 100_000;

/**
 * Copies images to a store, byte for byte: what a manifest points to first, then the manifest, then its tags, so that an
 * interrupted copy goes on when it is run again. What is there, with all that is below it, is skipped; what several
 * images need moves once. An image that fails does not keep the others from being copied: afterwards one error says for
 * each failure which images, which side and which digest (`partial`; a single failure keeps its own code). A full or
 * read-only destination, or one that refuses the user or no longer answers, ends everything at once, as does `interrupted`.
 */
export async function copyImages(
  images: readonly Image[],
  destination: ContentStore,
  options: CopyOptions,
  context: Context,
): Promise<void> {
  const copy = new Copy(destination, options, context);
  const results: CopyFailure[][] = [];
  // Not all at once: the manifest of the first image would wait for the last blob of all.
  const waiting = images.entries();
  const work = async (): Promise<void> => {
    for (const [index, image] of waiting) results[index] = await copy.copyImage(image);
  };
  await Promise.all(Array.from({ length: imagesPerSlot * (options.concurrency ?? usualConcurrency) }, work));
  // Told in the order of the images, whichever failed first.
  const failed = new Map<CopyFailure, string[]>();
  for (const [index, { name }] of images.entries()) {
    for (const failure of results[index] ?? []) failed.set(failure, [...(failed.get(failure) ?? []), name]);
  }
  checkInterrupted(context.signal);
  if (copy.fatal) throw describeFailures(new Map([[copy.fatal, failed.get(copy.fatal) ?? []]]), images.length);
  if (failed.size > 0) throw describeFailures(failed, images.length);
}

class Copy {
  /** The failure after which nothing more is tried. */
  fatal: CopyFailure | undefined;
  readonly #destination: ContentStore & Partial<Mounting>;
  readonly #options: CopyOptions;
  readonly #context: Context;
  readonly #slots: RequestLimiter;
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  readonly #claims = new Map<string, Promise<CopyFailure[]>>();

  constructor(destination: ContentStore, options: CopyOptions, context: Context) {
    this.#destination = destination;
    this.#options = options;
    this.#context = context;
    this.#slots = new RequestLimiter(options.concurrency ?? usualConcurrency);
    this.#signal = AbortSignal.any([context.signal, this.#stop.signal]);
  }

  /** Copies an image and tags it; returns what failed of it. Failures of what images share are the same objects. */
  async copyImage({ name, source, root, tags = [] }: Image): Promise<CopyFailure[]> {
    const failures = [...new Set(await this.#claim(root, source, 1))];
    if (failures.length > 0) return failures;
    const untagged = await this.#collect(async () => {
      for (const tag of tags) {
        await this.#at('destination', this.#destination, root, () => this.#destination.tag(root, tag));
      }
    });
    if (untagged.length === 0) this.#context.onEvent({ kind: 'image', name });
    return untagged;
  }

  #claim(node: Descriptor, source: ContentSource, depth: number): Promise<CopyFailure[]> {
    const key = `${isManifest(node) ? 'manifest' : 'blob'} ${node.digest}`;
    let claim = this.#claims.get(key);
    if (!claim) {
      claim = this.#collect(() => this.#copy(node, source, depth));
      this.#claims.set(key, claim);
    }
    return claim;
  }

  async #collect(action: () => Promise<CopyFailure[] | void>): Promise<CopyFailure[]> {
    try {
      return (await action()) ?? [];
    } catch (error) {
      if (error instanceof CopyFailure) return [error];
      throw error;
    }
  }

  async #copy(node: Descriptor, source: ContentSource, depth: number): Promise<CopyFailure[]> {
    const { digest, size } = node;
    if (await this.#at('destination', this.#destination, node, () => this.#destination.exists(node))) {
      this.#context.onEvent({ kind: 'skipped', digest, size });
      return [];
    }
    if (isManifest(node)) {
      const { bytes, children } = await this.#readManifest(node, source, depth);
      const below = await Promise.all(children.map((child) => this.#claim(child, source, depth + 1)));
      const failures = below.flat();
      if (failures.length > 0) return failures;
      await this.#putManifest(node, source, bytes, children);
    } else {
      await this.#putBlob(node, source);
    }
    this.#context.onEvent({ kind: 'stored', digest, size });
    return [];
  }

  async #readManifest(node: Descriptor, source: ContentSource, depth: number): Promise<ManifestContent> {
    return this.#at('source', source, node, async () => {
      const bytes = await readContent(source, node);
      // What the bytes are is certain from here on, and so no manifest can be below itself.
      if (digestOf(bytes) !== node.digest) {
        throw new PluginError('digest-mismatch', `the content of ${node.digest} is corrupt`);
      }
      const children = childrenOf(parseManifest(bytes, `${node.digest} in ${source.name}`));
      if (depth >= depthLimit || this.#claims.size + children.length > nodeLimit) {
        throw new PluginError('invalid-manifest', `${node.digest} in ${source.name} belongs to no sane image`, {
          hint: `At most ${depthLimit} levels and ${nodeLimit} pieces of content are copied.`,
        });
      }
      return { bytes, children };
    });
  }

  async #putManifest(
    node: Descriptor,
    source: ContentSource,
    bytes: Buffer,
    children: readonly Descriptor[],
  ): Promise<void> {
    const put = (): Promise<void> => this.#destination.push(node, () => Promise.resolve(Readable.from([bytes])));
    try {
      await this.#at('destination', this.#destination, node, put);
    } catch (error) {
      if (!(error instanceof CopyFailure) || !error.saysBlobUnknown) throw error;
      // Some registries report a child as present, and yet refuse its parent until it is pushed again (oras-go #1212).
      for (const child of children) await this.#putAgain(child, source);
      await this.#at('destination', this.#destination, node, put);
    }
  }

  async #putAgain(node: Descriptor, source: ContentSource): Promise<void> {
    if (!isManifest(node)) return this.#putBlob(node, source);
    const bytes = await this.#at('source', source, node, () => readContent(source, node));
    await this.#at('destination', this.#destination, node, () =>
      this.#destination.push(node, () => Promise.resolve(Readable.from([bytes]))),
    );
  }

  async #putBlob(blob: Descriptor, source: ContentSource): Promise<void> {
    const { mountFrom, moveBlob } = this.#options;
    if (this.#destination.mount) {
      for (const repository of mountFrom?.(blob) ?? []) {
        const mount = (): Promise<boolean> | undefined => this.#destination.mount?.(blob, repository);
        if (await this.#at('destination', this.#destination, blob, mount)) return;
      }
    }
    if (moveBlob) return this.#at('source', source, blob, () => moveBlob(blob, source, this.#signal));
    await this.#at('destination', this.#destination, blob, () => this.#push(blob, source));
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
          // A second attempt brings bytes that were reported in the first.
          if (position > reported) {
            this.#context.onEvent({ kind: 'bytes', digest: blob.digest, bytes: position - reported });
            reported = position;
          }
          done(null, chunk);
        },
      });
      // When the destination gives up, it destroys what it reads, and thereby this stream too: that is not the source's doing.
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

  /** Does something at one side when there is a free slot, and says of an error where it happened. */
  async #at<T>(
    side: 'source' | 'destination',
    store: ContentSource,
    { digest }: Descriptor,
    action: () => Promise<T> | T,
  ): Promise<T> {
    let free: (() => void) | undefined;
    try {
      free = await this.#slots.take('plain', this.#signal);
      return await action();
    } catch (error) {
      const failure = error instanceof CopyFailure ? error : new CopyFailure(side, store.name, digest, error);
      if (failure.isFatal && !this.#signal.aborted) {
        this.fatal = failure;
        this.#stop.abort();
      }
      throw failure;
    } finally {
      free?.();
    }
  }
}

/** What some stores can do besides: take a blob over from another repository; false where that is not possible. */
interface Mounting {
  mount(descriptor: Descriptor, fromRepository: string): Promise<boolean>;
}

interface ManifestContent {
  readonly bytes: Buffer;
  readonly children: readonly Descriptor[];
}

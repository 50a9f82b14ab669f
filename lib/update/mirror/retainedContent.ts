import { Readable } from 'node:stream';
import {
  attachedTo,
  childrenOf,
  isManifest,
  type Descriptor,
  type Manifest,
  isDigest,
  type Digest,
} from '#content/oci';
import type { SizedContent, WithdrawableContent } from '#content/server';
import {
  isDamage,
  readContent,
  readImageManifest,
  Verifier,
  type ContentSource,
  type LocalContent,
} from '#content/store';
import type { Context } from '#context';
import { asFailure, PluginError, nameSome } from '#errors';
import { isForPlatform } from '#release/release';
import { readsMetadata, type MirrorContent } from '../record/mirrorContent.ts';
import type { HeldContent, Holdings, RetainedFiles } from './retainedBundles.ts';

/** A manifest of a retained bundle, and the content that must be there too. */
interface IndexedManifest {
  readonly descriptor: Descriptor;
  readonly children: readonly Descriptor[];
  readonly content: ContentSource & LocalContent;
}

/**
 * The content of retained bundles for container runtimes. A runtime that has got a manifest from a mirror asks no other
 * mirror for its blobs. So a manifest exists here only if everything below it does, and none of it is known to be
 * corrupt or unreadable. Of metadata, that is everything but the layers, and only for clients that read no image as a
 * whole.
 */
export class RetainedContent implements ContentSource, LocalContent, SizedContent, WithdrawableContent {
  readonly name = 'the retained bundles';
  /** Whether it is that of whole bundles. */
  readonly kept: MirrorContent;
  readonly #manifests: ReadonlyMap<Digest, IndexedManifest>;
  readonly #blobs: Holdings;
  readonly #attachments: ReadonlyMap<string, Digest>;
  readonly #context: Context;
  readonly #corrupt = new Set<Digest>();

  private constructor(
    manifests: ReadonlyMap<Digest, IndexedManifest>,
    blobs: Holdings,
    attachments: ReadonlyMap<string, Digest>,
    kept: MirrorContent,
    context: Context,
  ) {
    this.#manifests = manifests;
    this.#blobs = blobs;
    this.#attachments = attachments;
    this.kept = kept;
    this.#context = context;
  }

  /**
   * Reads every manifest once, and leaves out manifests that cannot be read. What is known to be corrupt in `before`
   * stays withdrawn, unless it comes from another copy now. Throws `interrupted`.
   */
  static async index(
    { kept, manifests, blobs, tags }: RetainedFiles,
    before: RetainedContent | undefined,
    context: Context,
  ): Promise<RetainedContent> {
    const indexed = new Map<Digest, IndexedManifest>();
    for (const [digest, { content }] of manifests) {
      const read = await orWarn(context, async () => {
        const descriptor = await content.resolve(digest);
        const manifest = await readImageManifest(content, descriptor);
        const children = kept === 'all' ? childrenOf(manifest) : describingChildren(manifest);
        return { descriptor, children, content };
      });
      if (read) indexed.set(digest, read);
    }
    const attachments = new Map<string, Digest>();
    for (const [tag, content] of tags) {
      if (attachedTo(tag) === undefined) continue;
      const descriptor = await orWarn(context, () => content.resolve(tag));
      if (descriptor) attachments.set(tag, descriptor.digest);
    }
    const retained = new RetainedContent(indexed, blobs, attachments, kept, context);
    if (before) {
      for (const digest of before.#corrupt)
        if (retained.#held(digest)?.content === before.#held(digest)?.content) retained.#corrupt.add(digest);
    }
    return retained;
  }

  /** Returns whether there is content for a client, by its User-Agent. */
  isFor(client: string): boolean {
    return this.kept === 'all' || readsMetadata(client);
  }

  /** The digests of all manifests and blobs. */
  get digests(): readonly Digest[] {
    return [...this.#manifests.keys(), ...this.#blobs.keys()];
  }

  /** The digests of the manifests that are withdrawn. */
  get withdrawn(): readonly Digest[] {
    if (this.#corrupt.size === 0) return [];
    return [...this.#manifests.keys()].filter((digest) => this.#isWithdrawn(digest));
  }

  /** Withdraws content that is corrupt or cannot be read, and every manifest above it. */
  withdraw(digest: Digest, cause: PluginError): void {
    if (this.#corrupt.has(digest)) return;
    const before = this.withdrawn;
    this.#corrupt.add(digest);
    const images = this.withdrawn.filter((image) => !before.includes(image));
    this.#context.log('warn', `${digest} cannot be served: ${cause.message}; withdrawn with it: ${nameSome(images)}`);
  }

  /** Reads content completely. Withdraws it if it is corrupt or cannot be read, and gives it again if it is intact. */
  async check(digest: Digest): Promise<void> {
    const held = this.#held(digest);
    if (!held) return;
    const descriptor = { mediaType: 'application/octet-stream', digest, size: held.size };
    const verifier = new Verifier(descriptor, this.name);
    try {
      for await (const chunk of held.content.chunks(descriptor, 0, held.size)) verifier.update(chunk);
      verifier.finish();
      if (this.#corrupt.delete(digest)) this.#context.log('info', `${digest} is intact again`);
    } catch (error) {
      if (!isDamage(error)) throw error;
      this.withdraw(digest, error);
    }
  }

  /** Returns whether a complete manifest exists. */
  has(reference: string): boolean {
    return this.#find(reference) !== undefined;
  }

  /** Returns a complete manifest by its digest, or by the tag of an attachment. Throws `not-found`. */
  resolve(reference: string): Promise<Descriptor> {
    const descriptor = this.#find(reference);
    if (descriptor) return Promise.resolve(descriptor);
    return Promise.reject(new PluginError('not-found', `${this.name} do not have ${reference}`));
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const { digest } = descriptor;
    const manifest = this.#manifests.get(digest);
    if (!manifest) return this.#holder(digest).fetch(descriptor, start);
    try {
      return Readable.from([(await readContent(manifest.content, descriptor)).subarray(start)]);
    } catch (error) {
      if (isDamage(error)) this.withdraw(digest, error);
      throw error;
    }
  }

  chunks(descriptor: Descriptor, start: number, end: number): AsyncIterable<Buffer> {
    return this.#holder(descriptor.digest).chunks(descriptor, start, end);
  }

  exists({ digest }: Pick<Descriptor, 'digest'>): Promise<boolean> {
    return Promise.resolve(this.#blobs.has(digest) && !this.#corrupt.has(digest));
  }

  /** Nothing is listed. */
  tags(): Promise<string[]> {
    return Promise.resolve([]);
  }

  sizeOf(digest: Digest): Promise<number | undefined> {
    return Promise.resolve(this.#blobs.get(digest)?.size);
  }

  #find(reference: string): Descriptor | undefined {
    const digest = isDigest(reference) ? reference : this.#attachments.get(reference);
    const manifest = digest === undefined ? undefined : this.#manifests.get(digest);
    return manifest && this.#isComplete(manifest.descriptor) ? manifest.descriptor : undefined;
  }

  #isComplete(descriptor: Descriptor): boolean {
    const { digest, size } = descriptor;
    if (this.#corrupt.has(digest)) return false;
    const manifest = this.#manifests.get(digest);
    if (!manifest) return !isManifest(descriptor) && this.#blobs.get(digest)?.size === size;
    return manifest.children.every((child) => this.#isComplete(child));
  }

  #isWithdrawn(digest: Digest): boolean {
    const { children = [] } = this.#manifests.get(digest) ?? {};
    return this.#corrupt.has(digest) || children.some((child) => this.#isWithdrawn(child.digest));
  }

  #held(digest: Digest): HeldContent | undefined {
    const manifest = this.#manifests.get(digest);
    return manifest ? { content: manifest.content, size: manifest.descriptor.size } : this.#blobs.get(digest);
  }

  #holder(digest: Digest): ContentSource & LocalContent {
    const held = this.#held(digest);
    if (held) return held.content;
    throw new PluginError('not-found', `${this.name} do not have ${digest}`);
  }
}

/** Returns the content below a manifest that describes its images. */
function describingChildren({ config, manifests }: Manifest): readonly Descriptor[] {
  return [...manifests.filter(isForPlatform), ...(config ? [config] : [])];
}

async function orWarn<T>(context: Context, read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    context.log('warn', `left out: ${asFailure(error).message}`);
    return undefined;
  }
}

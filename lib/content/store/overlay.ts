import { Readable } from 'node:stream';
import { PluginError } from '../../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import { digestOf } from '../oci/digest.ts';
import { verifyStream, type ContentSource } from './store.ts';

/** Content in memory on top of a repository, for an image that shares layers with another one. */
export class Overlay implements ContentSource {
  readonly name: string;
  readonly #base: ContentSource;
  readonly #own = new Map<string, { readonly descriptor: Descriptor; readonly bytes: Buffer }>();

  constructor(name: string, base: ContentSource) {
    this.name = name;
    this.#base = base;
  }

  /** Adds content, and returns its descriptor. */
  add(mediaType: string, bytes: Buffer): Descriptor {
    const descriptor = { mediaType, digest: digestOf(bytes), size: bytes.length };
    this.#own.set(descriptor.digest, { descriptor, bytes });
    return descriptor;
  }

  /**
   * Returns the descriptor of added content. Content of the base can be fetched, but not resolved. Throws `not-found`.
   */
  async resolve(digest: string): Promise<Descriptor> {
    const own = this.#own.get(digest);
    if (own) return own.descriptor;
    throw new PluginError('not-found', `${this.name} has no ${digest}`);
  }

  /** Returns whether content was added here. */
  has(digest: string): boolean {
    return this.#own.has(digest);
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const own = this.#own.get(descriptor.digest);
    if (!own) return this.#base.fetch(descriptor, start);
    return verifyStream(Readable.from([own.bytes.subarray(start)]), descriptor, this.name, start);
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    return this.#own.has(descriptor.digest) || this.#base.exists(descriptor);
  }

  async tags(): Promise<string[]> {
    return [];
  }
}

import { Readable } from 'node:stream';
import { PluginError } from '../../errors.ts';
import { parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, type Digest } from '../oci/digest.ts';
import { verifyStream, type ContentSource, type LocalContent } from './store.ts';

/** Content in memory, alone or on top of a repository, for an image that shares layers with another one. */
export class Overlay implements ContentSource, LocalContent {
  readonly name: string;
  readonly #base: ContentSource | undefined;
  readonly #own: Map<string, Buffer>;

  constructor(name: string, base: ContentSource | undefined, own: ReadonlyMap<Digest, Buffer> = new Map()) {
    this.name = name;
    this.#base = base;
    this.#own = new Map(own);
  }

  /** Adds content, and returns its descriptor. */
  add(mediaType: string, bytes: Buffer): Descriptor {
    const digest = digestOf(bytes);
    this.#own.set(digest, bytes);
    return { mediaType, digest, size: bytes.length };
  }

  /**
   * Returns the descriptor of an own manifest. Content of the base can be fetched, but not resolved. Throws `not-found`.
   */
  async resolve(digest: string): Promise<Descriptor> {
    const bytes = this.#own.get(digest);
    if (!bytes) throw this.#lack(digest);
    const { mediaType } = parseManifest(bytes, `${digest} in ${this.name}`);
    return { mediaType, digest: digest as Digest, size: bytes.length };
  }

  /** Returns whether content was added here. */
  has(digest: string): boolean {
    return this.#own.has(digest);
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const bytes = this.#own.get(descriptor.digest);
    if (bytes) return verifyStream(Readable.from([bytes.subarray(start)]), descriptor, this.name, start);
    if (this.#base) return this.#base.fetch(descriptor, start);
    throw this.#lack(descriptor.digest);
  }

  /** Reads content that was added here. Throws `not-found` for that of the base. */
  async *chunks({ digest }: Pick<Descriptor, 'digest'>, start: number, end: number): AsyncGenerator<Buffer> {
    const bytes = this.#own.get(digest);
    if (!bytes) throw this.#lack(digest);
    yield bytes.subarray(start, end);
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    return this.#own.has(descriptor.digest) || (await this.#base?.exists(descriptor)) === true;
  }

  async tags(): Promise<string[]> {
    return [];
  }

  #lack(digest: string): PluginError {
    return new PluginError('not-found', `${this.name} does not have ${digest}`);
  }
}

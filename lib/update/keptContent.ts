import { Readable } from 'node:stream';
import { PluginError } from '../errors.ts';
import { parseManifest, type Descriptor } from '../content/oci/descriptor.ts';
import type { Digest } from '../content/oci/digest.ts';
import { readContent, verifyStream, type ContentSource } from '../content/store/store.ts';

/** The largest content to keep, in bytes. The layers with the manifests of a release have a few megabytes. */
const largest = 256 * 1024 * 1024;

/** Content in memory, by digest. Each read verifies it. */
export class KeptContent implements ContentSource {
  readonly name: string;
  readonly #contents: ReadonlyMap<Digest, Buffer>;

  constructor(name: string, contents: ReadonlyMap<Digest, Buffer>) {
    this.name = name;
    this.#contents = contents;
  }

  resolve(digest: string): Promise<Descriptor> {
    const bytes = this.#contents.get(digest as Digest);
    if (!bytes) return Promise.reject(this.#lack(digest));
    const { mediaType } = parseManifest(bytes, `${digest} in ${this.name}`);
    return Promise.resolve({ mediaType, digest: digest as Digest, size: bytes.length });
  }

  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const bytes = this.#contents.get(descriptor.digest);
    if (!bytes) return Promise.reject(this.#lack(descriptor.digest));
    return Promise.resolve(verifyStream(Readable.from([bytes.subarray(start)]), descriptor, this.name, start));
  }

  exists({ digest }: Descriptor): Promise<boolean> {
    return Promise.resolve(this.#contents.has(digest));
  }

  tags(): Promise<string[]> {
    return Promise.resolve([]);
  }

  #lack(digest: string): PluginError {
    return new PluginError('not-found', `${this.name} does not have ${digest}`);
  }
}

/** Wraps a source, and adds a copy of all content that is read through it to `contents`. */
export function keepContent(source: ContentSource, contents: Map<Digest, Buffer>): ContentSource {
  const keep = async (descriptor: Descriptor): Promise<Readable> => {
    const bytes = contents.get(descriptor.digest) ?? (await readContent(source, descriptor, largest));
    contents.set(descriptor.digest, bytes);
    return Readable.from([bytes]);
  };
  return {
    name: source.name,
    resolve: async (tagOrDigest) => {
      const descriptor = await source.resolve(tagOrDigest);
      contents.set(descriptor.digest, await readContent(source, descriptor));
      return descriptor;
    },
    fetch: (descriptor, start) => (start ? source.fetch(descriptor, start) : keep(descriptor)),
    exists: (descriptor) => source.exists(descriptor),
    tags: () => source.tags(),
  };
}

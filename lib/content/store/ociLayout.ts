import type { Readable } from 'node:stream';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { RootFolder } from '../files/rootFolder.ts';
import { manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { hexOf, isDigest, type Digest } from '../oci/reference.ts';
import { verifyStream, type ContentSource } from './store.ts';

/** The name of the file that marks a folder as an image layout (OCI image-spec). */
export const ociLayoutFile = 'oci-layout';

const tagAnnotation = 'org.opencontainers.image.ref.name';

/** A folder with images of other tools (OCI image-spec, image-layout.md), read in place as one repository. */
export class OciLayout implements ContentSource {
  readonly name: string;
  readonly #folder: RootFolder;
  readonly #context: Context;

  constructor(path: string, context: Context) {
    this.name = path;
    this.#folder = new RootFolder(path);
    this.#context = context;
  }

  /** Returns the descriptors in index.json, in their order. Throws `not-found` and `invalid-manifest`. */
  async entries(): Promise<readonly Descriptor[]> {
    const path = 'index.json';
    return parseManifest(await this.#folder.read(path, manifestSizeLimit), `${path} in ${this.name}`).manifests;
  }

  async resolve(tagOrDigest: string): Promise<Descriptor> {
    const digest = isDigest(tagOrDigest) ? tagOrDigest : (await this.#tagged(tagOrDigest))?.digest;
    if (digest === undefined) throw new PluginError('not-found', `${this.name} has no ${tagOrDigest}`);
    const bytes = await this.#folder.read(pathOf(digest), manifestSizeLimit);
    const { mediaType } = parseManifest(bytes, `${digest} in ${this.name}`);
    return { mediaType, digest, size: bytes.length };
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    if ((await this.#sizeOf(descriptor.digest)) === undefined) {
      throw new PluginError('not-found', `${this.name} has no ${descriptor.digest}`);
    }
    const content = this.#folder.stream(pathOf(descriptor.digest), this.#context.signal, start);
    return verifyStream(content, descriptor, this.name, start);
  }

  async exists({ digest, size }: Descriptor): Promise<boolean> {
    return (await this.#sizeOf(digest)) === size;
  }

  async tags(): Promise<string[]> {
    return (await this.entries()).flatMap(({ annotations }) => annotations?.[tagAnnotation] ?? []);
  }

  async #tagged(tag: string): Promise<Descriptor | undefined> {
    return (await this.entries()).find(({ annotations }) => annotations?.[tagAnnotation] === tag);
  }

  #sizeOf(digest: Digest): Promise<number | undefined> {
    return this.#folder.sizeOf(pathOf(digest));
  }
}

function pathOf(digest: Digest): string {
  return `blobs/sha256/${hexOf(digest)}`;
}

import type { SignaturesByDigest } from '#config/signatures';
import type { ArchiveWriter } from '#content/archive';
import type { FetchFile } from '#content/http';
import type { Digest, Reference } from '#content/oci';
import { Registries, type RegistryAccess } from '#content/registry';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { StoredBlob } from './contents.ts';

/** The source of a new bundle: registries, a mirror directory or another bundle. */
export interface ReleaseProvider {
  /** Signatures that are stored with the content, not verified. */
  readonly signatures: SignaturesByDigest;
  /** The repository of the release, if the content names it. */
  readonly repository?: string;
  /** Blobs that are copied from this machine; undefined if that is none or all of them. */
  readonly held?: ReadonlySet<Digest>;
  /** Whether all content is on this machine. */
  readonly isLocal?: boolean;
  /** Gets files from signature stores. */
  readonly fetchFile: FetchFile;
  /** Returns the repository that has an image. */
  sourceOf(reference: Reference): ContentSource;
  /** Fetches a blob into a bundle, and verifies it. `onProgress` gets the number of bytes that are present. */
  fetchBlob(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Registries, with their mirrors. Separate threads fetch the blobs. */
export class RegistryProvider implements ReleaseProvider {
  readonly signatures: SignaturesByDigest = new Map();
  readonly #registries: Registries;

  constructor(access: RegistryAccess, context: Context) {
    this.#registries = new Registries(access, context);
  }

  get fetchFile(): FetchFile {
    return this.#registries.fetchFile;
  }

  sourceOf(reference: Reference): ContentSource {
    return this.#registries.sourceOf(reference);
  }

  async fetchBlob(
    { descriptor, images }: StoredBlob,
    writer: ArchiveWriter,
    onProgress: (present: number) => void,
  ): Promise<void> {
    const place = writer.place(descriptor.digest);
    if (!place) throw new PluginError('internal', `the tar has no place for ${descriptor.digest}`);
    const references = [...images].map(({ reference }) => reference);
    await this.#registries.download(descriptor, references, place, onProgress);
    writer.noteFinished(descriptor.digest);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#registries[Symbol.asyncDispose]();
  }
}

import { open, readFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { ContentPlace } from '../../../lib/content/store/store.ts';
import type { RegistryContent } from '../../fakes/registry/content.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';
import { makeNoiseLayer } from './layers.ts';

/** A file with places for content, one after the other. */
export class Places {
  readonly #folder: string;
  readonly #file: FileHandle;
  #end = 0;

  private constructor(folder: string, file: FileHandle) {
    this.#folder = folder;
    this.#file = file;
  }

  static async make(): Promise<Places> {
    const folder = await makeFolder();
    return new Places(folder, await open(join(folder, 'file'), 'w+'));
  }

  /** Returns the next place, of `size` bytes, with the given bytes at its beginning. */
  async next(size: number, present: Buffer = Buffer.alloc(0)): Promise<ContentPlace> {
    const position = this.#end;
    this.#end += size;
    await this.#file.write(present, 0, present.length, position);
    const path = join(this.#folder, 'file');
    return { path, pieces: [{ path, fd: this.#file.fd, position, size }], present: present.length };
  }

  /** Returns the present content of a place. */
  async read({ pieces }: ContentPlace, size: number): Promise<Buffer> {
    const { position } = pieces[0] ?? { position: 0 };
    return (await readFile(join(this.#folder, 'file'))).subarray(position, position + size);
  }

  async remove(): Promise<void> {
    await this.#file.close();
    await removeFolder(this.#folder);
  }
}

/** Adds a blob of noise to a registry’s content. */
export function addBlob(
  content: RegistryContent,
  seed: string,
  size: number,
): { descriptor: Descriptor; bytes: Buffer } {
  const bytes = makeNoiseLayer(seed, size).read();
  const descriptor = { mediaType: 'application/octet-stream', digest: digestOf(bytes), size: bytes.length };
  content.blobs.set(descriptor.digest, bytes);
  return { descriptor, bytes };
}

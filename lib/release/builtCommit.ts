import { isFile, readLayer } from '../content/archive/layerReader.ts';
import type { Context } from '../context.ts';
import type { Manifest } from '../content/oci/descriptor.ts';
import type { ContentSource } from '../content/store/store.ts';

const executable = /^(?:\.?\/)*usr\/bin\/machine-config-controller$/;
const setting = Buffer.from('machine-config-operator/pkg/version.Hash=');
const commitHash = /^[0-9a-f]{7,64}/;
// Real sizes: 100 MB for each of five executables in one layer, which has 200 MB packed.
const limits = { packed: 2 ** 30, unpacked: 2 ** 32, of: 'an executable', code: 'invalid-manifest' } as const;

/** The commits in the executable machine-config-controller of an image. */
export interface BuiltCommit {
  /** The commit that its build settings name. Undefined if the build left the settings out (`-trimpath`). */
  readonly set: string | undefined;
  /** The stated commits that stand anywhere in it. */
  readonly present: readonly string[];
}

/**
 * Reads the commit that machine-config-controller compares from its executable in an image, from the last layer down.
 * Reads the build settings that Go keeps in it, and searches for the stated commits. Undefined if no layer has it.
 * Throws the errors of reading a layer.
 */
export async function readBuiltCommit(
  source: ContentSource,
  { layers }: Manifest,
  stated: readonly string[],
  context: Context,
): Promise<BuiltCommit | undefined> {
  for (const layer of layers.toReversed()) {
    const texts = [setting, ...stated.map((commit) => Buffer.from(commit))];
    const searches: Search[] = [];
    await readLayer(source, layer, limits, context, (entry) => {
      if (!executable.test(entry.path) || !isFile(entry)) return undefined;
      const search = new Search(texts);
      searches.push(search);
      return search;
    });
    const [search] = searches;
    if (!search) continue;
    const set = commitHash.exec(search.found.get(setting)?.toString('latin1') ?? '')?.[0];
    return { set, present: stated.filter((_, index) => search.found.has(texts[index + 1] ?? setting)) };
  }
  return undefined;
}

/** Searches a stream of bytes for texts, and keeps what follows the first occurrence of each. */
class Search {
  /** The 64 bytes after each text, by the text. */
  readonly found = new Map<Buffer, Buffer>();
  readonly #wanted: readonly Buffer[];
  #tail = Buffer.alloc(0);

  constructor(texts: readonly Buffer[]) {
    this.#wanted = texts;
  }

  write(chunk: Buffer): void {
    // A text and what follows it are shorter than the tail, so none is lost between two chunks.
    const bytes = Buffer.concat([this.#tail, chunk]);
    this.#find(bytes, bytes.length - 64);
    this.#tail = Buffer.from(bytes.subarray(-256));
  }

  end(): void {
    this.#find(this.#tail, this.#tail.length);
  }

  /** Finds texts that end before a place. */
  #find(bytes: Buffer, before: number): void {
    for (const text of this.#wanted) {
      const end = bytes.indexOf(text) + text.length;
      if (end >= text.length && end <= before && !this.found.has(text)) {
        this.found.set(text, Buffer.from(bytes.subarray(end, end + 64)));
      }
    }
  }
}

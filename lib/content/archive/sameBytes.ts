import { createHash, type Hash } from 'node:crypto';
import { PluginError } from '#errors';
import { digestOf, type Digest } from '../oci/reference.ts';

/** Receives the bytes of an archive, part by part. */
type PartScanner<Part> = (part: Part, chunk: Buffer) => void;

/**
 * Compares the reads of an archive. Headers and small files are judged from one read, and hashed in another one. A
 * drive may return other bytes the second time; the digest would then not be that of the judged bytes.
 */
export class SameBytes {
  readonly #path: string;
  readonly #known = new Map<string, Digest>();

  /** `headers` is the digest of the listed headers of a tar. */
  constructor(path: string, headers?: Digest) {
    this.#path = path;
    if (headers !== undefined) this.#known.set('header', headers);
  }

  /** Returns the bytes of a file. Throws `digest-mismatch` if an earlier read returned others. */
  check(file: string, bytes: Buffer): Buffer {
    this.#compare(file, digestOf(bytes));
    return bytes;
  }

  /**
   * Returns a scanner that compares the parts that it passes on, and the function to call after the last byte. Both
   * throw `digest-mismatch`. `nameOf` returns the path of a file to compare, and `header` for all headers.
   */
  watch<Part>(
    scanner: PartScanner<Part>,
    nameOf: (part: Part) => string | undefined,
  ): { readonly scanner: PartScanner<Part>; readonly finish: () => void } {
    const headers = createHash('sha256');
    let current: { readonly part: Part; readonly name: string; readonly hash: Hash } | undefined;
    const endFile = (): void => {
      if (current) this.#compare(current.name, digestOfHash(current.hash));
      current = undefined;
    };
    return {
      scanner: (part, chunk) => {
        if (current?.part !== part) endFile();
        const name = nameOf(part);
        if (name === 'header') headers.update(chunk);
        else if (name !== undefined) {
          current ??= { part, name, hash: createHash('sha256') };
          current.hash.update(chunk);
        }
        scanner(part, chunk);
      },
      finish: () => {
        endFile();
        if (this.#known.has('header')) this.#compare('header', digestOfHash(headers));
      },
    };
  }

  #compare(name: string, digest: Digest): void {
    const before = this.#known.get(name) ?? digest;
    this.#known.set(name, before);
    if (before === digest) return;
    const what = name === 'header' ? 'the headers of its entries' : name;
    const message = `${this.#path} returned other bytes for ${what} when they were read again`;
    const hint =
      'The drive is faulty, or the bundle was replaced. Copy the bundle to another drive, and run the command again.';
    throw new PluginError('digest-mismatch', message, { hint });
  }
}

function digestOfHash(hash: Hash): Digest {
  return `sha256:${hash.digest('hex')}`;
}

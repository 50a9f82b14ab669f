import { closeSync, openSync, writeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isDigest, type Digest } from '../oci/digest.ts';

/**
 * What of a half-written archive is there: one line for each piece of content that is whole (`<digest>`), that has
 * begun (`<digest> <bytes>`), or that has to come again (`<digest> 0`); the first line names the layout that it
 * belongs to. Lines are only ever added, so a run that is killed loses at most the last one.
 */
export class Journal {
  /** Content that is whole. */
  readonly finished: Set<Digest>;
  /** How many bytes of other content are there. */
  readonly begun: Map<Digest, number>;
  readonly #fd: number;

  private constructor(fd: number, finished: Set<Digest>, begun: Map<Digest, number>) {
    this.#fd = fd;
    this.finished = finished;
    this.begun = begun;
  }

  /** Starts a journal, in place of any that was there. `identity` is one word. */
  static create(path: string, identity: string): Journal {
    const fd = openSync(path, 'w');
    writeSync(fd, `${identity}\n`);
    return new Journal(fd, new Set(), new Map());
  }

  /** Reads a journal in order to go on with it; undefined where there is none of that identity. */
  static async resume(path: string, identity: string): Promise<Journal | undefined> {
    const text = await readFile(path, 'utf8').catch(() => '');
    // What follows the last line end was cut off by whatever ended the run.
    const [first, ...lines] = text.split('\n').slice(0, -1);
    if (first !== identity) return undefined;
    const fd = openSync(path, 'a');
    if (!text.endsWith('\n')) writeSync(fd, '\n');
    const journal = new Journal(fd, new Set(), new Map());
    for (const line of lines) journal.#take(line);
    return journal;
  }

  /** Notes that content is whole. */
  finish(digest: Digest): void {
    this.#write(digest);
  }

  /** Notes that the first `bytes` of some content are there. */
  begin(digest: Digest, bytes: number): void {
    this.#write(`${digest} ${String(bytes)}`);
  }

  /** Notes that content has to come again from its first byte. */
  forget(digest: Digest): void {
    this.#write(`${digest} 0`);
  }

  close(): void {
    closeSync(this.#fd);
  }

  #write(line: string): void {
    writeSync(this.#fd, `${line}\n`);
    this.#take(line);
  }

  #take(line: string): void {
    const [digest = '', bytes] = line.split(' ');
    if (!isDigest(digest)) return;
    if (bytes === undefined) {
      this.finished.add(digest);
      this.begun.delete(digest);
    } else if (Number.isSafeInteger(Number(bytes))) {
      this.finished.delete(digest);
      this.begun.set(digest, Number(bytes));
    }
  }
}

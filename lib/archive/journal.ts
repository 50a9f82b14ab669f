import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isDigest, type Digest } from '../oci/digest.ts';
import { describeWriteError } from '../files/disk.ts';

/**
 * What of a half-written archive is there: one line for each piece of content that is whole (`<digest>`), that has
 * begun (`<digest> <bytes>`), or that has to come again (`<digest> 0`); the first line names the layout that it
 * belongs to. Lines are only ever added, so a run that is killed loses at most the last one. Writing throws `disk-full`
 * and `not-writable`.
 */
export class Journal {
  /** Content that is whole. */
  readonly finished = new Set<Digest>();
  /** How many bytes of other content are there. */
  readonly begun = new Map<Digest, number>();
  readonly #path: string;
  #fd: number | undefined;

  private constructor(path: string, fd: number) {
    this.#path = path;
    this.#fd = fd;
  }

  /** Starts a journal, in place of any that was there. `identity` is one word. */
  static create(path: string, identity: string): Journal {
    const journal = new Journal(path, openSync(path, 'w'));
    journal.#write(identity);
    return journal;
  }

  /** Reads a journal in order to go on with it; undefined where there is none of that identity. */
  static async resume(path: string, identity: string): Promise<Journal | undefined> {
    const text = await readFile(path, 'utf8').catch(() => '');
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    const [first, ...lines] = whole.split('\n').slice(0, -1);
    if (first !== identity) return undefined;
    const fd = openSync(path, 'a');
    // Half a line, which whatever ended the run left, could pass for another: a digest alone says that it is whole.
    ftruncateSync(fd, Buffer.byteLength(whole));
    const journal = new Journal(path, fd);
    for (const line of lines) journal.#take(line);
    return journal;
  }

  /** Notes that content is whole. */
  finish(digest: Digest): void {
    this.#note(digest);
  }

  /** Notes that the first `bytes` of some content are there. */
  begin(digest: Digest, bytes: number): void {
    this.#note(`${digest} ${bytes}`);
  }

  /** Notes that content has to come again from its first byte. */
  forget(digest: Digest): void {
    this.#note(`${digest} 0`);
  }

  /** Lets go of the file; nothing can be noted any more. */
  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #note(line: string): void {
    this.#write(line);
    this.#take(line);
  }

  #write(line: string): void {
    // What still comes in after the end is of no use to anybody.
    if (this.#fd === undefined) return;
    try {
      writeSync(this.#fd, `${line}\n`);
    } catch (error) {
      throw describeWriteError(error, this.#path);
    }
  }

  #take(line: string): void {
    const [digest = '', bytes] = line.split(' ');
    if (!isDigest(digest)) return;
    if (bytes === undefined) {
      this.finished.add(digest);
      this.begun.delete(digest);
    } else if (/^\d{1,15}$/.test(bytes)) {
      this.finished.delete(digest);
      this.begun.set(digest, Number(bytes));
    }
  }
}

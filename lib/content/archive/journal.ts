import { closeSync, constants, ftruncateSync, rmSync, writeSync } from 'node:fs';
import { describeWriteError } from '../files/disk.ts';
import { isMissing } from '../files/fileRange.ts';
import { openRegular, openRegularSync, readWhole } from '../files/smallFile.ts';
import { isDigest, type Digest } from '../oci/reference.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_WRONLY } = constants;

/** The largest journal in bytes. A bundle of 1 TB has some 10 MB. */
const sizeLimit = 256 * 1024 * 1024;

/**
 * The state of an unfinished archive. The first line identifies the layout. Each other line is for complete content
 * (`<digest>`), for content that has begun (`<digest> <bytes>`), or for content to write again (`<digest> 0`). Lines
 * are only appended, so a killed run loses at most the last one. Writing throws `disk-full` and `not-writable`.
 */
export class Journal {
  /** Complete content. */
  readonly finished = new Set<Digest>();
  /** The number of written bytes of incomplete content. */
  readonly begun = new Map<Digest, number>();
  readonly #path: string;
  #fd: number | undefined;

  private constructor(path: string, fd: number) {
    this.#path = path;
    this.#fd = fd;
  }

  /** Creates a journal, and replaces any existing one. `identity` is one word. */
  static create(path: string, identity: string): Journal {
    rmSync(path, { force: true });
    const journal = new Journal(path, openRegularSync(path, O_WRONLY | O_CREAT | O_EXCL));
    journal.#write(identity);
    return journal;
  }

  /**
   * Opens a journal to resume from it. Returns undefined if there is no journal with that identity. Throws
   * `not-writable` if it is not a regular file, and `too-large`.
   */
  static async resume(path: string, identity: string): Promise<Journal | undefined> {
    const text = await readText(path);
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    const [first, ...lines] = whole.split('\n').slice(0, -1);
    if (first !== identity) return undefined;
    const fd = openRegularSync(path, O_WRONLY | O_APPEND);
    // An incomplete line could be read as another one, because a digest alone means complete content.
    ftruncateSync(fd, Buffer.byteLength(whole));
    const journal = new Journal(path, fd);
    for (const line of lines) journal.#take(line);
    return journal;
  }

  /** Records that content is complete. */
  finish(digest: Digest): void {
    this.#note(digest);
  }

  /** Records that the first `bytes` bytes of content are written. */
  begin(digest: Digest, bytes: number): void {
    this.#note(`${digest} ${bytes}`);
  }

  /** Records that content must be written again from its first byte. */
  forget(digest: Digest): void {
    this.#note(`${digest} 0`);
  }

  /** Closes the file. Later records are ignored. */
  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #note(line: string): void {
    this.#write(line);
    this.#take(line);
  }

  #write(line: string): void {
    // Records after the end are ignored.
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

async function readText(path: string): Promise<string> {
  try {
    await using file = await openRegular(path);
    return String(await readWhole(file, path, sizeLimit));
  } catch (error) {
    if (isMissing(error)) return '';
    throw error;
  }
}

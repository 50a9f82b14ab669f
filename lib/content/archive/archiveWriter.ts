import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { describeWriteError } from '../files/disk.ts';
import { writeFully } from '../files/fileRange.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/reference.ts';
import { type ContentPlace, verifyStream } from '../store/store.ts';
import type { PlacedEntry, TarLayout } from './tarLayout.ts';
import {
  Journal,
  checkPartials,
  journalOf,
  renamePartials,
  openPartials,
  partialOf,
  removePartials,
  restorePartials,
} from './unfinished.ts';
import { planVolumes, type Volume, type Volumes } from './volumes.ts';
import { WriteTurn } from './writeTurn.ts';

const flushEvery = 256 * 1024 * 1024;

/**
 * A tar that is written in any order. The layout gives each content its place. Until `finish`, the file is
 * `<path>.partial` (one for each volume), with a journal beside it. Opening it again with the same layout resumes from
 * the journal.
 */
export class ArchiveWriter {
  readonly name: string;
  readonly layout: TarLayout;
  /** Content that the journal of an earlier run lists as finished. Verify it before `finish`. */
  readonly resumed: ReadonlySet<Digest>;
  readonly #file: Volumes;
  readonly #journal: Journal;
  readonly #places: ReadonlyMap<string, PlacedEntry>;
  readonly #turn = new WriteTurn();
  #unflushed = 0;
  #flushing: Promise<unknown> | undefined;
  #flushFailure: { readonly error: unknown } | undefined;
  readonly #signal: AbortSignal;

  private constructor(path: string, layout: TarLayout, file: Volumes, journal: Journal, signal: AbortSignal) {
    this.name = path;
    this.layout = layout;
    this.resumed = new Set(journal.finished);
    this.#file = file;
    this.#journal = journal;
    this.#signal = signal;
    this.#places = new Map(layout.entries.map((place) => [keyOf(place), place]));
  }

  /**
   * Creates `<path>.partial`, or resumes one of the same layout. Throws `disk-full` before the first write if the
   * layout does not fit, and `not-writable`.
   */
  static async open(path: string, layout: TarLayout, context: Context): Promise<ArchiveWriter> {
    let journal: Journal | undefined;
    try {
      const identity = identify(layout);
      const volumes = planVolumes(path, layout.size, layout.volumeSize);
      journal = await Journal.resume(journalOf(path), identity);
      if (journal && isFilled(layout, journal)) await restorePartials(volumes);
      const isBegun = await checkPartials(path, volumes);
      if (!journal || !isBegun) {
        journal?.close();
        journal = undefined;
        await removePartials(path);
      }
      const file = await openPartials(volumes);
      try {
        if (journal) context.log('info', `resuming ${partialOf(path)}: ${journal.finished.size} blobs are present`);
        journal ??= Journal.create(journalOf(path), identity);
        // A power failure may have lost headers of a resumed file.
        await writeHeaders(file, layout);
        return new ArchiveWriter(path, layout, file, journal, context.signal);
      } catch (error) {
        await file.close();
        throw error;
      }
    } catch (error) {
      journal?.close();
      throw describeWriteError(error, path);
    }
  }

  /** The files of the archive, by their final names. */
  get volumes(): readonly Volume[] {
    return this.#file.files;
  }

  /** Returns the place of content; undefined if the layout has none. */
  place(digest: Digest): ContentPlace | undefined {
    const place = this.#places.get(digest);
    if (!place) return undefined;
    const present = this.#journal.finished.has(digest) ? place.size : (this.#journal.begun.get(digest) ?? 0);
    const pieces = this.#file.pieces(place.start, place.size);
    return { path: this.name, pieces, present, writing: this.#turn.memory };
  }

  /** Records that the first `present` bytes of content are written, so that another run can resume there. */
  noteProgress(digest: Digest, present: number): void {
    this.#journal.begin(digest, present);
  }

  /** Records that content is complete and verified. */
  noteFinished(digest: Digest): void {
    this.#journal.finish(digest);
    this.#unflushed += this.#places.get(digest)?.size ?? 0;
    if (this.#unflushed < flushEvery || this.#flushing) return;
    this.#unflushed = 0;
    // Early writes leave less for the end. An error is reported once: here, and not by `finish`.
    this.#flushing = this.#file
      .datasync()
      .catch((error: unknown) => (this.#flushFailure ??= { error }))
      .finally(() => (this.#flushing = undefined));
  }

  /** Removes corrupt content from the journal. */
  forget(digest: Digest): void {
    this.#journal.forget(digest);
  }

  /** Reads bytes of the tar into a buffer. Returns their number, which is smaller than requested only at the end. */
  async read(buffer: Buffer, position: number): Promise<number> {
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.length, position);
    return bytesRead;
  }

  /**
   * Writes content into its place and verifies it, as ContentStore.push does. Throws `not-found` if the layout has no
   * place for it.
   */
  async push(descriptor: Descriptor, open: () => Promise<Readable>): Promise<void> {
    const place = this.#places.get(descriptor.digest);
    if (!place) throw new PluginError('not-found', `${this.name} has no place for ${descriptor.digest}`);
    if (this.#has(descriptor.digest)) return;
    let position = place.start;
    for await (const chunk of verifyStream(await open(), descriptor, this.name) as AsyncIterable<Buffer>) {
      checkInterrupted(this.#signal);
      await writeFully(this.#file, chunk, position).catch((error: unknown) => {
        throw describeWriteError(error, this.name);
      });
      position += chunk.length;
    }
    this.noteFinished(descriptor.digest);
  }

  /** Closes the files. A later run can resume from them. */
  async close(): Promise<void> {
    this.#journal.close();
    await this.#flushing;
    await this.#file.close();
  }

  /**
   * Syncs the tar to disk, gives it its final name, and removes the journal. Throws `incomplete` if content is
   * missing.
   */
  async finish(): Promise<void> {
    const missing = this.layout.entries.find(
      ({ entry }) => 'descriptor' in entry && !this.#has(entry.descriptor.digest),
    );
    if (missing)
      throw new PluginError('incomplete', `${this.name} cannot be finished: ${missing.entry.path} is missing`);
    try {
      await this.#flushing;
      if (this.#flushFailure) throw this.#flushFailure.error;
      await this.#file.datasync();
      await this.close();
      await renamePartials(this.name, this.#file.files);
      await rm(journalOf(this.name), { force: true });
    } catch (error) {
      throw describeWriteError(error, this.name);
    }
  }

  #has(digest: Digest): boolean {
    const place = this.#places.get(digest);
    return place !== undefined && ('content' in place.entry || this.#journal.finished.has(digest));
  }
}

function keyOf({ entry }: PlacedEntry): string {
  if ('descriptor' in entry) return entry.descriptor.digest;
  const digest = /\/(sha256:[0-9a-f]{64})$/.exec(entry.path)?.[1];
  return 'content' in entry && digest !== undefined ? digest : entry.path;
}

function identify(layout: TarLayout): string {
  const hash = createHash('sha256').update(`${String(layout.volumeSize)}\n`);
  for (const { entry, header } of layout.entries) {
    hash.update(header);
    if ('content' in entry) hash.update(entry.content);
  }
  return hash.digest('hex');
}

function isFilled({ entries }: TarLayout, { finished }: Journal): boolean {
  return entries.every(({ entry }) => !('descriptor' in entry) || finished.has(entry.descriptor.digest));
}

async function writeHeaders(file: Volumes, layout: TarLayout): Promise<void> {
  for (const { entry, header, position, start } of layout.entries) {
    await writeFully(file, header, position);
    if ('content' in entry) await writeFully(file, entry.content, start);
  }
}

import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/digest.ts';
import { describeWriteError } from '../files/disk.ts';
import { writeFully } from '../files/fileRange.ts';
import { Journal } from './journal.ts';
import { type ContentPlace, verifyStream } from '../store/store.ts';
import type { PlacedEntry, TarLayout } from './tarLayout.ts';
import {
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
 * A tar that is filled in any order. It is laid out whole from the beginning, so that every piece of content has its
 * place and can be written there as it arrives. Until `finish` it is called `<path>.partial`, with a journal beside it
 * of what is there; opening it again with the same layout goes on from the journal. Volumes have a `.partial` each.
 */
export class ArchiveWriter {
  readonly name: string;
  readonly layout: TarLayout;
  /** Content that an earlier run had finished: it is believed by its journal, and worth a check before `finish`. */
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
   * Begins `<path>.partial`, or goes on with it when it was begun with the same layout. Throws `disk-full` before
   * anything is written when the layout does not fit, and `not-writable`.
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
        // Even of a file that is gone on with a power failure may have taken some.
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

  /** The files that it consists of, by their final names. */
  get volumes(): readonly Volume[] {
    return this.#file.files;
  }

  /** Where content belongs, for whoever writes it there; undefined where the layout has no place for it. */
  place(digest: Digest): ContentPlace | undefined {
    const place = this.#places.get(digest);
    if (!place) return undefined;
    const present = this.#journal.finished.has(digest) ? place.size : (this.#journal.begun.get(digest) ?? 0);
    const pieces = this.#file.pieces(place.start, place.size);
    return { path: this.name, pieces, present, writing: this.#turn.memory };
  }

  /** Notes that the first `present` bytes of some content are in their place, so that another run can go on from there. */
  noteProgress(digest: Digest, present: number): void {
    this.#journal.begin(digest, present);
  }

  /** Notes that content is in its place, whole and verified. */
  noteFinished(digest: Digest): void {
    this.#journal.finish(digest);
    this.#unflushed += this.#places.get(digest)?.size ?? 0;
    if (this.#unflushed < flushEvery || this.#flushing) return;
    this.#unflushed = 0;
    // The disk begins early, so that little is left for the end. An error is said once: here, and not to finish.
    this.#flushing = this.#file
      .datasync()
      .catch((error: unknown) => (this.#flushFailure ??= { error }))
      .finally(() => (this.#flushing = undefined));
  }

  /** Takes back what the journal says of some content, which turned out to be corrupt. */
  forget(digest: Digest): void {
    this.#journal.forget(digest);
  }

  /** Reads bytes of the tar into a buffer; returns how many, in which fewer than asked for only come at the end. */
  async read(buffer: Buffer, position: number): Promise<number> {
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.length, position);
    return bytesRead;
  }

  /** Writes content into its place, verified, as ContentStore.push does. Throws `not-found` if the layout has no place for it. */
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

  /** Lets go of the file; what was written stays for a later run to go on with. */
  async close(): Promise<void> {
    this.#journal.close();
    await this.#flushing;
    await this.#file.close();
  }

  /** Makes the tar durable, gives it its final name, and forgets the journal. Throws `incomplete` when something is not in its place. */
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

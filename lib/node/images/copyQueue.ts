import { setTimeout as sleep } from 'node:timers/promises';
import type { Digest } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError, type ErrorCode, collectFailures } from '#errors';
import type { PlannedImage } from './loadPlan.ts';

/** Errors that would fail all other images too. */
const fatalCodes: readonly ErrorCode[] = ['disk-full', 'not-readable', 'not-writable'];

/** How fast images are copied. */
export interface CopyLimits {
  /** How many images are copied in parallel. */
  readonly concurrency: number;
  /** Milliseconds between two images; none by default. */
  readonly pause?: number;
}

/** Copies an image, and checks copied images, several at a time. */
export interface CopySteps {
  readonly copy: (image: PlannedImage, context: Context) => Promise<void>;
  /** Returns whether a number of copied images is to be checked now. The rest is checked after the last copy. */
  readonly isCheckDue: (copied: number) => boolean;
  /** Returns the errors of the images that failed. Its own error fails all of them. */
  readonly check: (
    images: readonly PlannedImage[],
    context: Context,
  ) => Promise<ReadonlyMap<PlannedImage, PluginError>>;
}

/**
 * Copies images in parallel, and checks each. `stored` are the digests of the layers in the store. A failed image does
 * not stop the others, unless its error would fail them too; then running copies are aborted. Throws the only error, or
 * `partial` with all of them, and `interrupted`.
 */
export async function copyAll(
  images: readonly PlannedImage[],
  stored: ReadonlySet<string>,
  { concurrency, pause = 0 }: CopyLimits,
  context: Context,
  { copy, isCheckDue, check }: CopySteps,
): Promise<void> {
  checkInterrupted(context.signal);
  const stop = new AbortController();
  const within = { ...context, signal: AbortSignal.any([context.signal, stop.signal]) };
  const queue = new CopyQueue(images, stored);
  within.signal.addEventListener('abort', () => {
    queue.close();
  });
  const failures = new Map<PlannedImage, PluginError>();
  const fail = (image: PlannedImage, error: PluginError): void => {
    failures.set(image, nameImage(image, error));
    if (fatalCodes.includes(error.code)) stop.abort(error);
  };
  const copied: PlannedImage[] = [];
  const checkCopied = async (): Promise<void> => {
    const batch = copied.splice(0);
    try {
      for (const [image, error] of await check(batch, within)) fail(image, error);
    } catch (error) {
      if (!isPluginError(error)) throw error;
      if (!within.signal.aborted) for (const image of batch) fail(image, error);
    }
  };
  const work = async (): Promise<void> => {
    for (let image = await queue.take(); image; image = await queue.take()) {
      try {
        await copy(image, within);
        copied.push(image);
        // The images that wait for a layer of this one must not get a broken one.
        if (isCheckDue(copied.length)) await checkCopied();
        if (!failures.has(image)) queue.markStored(image);
      } catch (error) {
        if (!isPluginError(error)) throw error;
        if (within.signal.aborted) return;
        fail(image, error);
      } finally {
        queue.release(image);
      }
      if (pause > 0 && !queue.isEmpty) await sleep(pause, undefined, { signal: within.signal }).catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, images.length) }, work));
  if (copied.length > 0 && !within.signal.aborted) await checkCopied();
  checkInterrupted(context.signal);
  stop.signal.throwIfAborted();
  if (failures.size === 0) return;
  const errors = images.flatMap((image) => failures.get(image) ?? []);
  const [hint, ...otherHints] = new Set(errors.map((failure) => failure.hint));
  throw collectFailures(errors, {
    title: `${errors.length} of ${images.length} images could not be loaded`,
    hint: (otherHints.length === 0 ? hint : undefined) ?? usualHint,
  });
}

const usualHint = 'The other images are loaded. Get an intact copy of the bundle, and run the same command again.';

function nameImage({ label, name }: PlannedImage, error: PluginError): PluginError {
  return new PluginError(error.code, `${label} (${name}): ${error.message}`, { hint: error.hint, cause: error });
}

/**
 * Orders images so that no two running copies need the same missing layer. A layer that many images share is then
 * unpacked once, for the first of them, while the others wait.
 */
export class CopyQueue {
  readonly #queue: PlannedImage[];
  /** The missing layers that each running copy adds. */
  readonly #running = new Map<PlannedImage, readonly Digest[]>();
  readonly #stored: Set<string>;
  #change = Promise.withResolvers<undefined>();

  /** `stored` are the digests of the layers in the store. */
  constructor(images: readonly PlannedImage[], stored: ReadonlySet<string>) {
    this.#queue = [...images];
    this.#stored = new Set(stored);
  }

  /** No image waits. */
  get isEmpty(): boolean {
    return this.#queue.length === 0;
  }

  /** Returns the next image when no running copy adds one of its layers; undefined at the end. */
  async take(): Promise<PlannedImage | undefined> {
    for (;;) {
      const position = this.#queue.findIndex((image) => this.#isFree(image));
      const [image] = position < 0 ? [] : this.#queue.splice(position, 1);
      if (image) this.#running.set(image, this.#missingLayers(image));
      if (image || this.#queue.length === 0) return image;
      await this.#change.promise;
    }
  }

  /** Notes that an image is in the store, with all its layers. */
  markStored(image: PlannedImage): void {
    for (const digest of image.blobs.keys()) this.#stored.add(digest);
  }

  /** Notes that the copy of an image ended, successful or not. */
  release(image: PlannedImage): void {
    this.#running.delete(image);
    this.#signalChange();
  }

  /** Removes the waiting images. */
  close(): void {
    this.#queue.length = 0;
    this.#signalChange();
  }

  #signalChange(): void {
    this.#change.resolve(undefined);
    this.#change = Promise.withResolvers();
  }

  #isFree(image: PlannedImage): boolean {
    const missing = this.#missingLayers(image);
    return [...this.#running.values()].every((added) => !missing.some((digest) => added.includes(digest)));
  }

  #missingLayers({ blobs }: PlannedImage): Digest[] {
    return [...blobs.keys()].filter((digest) => !this.#stored.has(digest));
  }
}

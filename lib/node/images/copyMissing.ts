import { finished } from 'node:stream/promises';
import { type Bundle, descriptorOf } from '#bundle/open';
import { serveBundle } from '#bundle/serve';
import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { asFailure, isPluginError, PluginError } from '#errors';
import { copyImage, prepareWork, type CopyProgram, type CopySetting } from './copyImage.ts';
import { copyAll, type CopyLimits, type CopySteps } from './copyQueue.ts';
import { checkStoreSpace } from './diskFloor.ts';
import type { HostStorage } from './hostStorage.ts';
import { type PlannedImage, blobsOfImage, sizeOf } from './loadPlan.ts';
import { StoreChecks } from './storeChecks.ts';
import { removeBrokenImages } from './storeRepair.ts';

/** The store to copy images to, how fast, and with which program. */
interface LoadSetting extends Pick<CopySetting, 'work'> {
  readonly storage: HostStorage;
  readonly program: CopyProgram;
  readonly limits: CopyLimits;
}

/**
 * Copies the images that a store lacks, from a server of the bundle on the loopback interface, and checks each in the
 * store. Returns their number, and the bytes read from the bundle. A failed image does not stop the others. Throws
 * `disk-full`, `not-readable`, `incomplete`, `partial` and `interrupted`.
 */
export async function copyMissing(
  bundle: Bundle,
  planned: readonly PlannedImage[],
  setting: LoadSetting,
  context: Context,
): Promise<{ bytes: number; loaded: number }> {
  const { storage, limits, program } = setting;
  await removeBrokenImages(storage, context);
  const index = await storage.readIndex();
  const missing = await index.listMissing(planned);
  const progress = new LoadProgress(planned, missing, context);
  if (missing.length === 0) return { bytes: 0, loaded: 0 };
  const { host, main: store } = storage;
  await checkStoreSpace(missing, index, { ...setting, host, store, concurrency: limits.concurrency });
  const server = await serveToThisHost(bundle, progress, context);
  try {
    const copying = await prepareWork(missing, {
      ...setting,
      rules: storage.rules,
      host,
      store,
      server: `127.0.0.1:${server.port}`,
    });
    const copy: CopySteps['copy'] = async (image, within) => {
      try {
        await copyImage(program, image, copying, within);
      } catch (error) {
        throw isPluginError(error, 'incomplete') ? ((await findFault(bundle, image, setting)) ?? error) : error;
      }
    };
    const checks = new StoreChecks(setting, index.size, copy, (image) => {
      progress.finish(image);
    });
    await copyAll(missing, index.listBlobs(), limits, context, {
      copy,
      isCheckDue: (copied) => checks.isDue(copied),
      check: (images, within) => checks.check(images, within),
    });
  } finally {
    await server.close();
  }
  return { bytes: progress.bytes, loaded: missing.length };
}

/** Serves unverified bytes: the program that copies compares all digests, and `findFault` explains a difference. */
function serveToThisHost(bundle: Bundle, progress: LoadProgress, context: Context): ReturnType<typeof serveBundle> {
  const onSent: LoadProgress['sent'] = (digest, bytes) => {
    progress.sent(digest, bytes);
  };
  // Warnings of the server become errors of the images.
  const quiet: Context = { ...context, log: (level, text) => context.log(level === 'warn' ? 'debug' : level, text) };
  return serveBundle(bundle, { host: '127.0.0.1', port: 0, unverified: true, onSent }, quiet);
}

/**
 * Reads the blobs of an image that the store lacks again, and returns the fault of the bundle; undefined if it has
 * none. The program that copied sees only a wrong digest or a closed connection.
 */
async function findFault(
  { path, content }: Bundle,
  { blobs }: PlannedImage,
  { storage }: LoadSetting,
): Promise<PluginError | undefined> {
  const stored = (await storage.readIndex()).listBlobs();
  for (const [digest, size] of blobs) {
    if (stored.has(digest)) continue;
    try {
      await finished((await content.fetch(descriptorOf({ digest, size }))).resume());
    } catch (error) {
      const { code, message, hint = corruptHint } = asFailure(error);
      if (code !== 'not-readable') return new PluginError(code, message, { hint, cause: error });
      return new PluginError(code, `cannot read ${path}: ${message}`, { hint: removedHint, cause: error });
    }
  }
  return undefined;
}

const corruptHint = 'Copy the bundle again, and run the same command again: loaded images are skipped.';
const removedHint =
  'If the USB drive was removed, insert it, and run the same command again: loaded images are skipped.';

/** Reports the progress of a load. Counts each blob once, even if several images need it. */
class LoadProgress {
  readonly #context: Context;
  /** The bytes of each blob that are not reported yet. */
  readonly #unreported: Map<Digest, number>;
  #bytes = 0;

  /** Reports the plan, and the images that the store has. */
  constructor(planned: readonly PlannedImage[], missing: readonly PlannedImage[], context: Context) {
    this.#context = context;
    const lacking = new Set(missing);
    const present = planned.filter((image) => !lacking.has(image));
    const [blobs, stored] = [blobsOfImage(planned), blobsOfImage(present)];
    this.#unreported = new Map([...blobs].filter(([digest]) => !stored.has(digest)));
    const counts = { images: planned.length, blobs: blobs.size };
    context.onEvent({ kind: 'plan', ...counts, bytes: sizeOf(blobs), present: sizeOf(stored) });
    for (const { label } of present) context.onEvent({ kind: 'image', name: label });
  }

  /** Bytes of blobs that were read from the bundle. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Reports bytes of a blob that the server sent. */
  sent(digest: Digest, sent: number): void {
    const bytes = this.#take(digest, sent);
    this.#bytes += bytes;
    if (bytes > 0) this.#context.onEvent({ kind: 'bytes', digest, bytes });
  }

  /** Reports a loaded image, and its layers that the store had from other images. */
  finish({ label, blobs }: PlannedImage): void {
    for (const digest of blobs.keys()) {
      const size = this.#take(digest, Infinity);
      if (size > 0) this.#context.onEvent({ kind: 'skipped', digest, size });
    }
    this.#context.onEvent({ kind: 'image', name: label });
  }

  #take(digest: Digest, bytes: number): number {
    const unreported = this.#unreported.get(digest) ?? 0;
    this.#unreported.set(digest, Math.max(0, unreported - bytes));
    return Math.min(unreported, bytes);
  }
}

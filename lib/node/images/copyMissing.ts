import { finished } from 'node:stream/promises';
import { descriptorOf } from '../../bundle/complete.ts';
import { serveBundle } from '../../bundle/deliver/serve.ts';
import type { Bundle } from '../../bundle/bundle.ts';
import { checkInterrupted, type Context } from '../../context.ts';
import { isPluginError, PluginError, type ErrorCode } from '../../errors.ts';
import { collectFailures } from '../../failures.ts';
import type { Digest } from '../../oci/digest.ts';
import { CopyQueue } from './copyQueue.ts';
import { copyImage, prepareWork, type CopyProgram, type CopySetting } from './copyImage.ts';
import { StoreIndex } from './imageStore.ts';
import { blobsOfImage, sizeOf, type PlannedImage } from './loadPlan.ts';
import { checkStoreSpace } from './storeSpace.ts';

/** What would meet the other images too. */
const fatalCodes: readonly ErrorCode[] = ['disk-full', 'not-readable', 'not-writable'];

/** Where images are copied to, how many at a time, and by which program. */
export interface LoadSetting extends Omit<CopySetting, 'server'> {
  readonly program: CopyProgram;
  readonly concurrency: number;
}

/**
 * Copies those images into the store that it does not have whole, from a server of the bundle for this machine alone, and checks each in
 * the store afterwards. Returns how many it were, and the bytes of the blobs that were read. Images that fail do not keep others from being
 * loaded. Throws `disk-full`, `not-readable`, `incomplete`, `partial` and `interrupted`.
 */
export async function copyMissing(
  bundle: Bundle,
  planned: readonly PlannedImage[],
  loading: LoadSetting,
  context: Context,
): Promise<{ bytes: number; loaded: number }> {
  const { host, store, concurrency, program } = loading;
  const index = await StoreIndex.read(host, store);
  const missing = await listMissing(index, planned);
  const present = planned.filter((image) => !missing.includes(image));
  announce(planned, present, context);
  if (missing.length === 0) return { bytes: 0, loaded: 0 };
  await checkStoreSpace(missing, index, loading);

  // How much of each blob has not been told of: several copies may ask for the same one.
  const untold = blobsOfImage(missing);
  for (const digest of blobsOfImage(present).keys()) untold.delete(digest);
  const take = (digest: Digest, bytes: number): number => {
    const left = untold.get(digest) ?? 0;
    untold.set(digest, Math.max(0, left - bytes));
    return Math.min(left, bytes);
  };
  let read = 0;
  const onSent = (digest: Digest, sent: number): void => {
    const bytes = take(digest, sent);
    read += bytes;
    if (bytes > 0) context.onEvent({ kind: 'bytes', digest, bytes });
  };
  // What the server has to say of its answers is said of the images.
  const quiet: Context = { ...context, log: (level, text) => context.log(level === 'warn' ? 'debug' : level, text) };
  // Whoever copies compares all digests: what is corrupt gets into no store, and is looked for when a copy fails.
  const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0, unverified: true, onSent }, quiet);
  try {
    const setting = await prepareWork(missing, { ...loading, server: `127.0.0.1:${server.port}` });
    await copyAll(missing, index.listBlobs(), concurrency, context, async (image, own) => {
      try {
        await copyImage(program, image, setting, own);
      } catch (error) {
        throw isPluginError(error, 'incomplete') ? ((await findFault(bundle, image, loading)) ?? error) : error;
      }
      const lack = await (await StoreIndex.read(host, store)).check(image);
      if (lack !== undefined) throw new PluginError('incomplete', `${program} says it is loaded, and ${lack}`);
      // Layers that other images have are not asked for again.
      for (const digest of image.blobs.keys()) {
        const size = take(digest, Infinity);
        if (size > 0) context.onEvent({ kind: 'skipped', digest, size });
      }
    });
  } finally {
    await server.close();
  }
  return { bytes: read, loaded: missing.length };
}

/** Lists those images of which something is not in the store. */
export async function listMissing(index: StoreIndex, images: readonly PlannedImage[]): Promise<PlannedImage[]> {
  const lacks = await Promise.all(images.map((image) => index.check(image)));
  return images.filter((_, position) => lacks[position] !== undefined);
}

function announce(planned: readonly PlannedImage[], present: readonly PlannedImage[], context: Context): void {
  const blobs = blobsOfImage(planned);
  const [bytes, there] = [sizeOf(blobs), sizeOf(blobsOfImage(present))];
  context.onEvent({ kind: 'plan', images: planned.length, blobs: blobs.size, bytes, present: there });
  for (const { label } of present) context.onEvent({ kind: 'image', name: label });
}

/**
 * Copies images side by side; after a failure that would meet the others too, no more are begun and those under way are ended. `there` are
 * the blobs that the store has.
 */
async function copyAll(
  images: readonly PlannedImage[],
  there: ReadonlySet<string>,
  concurrency: number,
  context: Context,
  copy: (image: PlannedImage, context: Context) => Promise<void>,
): Promise<void> {
  const stop = new AbortController();
  const own: Context = { ...context, signal: AbortSignal.any([context.signal, stop.signal]) };
  const isEnded = (): boolean => own.signal.aborted;
  const queue = new CopyQueue(images, there);
  const failures: { image: PlannedImage; error: PluginError }[] = [];
  const work = async (): Promise<void> => {
    for (let image = await queue.take(); image && !isEnded(); image = await queue.take()) {
      try {
        await copy(image, own);
        queue.note(image);
        context.onEvent({ kind: 'image', name: image.label });
      } catch (error) {
        if (!isPluginError(error)) throw error;
        if (isEnded()) return;
        failures.push({ image, error });
        if (fatalCodes.includes(error.code)) stop.abort();
      } finally {
        queue.end(image);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, images.length) }, work));
  checkInterrupted(context.signal);
  const fatal = failures.find(({ error }) => fatalCodes.includes(error.code));
  if (fatal) throw fatal.error;
  const errors = failures.map(({ image: { label, name }, error }) => {
    return new PluginError(error.code, `${label} (${name}): ${error.message}`, { hint: error.hint, cause: error });
  });
  if (errors.length === 0) return;
  throw collectFailures(errors, {
    title: `${errors.length} of ${images.length} images could not be loaded`,
    hint: 'The other images are loaded, and stay. Run the same command again with a bundle that is whole.',
  });
}

/**
 * Finds out whether the bundle is why an image could not be copied, by reading what the store lacks of it again: whoever gets it over HTTP
 * sees no more than other bytes, or an answer that breaks off.
 */
async function findFault(
  { path, content }: Bundle,
  { blobs }: PlannedImage,
  { host, store }: LoadSetting,
): Promise<PluginError | undefined> {
  const held = (await StoreIndex.read(host, store)).listBlobs();
  for (const [digest, size] of blobs) {
    if (held.has(digest)) continue;
    try {
      await finished((await content.fetch(descriptorOf({ digest, size }))).resume());
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      const { code, message } = error;
      if (code !== 'not-readable') return new PluginError(code, message, { hint: damagedHint, cause: error });
      return new PluginError(code, `${path} cannot be read any more: ${message}`, { hint: goneHint, cause: error });
    }
  }
  return undefined;
}

const damagedHint = 'Copy the bundle again from where it came from, and load again: what is there is skipped.';
const goneHint =
  'Was the stick pulled out? Put it in, and run the same command again: it goes on with the images that are missing.';

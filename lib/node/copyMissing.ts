import { serveBundle } from '../bundle/serve.ts';
import type { Bundle } from '../bundle/open.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { sumUp } from '../copyFailure.ts';
import { isPluginError, PluginError, type ErrorCode } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { copyImage, prepareWork, type CopyProgram, type CopySetting } from './copyImage.ts';
import { StoreIndex } from './imageStore.ts';
import type { PlannedImage } from './loadPlan.ts';
import { watchContent } from './watchedContent.ts';

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
  const missing = await listMissing(await StoreIndex.read(host, store), planned);
  announce(planned, missing, context);
  if (missing.length === 0) return { bytes: 0, loaded: 0 };

  const read = new Map<Digest, number>();
  const settled = new Set<Digest>(planned.filter((image) => !missing.includes(image)).flatMap(blobsOf));
  const faults = new Map<Digest, PluginError>();
  const content = watchContent(bundle.content, {
    onRead: (digest, size) => {
      read.set(digest, size);
      if (settled.has(digest)) return;
      settled.add(digest);
      context.onEvent({ kind: 'bytes', digest, bytes: size });
    },
    onFault: (digest, error) => faults.set(digest, error),
  });
  // What the server has to say of its answers is said of the images.
  const quiet: Context = { ...context, log: (level, text) => context.log(level === 'warn' ? 'debug' : level, text) };
  const server = await serveBundle({ ...bundle, content }, { host: '127.0.0.1', port: 0 }, quiet);
  try {
    const setting: CopySetting = { ...loading, server: `127.0.0.1:${String(server.port)}` };
    await prepareWork(missing, setting);
    await copyAll(missing, concurrency, context, async (image, own) => {
      try {
        await copyImage(program, image, setting, own);
      } catch (error) {
        throw faultOf(image, faults) ?? error;
      }
      const lack = await (await StoreIndex.read(host, store)).check(image);
      if (lack !== undefined) throw new PluginError('incomplete', `${program} says it is loaded, and ${lack}`);
      // Layers that other images have are not asked for again.
      for (const [digest, size] of image.blobs)
        if (!settled.has(digest)) context.onEvent({ kind: 'skipped', digest, size });
      for (const digest of blobsOf(image)) settled.add(digest);
    });
  } finally {
    await server.close();
  }
  return { bytes: sum(read.values()), loaded: missing.length };
}

/** Lists those images of which something is not in the store. */
export async function listMissing(index: StoreIndex, images: readonly PlannedImage[]): Promise<PlannedImage[]> {
  const lacks = await Promise.all(images.map((image) => index.check(image)));
  return images.filter((_, position) => lacks[position] !== undefined);
}

function announce(planned: readonly PlannedImage[], missing: readonly PlannedImage[], context: Context): void {
  const blobs = new Map(planned.flatMap((image) => [...image.blobs]));
  const present = new Map(planned.filter((image) => !missing.includes(image)).flatMap((image) => [...image.blobs]));
  const [bytes, there] = [sum(blobs.values()), sum(present.values())];
  context.onEvent({ kind: 'plan', images: planned.length, blobs: blobs.size, bytes, present: there });
  for (const image of planned) if (!missing.includes(image)) context.onEvent({ kind: 'image', name: image.label });
}

function blobsOf({ blobs }: PlannedImage): Digest[] {
  return [...blobs.keys()];
}

function sum(sizes: Iterable<number>): number {
  return [...sizes].reduce((total, size) => total + size, 0);
}

/** Copies images side by side; after a failure that would meet the others too, no more are begun and those under way are ended. */
async function copyAll(
  images: readonly PlannedImage[],
  concurrency: number,
  context: Context,
  copy: (image: PlannedImage, context: Context) => Promise<void>,
): Promise<void> {
  const stop = new AbortController();
  const own: Context = { ...context, signal: AbortSignal.any([context.signal, stop.signal]) };
  const isEnded = (): boolean => own.signal.aborted;
  const failures: { image: PlannedImage; error: PluginError }[] = [];
  const queue = [...images];
  const work = async (): Promise<void> => {
    for (let image = queue.shift(); image && !isEnded(); image = queue.shift()) {
      try {
        await copy(image, own);
        context.onEvent({ kind: 'image', name: image.label });
      } catch (error) {
        if (!isPluginError(error)) throw error;
        if (isEnded()) return;
        failures.push({ image, error });
        if (fatalCodes.includes(error.code)) stop.abort();
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
  const [only, second] = errors;
  if (only && !second) throw only;
  if (only) {
    const hint = 'The other images are loaded, and stay. Run the same command again with a bundle that is whole.';
    throw sumUp(`${String(errors.length)} of ${String(images.length)} images could not be loaded`, errors, hint);
  }
}

function faultOf(image: PlannedImage, faults: ReadonlyMap<Digest, PluginError>): PluginError | undefined {
  const digest = [image.digest, ...image.manifests, ...image.blobs.keys()].find((each) => faults.has(each));
  const fault = digest && faults.get(digest);
  if (!fault) return undefined;
  const hint = 'Copy the bundle again from where it came from, and load again: what is there is skipped.';
  return new PluginError(fault.code, fault.message, { hint, cause: fault });
}

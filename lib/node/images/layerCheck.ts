import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { join, normalize } from 'node:path/posix';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { isMissing } from '#content/files';
import { parseJson } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { messageOf } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { pathOnHost, type Host } from '../machine/host.ts';
import type { StoreImage, StoreIndex, StoredLayer } from './imageStore.ts';

/** A file that is not as its layer was, or another fault of a layer. */
class LayerFault extends Error {}

/** An image with a damaged layer, and the fault. */
export interface DamagedImage extends StoreImage {
  /** The ID of the layer. */
  readonly layer: string;
  readonly fault: string;
}

/**
 * Finds images whose layers lost content after they were loaded, such as files that a power failure truncated: no
 * program notices them. Compares the size of each file with the record that containers/storage keeps of the tar (its
 * tar-split). With `content`, puts each tar together again, and compares its digest with that of the layer. Reads each
 * layer once. Ignores layers without a record. Throws `interrupted`.
 */
export async function findDamagedImages(
  host: Host,
  index: StoreIndex,
  images: readonly StoreImage[],
  { content }: { readonly content: boolean },
  context: Context,
): Promise<DamagedImage[]> {
  return new LayerCheck(host, { content }).findDamaged(index, images, Infinity, context);
}

/** A pass over the layers of a store, of which each call may do a part; see findDamagedImages. */
export class LayerCheck {
  readonly #host: Host;
  readonly #content: boolean;
  readonly #intact = new Set<string>();

  constructor(host: Host, { content }: { readonly content: boolean }) {
    this.#host = host;
    this.#content = content;
  }

  /**
   * Returns the damaged images. Starts no layer after `limit` milliseconds: the next call continues there. Reads no
   * layer again that was intact, and each damaged one in each call. Throws `interrupted`.
   */
  async findDamaged(
    index: StoreIndex,
    images: readonly StoreImage[],
    limit: number,
    context: Context,
  ): Promise<DamagedImage[]> {
    const end = performance.now() + limit;
    const faults = new Map<string, string>();
    const damaged: DamagedImage[] = [];
    for (const image of images) {
      for (const layer of index.layersOf(image)) {
        const { id } = layer;
        if (!faults.has(id) && !this.#intact.has(id) && performance.now() < end) {
          const fault = await findFault(this.#host, layer, this.#content, context);
          if (fault === undefined) this.#intact.add(id);
          else faults.set(id, fault);
        }
        const fault = faults.get(id);
        if (fault === undefined) continue;
        damaged.push({ ...image, layer: id, fault: `its layer ${layer.digest ?? id} is damaged: ${fault}` });
        break;
      }
    }
    return damaged;
  }
}

async function findFault(
  host: Host,
  layer: StoredLayer,
  content: boolean,
  context: Context,
): Promise<string | undefined> {
  const tar = content && layer.digest !== undefined ? createHash('sha256') : undefined;
  try {
    const record = await readFile(pathOnHost(host, layer.record));
    const lines = createInterface({ input: Readable.from([record]).pipe(createGunzip()), crlfDelay: Infinity });
    for await (const line of lines) {
      checkInterrupted(context.signal);
      const { type, name, name_raw: raw, size, payload } = fieldsOf(parseJson(line));
      if (type === segment) {
        tar?.update(Buffer.from(textOf(payload) ?? '', 'base64'));
        continue;
      }
      // Of empty files and links only the header is in the tar.
      if (typeof size !== 'number' || size === 0) continue;
      const path = textOf(raw) === undefined ? String(name) : Buffer.from(String(raw), 'base64').toString('latin1');
      const file = pathOnHost(host, join(layer.folder, normalize(`/${path}`)));
      const stats = await lstat(file).catch(() => undefined);
      if (!stats?.isFile()) throw new LayerFault(`${path} is missing`);
      if (stats.size !== size) throw new LayerFault(`${path} has ${stats.size} of ${size} bytes`);
      if (tar) for await (const chunk of createReadStream(file)) tar.update(chunk as Buffer);
    }
    const digest = tar && `sha256:${tar.digest('hex')}`;
    return digest === undefined || digest === layer.digest ? undefined : `its files have the digest ${digest}`;
  } catch (error) {
    checkInterrupted(context.signal);
    if (error instanceof LayerFault) return error.message;
    if (isMissing(error)) return undefined;
    return `its record ${layer.record} cannot be read: ${messageOf(error)}`;
  }
}

/** The type of an entry with bytes of the tar itself; the other type is a file (github.com/vbatts/tar-split). */
const segment = 2;

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { join, normalize } from 'node:path/posix';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { checkInterrupted, type Context } from '../../context.ts';
import { messageOf, PluginError } from '../../errors.ts';
import { fieldsOf, textOf } from '../../fields.ts';
import { isMissing } from '../../content/files/fileContent.ts';
import { pathOnHost, type Host } from '../machine/host.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import type { StoreImage, StoreIndex, StoredLayer } from './imageStore.ts';
import { removalHint } from './storeRepair.ts';

/** A file that is not as its layer was, or another fault of a layer. */
class LayerFault extends Error {}

/** An image with a damaged layer, and the fault. */
export interface DamagedImage extends StoreImage {
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
  const faults = new Map<string, string | undefined>();
  const damaged: DamagedImage[] = [];
  for (const image of images) {
    for (const layer of index.layersOf(image)) {
      if (!faults.has(layer.id)) faults.set(layer.id, await findFault(host, layer, content, context));
      const fault = faults.get(layer.id);
      if (fault === undefined) continue;
      damaged.push({ ...image, fault: `its layer ${layer.digest ?? layer.id} is damaged: ${fault}` });
      break;
    }
  }
  return damaged;
}

/** Returns the error for damaged images of a store. */
export function damageOf([first, ...others]: readonly DamagedImage[], store: string): PluginError | undefined {
  if (!first) return undefined;
  const count = others.length === 0 ? '' : ` (and ${others.length} more images)`;
  return new PluginError('incomplete', `${first.name} in ${store} cannot be used: ${first.fault}${count}`, {
    hint: removalHint(first.name),
  });
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

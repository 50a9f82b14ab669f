import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PluginError } from '../errors.ts';
import { describeWriteError, syncFolder } from '../store/disk.ts';
import { pathOnHost, type Host } from './host.ts';
import { listFolder, readIfThere } from './storageConfig.ts';
import { readToml, stringsOf } from './toml.ts';

/**
 * The drop-in with the pins of this program. CRI-O reads drop-ins by name, and a list replaces the lists before it: the one that the
 * machine-config-operator writes for PinnedImageSets, 50-pinned-images, wins over this one.
 */
export const pinFile = '/etc/crio/crio.conf.d/10-oc-upgrade-bundle-pins.conf';

const mainFile = '/etc/crio/crio.conf';
const key = 'crio.image.pinned_images';
const header = '# Written by oc adm-upgrade-bundle pin, which also removes it.\n';

/** What became of the list of pins. */
export interface PinResult {
  readonly file: string;
  /** The images that are pinned now, sorted. */
  readonly pinned: readonly string[];
  /** Whether CRI-O has to read its configuration again. */
  readonly changed: boolean;
}

/**
 * Pins images in CRI-O, besides those that are pinned already, so that the kubelet never removes them. Each is pinned by its
 * exact name. Throws `conflict` where another file has a list of pins, which one of the two would replace, and `not-writable`.
 */
export async function pinImages(host: Host, images: readonly string[]): Promise<PinResult> {
  for (const path of [mainFile, ...(await listFolder(host, dirname(pinFile)))]) {
    if (path !== pinFile && (await readPins(host, path)).length > 0) throw foreignList(path);
  }
  const before = await readPins(host, pinFile);
  return writePins(host, before, [...before, ...images]);
}

/** Takes images out of the list of pins again, or all of them; the file goes with the last. Throws `not-writable`. */
export async function unpinImages(host: Host, images: readonly string[] | 'all'): Promise<PinResult> {
  const before = await readPins(host, pinFile);
  const left = images === 'all' ? [] : before.filter((name) => !images.includes(name));
  return writePins(host, before, left);
}

async function readPins(host: Host, path: string): Promise<string[]> {
  const text = (await readIfThere(host, path)) ?? '';
  return readToml(text).flatMap(({ key: each, value }) => (each === key ? stringsOf(value) : []));
}

async function writePins(host: Host, before: readonly string[], after: readonly string[]): Promise<PinResult> {
  const pinned = [...new Set(after)].sort();
  const changed = pinned.join('\n') !== [...before].sort().join('\n');
  const path = pathOnHost(host, pinFile);
  try {
    if (pinned.length === 0) {
      await rm(path, { force: true });
    } else if (changed) {
      const list = pinned.map((name) => `  ${JSON.stringify(name)},\n`).join('');
      await mkdir(dirname(path), { recursive: true });
      // CRI-O reads every file of the folder: what is not whole yet has no place there.
      const partial = `${dirname(dirname(path))}/.oc-upgrade-bundle-pins`;
      await writeFile(partial, `${header}[crio.image]\npinned_images = [\n${list}]\n`, { flush: true });
      await rename(partial, path);
      await syncFolder(dirname(path));
    }
  } catch (error) {
    throw describeWriteError(error, path);
  }
  return { file: pinFile, pinned, changed };
}

function foreignList(path: string): PluginError {
  const own = path.endsWith('/50-pinned-images');
  return new PluginError('conflict', `${path} has a list of pinned images, and CRI-O knows only one list`, {
    hint: own
      ? 'It is that of the PinnedImageSets of the cluster: pin by one of those instead.'
      : 'Add the images to that list; oc adm-upgrade-bundle inspect -o json names them.',
  });
}

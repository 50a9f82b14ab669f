import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PluginError } from '../../errors.ts';
import { writeAtomically } from '../../files/atomicWrite.ts';
import { describeWriteError } from '../../files/disk.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { crioFile, pinFile } from '../../machine/paths.ts';
import { listFolder, readIfThere } from './storageConfig.ts';
import { readToml, stringsOf } from './toml.ts';

const key = 'crio.image.pinned_images';
const header = '# Written by oc adm-upgrade-bundle pin, which also removes it.\n';
/** Before the images of a release, in the list itself: whoever reads the list finds there for which release they are. */
const mark = '  # for ';

/** What became of the list of pins. */
export interface PinResult {
  readonly file: string;
  /** The images that are pinned now, sorted. */
  readonly pinned: readonly string[];
  /** Whether CRI-O has to read its configuration again. */
  readonly changed: boolean;
}

/** Images by the release that they are pinned for; those that are pinned for none are under the empty text. */
type Pins = ReadonlyMap<string, readonly string[]>;

/**
 * Pins images in CRI-O, besides those that are pinned already, so that the kubelet never removes them. Each is pinned by its
 * exact name; `release` is for unpinReleases. Throws `conflict` where another file has a list of pins, which one of the two would replace, and `not-writable`.
 */
export async function writePins(host: Host, images: readonly string[], release = ''): Promise<PinResult> {
  for (const path of [crioFile, ...(await listFolder(host, dirname(pinFile)))]) {
    if (path !== pinFile && listPins((await readIfThere(host, path)) ?? '', path).length > 0) throw foreignList(path);
  }
  return changePins(host, (pins) => new Map(pins).set(release, [...(pins.get(release) ?? []), ...images]));
}

/** Takes images out of the list of pins again, or all of them; the file goes with the last. Throws `not-writable`. */
export async function unpinImages(host: Host, images: readonly string[] | 'all'): Promise<PinResult> {
  return changePins(host, (pins) => {
    if (images === 'all') return new Map();
    return new Map([...pins].map(([release, own]) => [release, own.filter((name) => !images.includes(name))]));
  });
}

/** Takes out what is pinned for some releases, and for nothing else besides; see unpinImages. */
export async function unpinReleases(host: Host, releases: readonly string[]): Promise<PinResult> {
  return changePins(host, (pins) => new Map([...pins].filter(([release]) => !releases.includes(release))));
}

/** The releases that images are pinned for, as they were named. */
export async function readPinnedReleases(host: Host): Promise<string[]> {
  return [...parsePins((await readIfThere(host, pinFile)) ?? '').keys()].filter((release) => release !== '');
}

function listPins(text: string, path: string): string[] {
  return stringsOf(readToml(text, path), key) ?? [];
}

function parsePins(text: string): Pins {
  const all = new Set(listPins(text, pinFile));
  const pins = new Map<string, string[]>();
  let release = '';
  for (const line of text.split('\n')) {
    if (line.startsWith(mark)) release = line.slice(mark.length);
    const [, name] = /^ *"([^"]+)",?$/.exec(line) ?? [];
    if (name !== undefined && all.has(name)) pins.set(release, [...(pins.get(release) ?? []), name]);
  }
  return pins;
}

function formatPins(pins: Pins): string {
  const groups = [...pins].filter(([, images]) => images.length > 0).sort(([a], [b]) => (a < b ? -1 : 1));
  if (groups.length === 0) return '';
  const lines = groups.flatMap(([release, images]) => [
    ...(release === '' ? [] : [`${mark}${release}\n`]),
    ...[...new Set(images)].sort().map((name) => `  ${JSON.stringify(name)},\n`),
  ]);
  return `${header}[crio.image]\npinned_images = [\n${lines.join('')}]\n`;
}

async function changePins(host: Host, change: (pins: Pins) => Pins): Promise<PinResult> {
  const before = (await readIfThere(host, pinFile)) ?? '';
  const text = formatPins(change(parsePins(before)));
  const path = pathOnHost(host, pinFile);
  try {
    if (text === '') {
      await rm(path, { force: true });
    } else if (text !== before) {
      // CRI-O reads every file of the folder: what is not whole yet has no place there.
      const partial = `${dirname(dirname(path))}/.oc-upgrade-bundle-pins`;
      await writeAtomically(path, text, { partial });
    }
  } catch (error) {
    throw describeWriteError(error, path);
  }
  return { file: pinFile, pinned: [...new Set(listPins(text, pinFile))].sort(), changed: text !== before };
}

function foreignList(path: string): PluginError {
  const own = path.endsWith('/50-pinned-images');
  return new PluginError('conflict', `${path} has a list of pinned images, and CRI-O knows only one list`, {
    hint: own
      ? 'It is that of the PinnedImageSets of the cluster: pin by one of those instead.'
      : 'Add the images to that list; oc adm-upgrade-bundle inspect -o json names them.',
  });
}

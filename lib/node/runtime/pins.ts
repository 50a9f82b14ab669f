import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PluginError } from '../../errors.ts';
import { writeAtomically } from '../../content/files/atomicWrite.ts';
import { describeWriteError } from '../../content/files/disk.ts';
import { pathOnHost, type Host } from '../machine/host.ts';
import { crioFile, pinFile } from '../machine/paths.ts';
import { listFolder, readIfThere } from './storageConfig.ts';
import { readToml, stringsOf } from './toml.ts';

const key = 'crio.image.pinned_images';
const header = '# Written by oc adm-upgrade-bundle pin, which also removes it.\n';
/** The comment in the list before the images of a release; it tells which release they belong to. */
const mark = '  # for ';

/** The result of a change of the list. */
export interface PinResult {
  readonly file: string;
  /** The pinned images, sorted. */
  readonly pinned: readonly string[];
  /** CRI-O must read its configuration again. */
  readonly changed: boolean;
}

/** Images by the release that they are pinned for; the key is empty if there is none. */
type Pins = ReadonlyMap<string, readonly string[]>;

/**
 * Adds images to the list of pinned images of CRI-O, so that the kubelet never removes them. `release` is for
 * unpinReleases. Throws `conflict` if another file has a list of pins, because CRI-O uses only one, and `not-writable`.
 */
export async function writePins(host: Host, images: readonly string[], release = ''): Promise<PinResult> {
  for (const path of [crioFile, ...(await listFolder(host, dirname(pinFile), true))]) {
    if (path !== pinFile && listPins((await readIfThere(host, path)) ?? '', path).length > 0) throw foreignList(path);
  }
  return changePins(host, (pins) => new Map(pins).set(release, [...(pins.get(release) ?? []), ...images]));
}

/** Removes images from the list, or all of them; the file is removed with the last. Throws `not-writable`. */
export async function unpinImages(host: Host, images: readonly string[] | 'all'): Promise<PinResult> {
  return changePins(host, (pins) => {
    if (images === 'all') return new Map();
    return new Map([...pins].map(([release, own]) => [release, own.filter((name) => !images.includes(name))]));
  });
}

/** Removes images that are pinned only for these releases; see unpinImages. */
export async function unpinReleases(host: Host, releases: readonly string[]): Promise<PinResult> {
  return changePins(host, (pins) => new Map([...pins].filter(([release]) => !releases.includes(release))));
}

/** Returns the releases that images are pinned for. */
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
  const groups = [...pins].filter(([, images]) => images.length > 0);
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
      // CRI-O reads each file of the folder, so the partial file is outside of it.
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

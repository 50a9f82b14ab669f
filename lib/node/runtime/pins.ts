import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { writeAtomically, describeWriteError } from '#content/files';
import { PluginError } from '#errors';
import { pathOnHost, type Host, clusterPinFile, crioFile, holdFile, pinFile } from '../machine/host.ts';
import { listFolder, readIfThere, readToml, stringsOf } from './storageConfig.ts';

const key = 'crio.image.pinned_images';
const header = '# Written by oc adm-upgrade-bundle pin, which also removes it.\n';
const holdHeader =
  '# Written by the agent of oc adm-upgrade-bundle, which removes it when the cluster pins the images.\n';
/** The comment in the list before the images of a release; it tells which release they belong to. */
const mark = '  # for ';

/** The list of pinned images after a change, and its file. */
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
  for (const { path, images: listed } of await readLists(host))
    if (path !== pinFile && path !== holdFile && listed.length > 0) throw foreignList(path);
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

/** Returns the releases, by their pullspecs, for which our drop-in of CRI-O pins images; none without the file. */
export async function readPinnedReleases(host: Host): Promise<string[]> {
  return [...parsePins((await readIfThere(host, pinFile)) ?? '').keys()].filter((release) => release !== '');
}

/**
 * Holds images from before they are loaded: writes a list for CRI-O that counts instead of all others, and has their
 * pins too. Each call takes over the pins that others have now. Returns whether CRI-O must read its configuration
 * again. Throws `conflict` if a list counts even then, and `not-writable`.
 */
export async function holdImages(host: Host, images: readonly string[]): Promise<boolean> {
  const lists = (await readLists(host)).filter(({ path }) => path !== holdFile);
  const last = lists.at(-1);
  if (last && last.path !== crioFile && orderOf(last.path) > orderOf(holdFile)) throw foreignList(last.path);
  return writeList(host, holdFile, formatPins(new Map([['', [...(last?.images ?? []), ...images]]]), holdHeader));
}

/** Ends holdImages. Returns whether CRI-O must read its configuration again. Throws `not-writable`. */
export async function releaseImages(host: Host): Promise<boolean> {
  return writeList(host, holdFile, '');
}

/** Returns whether images are held, and whether PinnedImageSets pin all these images on this node. */
export async function readHold(
  host: Host,
  images: readonly string[],
): Promise<{ readonly isHeld: boolean; readonly isPinned: boolean }> {
  const lists = await readLists(host);
  const pinned = new Set(lists.find(({ path }) => path === clusterPinFile)?.images);
  return {
    isHeld: lists.some(({ path }) => path === holdFile),
    isPinned: images.every((name) => pinned.has(name)),
  };
}

/**
 * Returns how many of some images the list of CRI-O has, so that the kubelet never removes them. CRI-O compares names
 * and parts of them (`part*`, `*part*`; cri-o, internal/storage/image.go).
 */
export async function countPinned(host: Host, images: readonly string[]): Promise<number> {
  const patterns = (await readLists(host)).at(-1)?.images ?? [];
  const isPinned = (name: string): boolean =>
    patterns.some((pattern) =>
      pattern.endsWith('*') ? name.includes(pattern.replace(/^\*/, '').slice(0, -1)) : name === pattern,
    );
  return images.filter(isPinned).length;
}

/** Reads the lists of pins of CRI-O in the order in which it reads them: the last one counts. */
async function readLists(host: Host): Promise<{ readonly path: string; readonly images: readonly string[] }[]> {
  const dropIns = await listFolder(host, dirname(pinFile), true);
  const paths = [crioFile, ...dropIns.sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1))];
  const lists = await Promise.all(
    paths.map(async (path) => {
      const images = stringsOf(readToml((await readIfThere(host, path)) ?? '', path), key);
      return images ? [{ path, images }] : [];
    }),
  );
  return lists.flat();
}

/** CRI-O reads a folder where its name is among those of files (filepath.Walk). */
function orderOf(path: string): string {
  return path.replaceAll('/', '\0');
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

function formatPins(pins: Pins, comment = header): string {
  const groups = [...pins].filter(([, images]) => images.length > 0);
  if (groups.length === 0) return '';
  const lines = groups.flatMap(([release, images]) => [
    ...(release === '' ? [] : [`${mark}${release}\n`]),
    ...[...new Set(images)].sort().map((name) => `  ${JSON.stringify(name)},\n`),
  ]);
  return `${comment}[crio.image]\npinned_images = [\n${lines.join('')}]\n`;
}

async function changePins(host: Host, change: (pins: Pins) => Pins): Promise<PinResult> {
  const before = (await readIfThere(host, pinFile)) ?? '';
  const text = formatPins(change(parsePins(before)));
  const changed = await writeList(host, pinFile, text);
  return { file: pinFile, pinned: [...new Set(listPins(text, pinFile))].sort(), changed };
}

/** Writes a list, or removes it if it is empty. Returns whether it changed. Throws `not-writable`. */
async function writeList(host: Host, file: string, text: string): Promise<boolean> {
  const path = pathOnHost(host, file);
  if (text === ((await readIfThere(host, file)) ?? '')) return false;
  try {
    if (text === '') {
      await rm(path, { force: true });
    } else {
      // CRI-O reads each file of the folder, so the partial file is outside of it.
      const partial = `${dirname(dirname(path))}/.oc-upgrade-bundle-pins`;
      await writeAtomically(path, text, { partial });
    }
  } catch (error) {
    throw describeWriteError(error, path);
  }
  return true;
}

function foreignList(path: string): PluginError {
  const own = path.endsWith('/50-pinned-images');
  return new PluginError('conflict', `${path} has a list of pinned images, and CRI-O knows only one list`, {
    hint: own
      ? 'It is that of the PinnedImageSets of the cluster: pin by one of those instead.'
      : 'Add the images to that list; oc adm-upgrade-bundle inspect -o json names them.',
  });
}

import { readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Context } from '../context.ts';
import { messageOf, PluginError } from '../errors.ts';
import { tarOf } from '../content/archive/volumes.ts';
import { RootFolder } from '../content/files/rootFolder.ts';
import { nameSome } from '../failures.ts';
import { shellWord } from '../shellWord.ts';
import { openDirectory } from './openDirectory.ts';
import { openTar } from './openTar.ts';
import { isVersion } from '../release/version.ts';
import { findSplit } from './split.ts';
import type { Bundle, OpenBundleOptions } from './bundle.ts';

/**
 * Opens a bundle by the path of a file, a device, a mirror directory, or volumes: any volume, their common name, or a
 * folder with this bundle only. Without metadata.json, a directory is described by its release. Throws `not-readable`,
 * `invalid-bundle`, and `not-found` for a missing file and for a directory without a release.
 */
export async function openBundle(path: string, context: Context, options: OpenBundleOptions = {}): Promise<Bundle> {
  if (options.onMedium) return openTar(path, options, context);
  const split = await findSplit(path);
  if (split !== undefined) return openTar(split, options, context);
  const stats = await stat(path).catch(async (cause: unknown) => {
    const isMissing = ['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '');
    if (isMissing) refuseRelease(path, cause);
    const message = isMissing ? nameMissing(path) : `${path} cannot be read: ${messageOf(cause)}`;
    // An unplugged device cannot be read, so agents try another one.
    const code = isMissing && !/(?:^|\/)dev\//.test(path) ? 'not-found' : 'not-readable';
    throw new PluginError(code, message, {
      hint: isMissing ? await lookAround(path) : undefined,
      cause,
    });
  });
  if (stats.isDirectory()) {
    const only = await findOnlyTar(path);
    return only === undefined ? openDirectory(path, context, options) : openTar(only, options, context);
  }
  if (!stats.isFile() && !stats.isBlockDevice()) {
    throw new PluginError('not-readable', `${path} is neither a file nor a folder nor a block device`, {
      hint: 'A pipe cannot be read from the end: write the bundle to a file first.',
    });
  }
  if (stats.isFile() && stats.size === 0) {
    throw new PluginError('invalid-bundle', `${path} is an empty file`, {
      hint: 'Copy the bundle again from its source.',
    });
  }
  return openTar(path, options, context);
}

/** Returns the tar in a folder that has one, and no other tar or volume; undefined for a mirror directory, too. */
async function findOnlyTar(path: string): Promise<string | undefined> {
  const [only, ...others] = await listTars(path);
  return only?.stats.isFile() && others.length === 0 ? join(path, only.path) : undefined;
}

/** Returns whether a folder has the tar or the volumes of a bundle, and is no mirror directory. */
export async function holdsTar(folder: string): Promise<boolean> {
  return (await listTars(folder)).length > 0;
}

async function listTars(path: string) {
  const folder = new RootFolder(path);
  return (await folder.statOf('v2')) ? [] : await folder.list('', (name) => tarOf(name) !== undefined);
}

/** Throws `usage` for a name of a release or a server, which is no path. */
function refuseRelease(text: string, cause: unknown): void {
  const isUrl = /^[a-z]+:\/\//i.test(text);
  const isImage = /^[^/\s]+[.:][^/\s]*\/\S*[:@]\S+$/.test(text);
  if (!isUrl && !isImage && !isVersion(text)) return;
  const kind = isUrl ? 'a URL' : isImage ? 'an image' : 'a version';
  throw new PluginError('usage', `${text} is ${kind}; a bundle is a file, a device or a mirror directory`, {
    hint: isUrl
      ? 'Download the bundle first. Only the command that loads images takes a URL.'
      : 'Create its bundle first. The commands diff and lint take releases without one.',
    cause,
  });
}

/** Returns a hint about the files at a path without a bundle. */
async function lookAround(path: string): Promise<string> {
  if (isDevice(path)) return 'Check whether it is plugged in: lsblk lists the devices.';
  const folder = dirname(path);
  const names = await readdir(folder).catch(() => undefined);
  if (!names) return `There is no folder ${folder}: check the path, and whether the medium is mounted.`;
  const bundles = names.filter((name) => name.endsWith('.tar')).sort();
  const has = bundles.length === 0 ? 'no .tar file' : nameSome(bundles.map(shellWord), 5);
  return `Check the path: ${folder === '.' ? 'this folder' : folder} has ${has}.`;
}

function nameMissing(path: string): string {
  return isDevice(path) ? `${path}: no such device` : `there is no ${path}`;
}

function isDevice(path: string): boolean {
  return path.startsWith('/dev/');
}

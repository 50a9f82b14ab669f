import { readFile, realpath, stat } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import {
  type ConfigManifest,
  type KubernetesObject,
  findManifestFiles,
  readObjects,
  type UnknownObject,
} from '#config/manifest';
import { isPluginError, messageOf, PluginError } from '#errors';
import { isFields } from '#fields';

/**
 * Parses the manifests in texts: several documents and lists in each. `where` is the folder. Throws `not-found` without
 * a manifest, and `invalid-file` for a document that is not an object.
 */
export function parseManifests(texts: readonly ManifestText[], where: string): ConfigManifest[] {
  const manifests = texts.flatMap(({ path, text, file }) =>
    readObjects(text, file).map((object) => ({ path, object: checkObject(object, file) })),
  );
  if (manifests.length > 0) return manifests;
  throw new PluginError('not-found', `${where} has no manifests: no object in *.yaml, *.yml or *.json`, {
    hint: 'Name the “config” folder of a mirror directory.',
  });
}

/** A manifest file of a folder that is not parsed yet. */
export interface ManifestText {
  /** The path relative to the folder. */
  readonly path: string;
  readonly file: string;
  readonly text: string;
}

/**
 * Reads the texts of a file, or of a folder and its subfolders as `oc apply -Rf` does: `*.yaml`, `*.yml`, `*.json`,
 * sorted by path. Throws `not-found` without a folder, `not-readable`, and `too-large` above 4 MiB.
 */
export async function readManifestTexts(folder: string): Promise<ManifestText[]> {
  const texts: ManifestText[] = [];
  let length = 0;
  for (const { path, file } of await listFiles(folder)) {
    const text = await readFile(file, 'utf8').catch((cause: unknown) => {
      throw new PluginError('not-readable', `${file} cannot be read: ${messageOf(cause)}`, { cause });
    });
    length += text.length;
    if (length > 4 * largestFile) throw new PluginError('too-large', `${folder} has more than 4 MiB of manifests`);
    texts.push({ path, file, text });
  }
  return texts;
}

async function listFiles(folder: string): Promise<{ path: string; file: string }[]> {
  try {
    if (!(await stat(folder)).isDirectory()) {
      await checkFile(folder);
      return [{ path: basename(folder), file: folder }];
    }
    const files = (await findManifestFiles(folder))
      .map((file) => ({ path: relative(folder, file).replaceAll(sep, '/'), file }))
      .sort((a, b) => (a.path < b.path ? -1 : 1));
    const root = await realpath(folder);
    for (const { file } of files) await checkFile(file, root);
    return files;
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') {
      throw new PluginError('not-found', `there is no ${folder}`, {
        hint: 'Check the path, and whether the medium is mounted.',
        cause,
      });
    }
    throw new PluginError('not-readable', `${folder} cannot be read: ${messageOf(cause)}`, { cause });
  }
}

/**
 * The largest file in bytes: the limit of an API server for one object. All files together may have four times as much.
 */
const largestFile = 1024 * 1024;

/** Throws `invalid-file` for pipes, devices, large files, and links that lead out of the folder `root`. */
async function checkFile(file: string, root?: string): Promise<void> {
  const stats = await stat(file);
  if (!stats.isFile()) throw new PluginError('invalid-file', `${file} is not a regular file`);
  if (root !== undefined && !(await realpath(file)).startsWith(join(root, sep))) {
    throw new PluginError('invalid-file', `${file} is a link that leads out of the folder`, {
      hint: 'Check its target (ls -l), and replace the link with a copy if it is intended.',
    });
  }
  if (stats.size <= largestFile) return;
  throw new PluginError('too-large', `${file} has ${stats.size} bytes, too many for manifests (at most 1 MiB)`, {
    hint: 'For a bundle or a mirror directory: oc adm-release-mirror-config apply BUNDLE',
  });
}

function checkObject(object: UnknownObject, file: string): KubernetesObject {
  checkIdentity(object, file);
  return object;
}

function checkIdentity(object: UnknownObject, file: string): asserts object is KubernetesObject {
  const { apiVersion, kind, metadata } = object;
  const name = isFields(metadata) ? metadata['name'] : undefined;
  const lacking = Object.entries({ apiVersion, kind, 'metadata.name': name })
    .filter(([, value]) => typeof value !== 'string' || value === '')
    .map(([field]) => field);
  if (lacking.length === 0) return;
  throw new PluginError('invalid-file', `${file} has an object without ${lacking.join(' and ')}`);
}

import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import type { ConfigManifest, KubernetesObject } from '../config/manifest.ts';
import { readObjects, type UnknownObject } from '../config/objects.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { isFields } from './kubeconfigMerge.ts';

/**
 * Reads all manifests of a folder and its subfolders, as `oc apply -Rf` does: `*.yaml`, `*.yml` and `*.json`, with several
 * documents and lists, sorted by path; or those of one file. Paths are relative to the folder. Throws `not-found` for no folder or no
 * manifest at all, `not-readable`, and `invalid-file` for what is no object, before anything could be applied.
 */
export async function readManifests(folder: string): Promise<ConfigManifest[]> {
  const paths = await listFiles(folder);
  const manifests: ConfigManifest[] = [];
  for (const { path, file } of paths) {
    const text = await readFile(file, 'utf8').catch((cause: unknown) => {
      throw new PluginError('not-readable', `${file} cannot be read: ${messageOf(cause)}`, { cause });
    });
    manifests.push(...parseManifests({ path, text }, file));
  }
  if (manifests.length > 0) return manifests;
  throw new PluginError('not-found', `${folder} has no manifests: no object in *.yaml, *.yml or *.json`, {
    hint: 'Name the “config” folder of a mirror directory.',
  });
}

/** Reads the manifests of one text; `where` names it in errors. Throws `invalid-file` for what is no object. */
export function parseManifests({ path, text }: { path: string; text: string }, where: string): ConfigManifest[] {
  return readObjects(text, where).map((object) => ({ path, object: checkObject(object, where) }));
}

async function listFiles(folder: string): Promise<{ path: string; file: string }[]> {
  try {
    if (!(await stat(folder)).isDirectory()) {
      await checkFile(folder);
      return [{ path: basename(folder), file: folder }];
    }
    const files = (await findFiles(folder))
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

/** Files with a manifest’s ending, at any depth. Links to folders are not followed, as they are by the `recursive` of readdir: some lead in circles. */
async function findFiles(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) found.push(...(await findFiles(path)));
    else if (/\.(ya?ml|json)$/.test(entry.name)) found.push(path);
  }
  return found;
}

/** An API server takes no object of more than 3 MB; a parser would be busy for minutes with much more. */
const largestFile = 4 * 1024 * 1024;

/** Refuses what is no file to be read whole: pipes and devices, large files, and links that lead out of the folder `root`. */
async function checkFile(file: string, root?: string): Promise<void> {
  const found = await stat(file);
  if (!found.isFile()) throw new PluginError('invalid-file', `${file} is no regular file`);
  if (root !== undefined && !(await realpath(file)).startsWith(join(root, sep))) {
    throw new PluginError('invalid-file', `${file} is a link that leads out of the folder`, {
      hint: 'See where it leads (ls -l), and put a copy in its place if it is meant.',
    });
  }
  if (found.size <= largestFile) return;
  throw new PluginError(
    'too-large',
    `${file} has ${String(found.size)} bytes, too many for manifests (at most 4 MiB)`,
    {
      hint: 'For a bundle or a mirror directory: oc adm-release-mirror-config BUNDLE --apply-config.',
    },
  );
}

function checkObject(object: UnknownObject, file: string): KubernetesObject {
  const { apiVersion, kind, metadata } = object;
  const name = isFields(metadata) ? metadata['name'] : undefined;
  const lacking = Object.entries({ apiVersion, kind, 'metadata.name': name })
    .filter(([, value]) => typeof value !== 'string' || value === '')
    .map(([field]) => field);
  if (lacking.length === 0) return object as unknown as KubernetesObject;
  throw new PluginError(
    'invalid-file',
    `${file} has something that is no Kubernetes object: no ${lacking.join(', no ')}`,
  );
}

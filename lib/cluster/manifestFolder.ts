import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, join, sep } from 'node:path';
import type { ConfigManifest, KubernetesObject } from '../config/manifest.ts';
import { readObjects, type UnknownObject } from '../config/objects.ts';
import { messageOf, PluginError } from '../errors.ts';
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
    manifests.push(...readObjects(text, file).map((object) => ({ path, object: checkObject(object, file) })));
  }
  if (manifests.length > 0) return manifests;
  throw new PluginError('not-found', `${folder} has no manifests: no object in *.yaml, *.yml or *.json`, {
    hint: 'Name the “config” folder of a mirror directory.',
  });
}

async function listFiles(folder: string): Promise<{ path: string; file: string }[]> {
  try {
    if ((await stat(folder)).isFile()) return [{ path: basename(folder), file: folder }];
    const names = await readdir(folder, { recursive: true });
    return names
      .filter((name) => /\.(ya?ml|json)$/.test(name))
      .map((name) => ({ path: name.replaceAll(sep, '/'), file: join(folder, name) }))
      .sort((a, b) => (a.path < b.path ? -1 : 1));
  } catch (cause) {
    const absent = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw new PluginError(absent ? 'not-found' : 'not-readable', `${folder} cannot be read: ${messageOf(cause)}`, {
      cause,
    });
  }
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

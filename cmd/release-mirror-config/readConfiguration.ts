import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { openBundle } from '../../lib/bundle/open.ts';
import { readBundledConfig } from '../../lib/bundle/signedBundle.ts';
import { parseManifests, readManifests } from '../../lib/cluster/manifestFolder.ts';
import type { ConfigManifest } from '../../lib/config/manifest.ts';
import type { Context } from '../../lib/context.ts';
import { PluginError } from '../../lib/errors.ts';
import { shellWord } from '../../lib/shellWord.ts';
import { parseLocation } from '../../lib/store/location.ts';

/**
 * Reads the manifests that a path stands for: of a config folder or a file of it, of a mirror directory’s `config`, or of the
 * one in a bundle. Throws `not-found` where there are none, and what readManifests and openBundle throw.
 */
export async function readConfiguration(path: string, context: Context): Promise<ConfigManifest[]> {
  if (/\.(ya?ml|json)$/.test(path)) return readManifests(path);
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory()) return readManifests(await findFolder(path));
  // A bundle in volumes is there, although no file has the name that they have in common.
  const isBundle = found !== undefined || (await parseLocation(path).catch(() => undefined))?.kind === 'archive';
  return isBundle ? readFromBundle(path, context) : readManifests(path);
}

async function findFolder(folder: string): Promise<string> {
  const inside = join(folder, 'config');
  // Of a mirror directory, the rest is no configuration: it may have JSON files too.
  if (!(await stat(join(folder, 'v2')).catch(() => undefined))) return folder;
  if (await stat(inside).catch(() => undefined)) return inside;
  throw new PluginError('not-found', `${folder} is a mirror directory without a “config” folder`, {
    hint: `Make it of the release in there: oc adm-release-mirror-config VERSION --from-dir=${shellWord(folder)} --config-to-dir=${shellWord(inside)}`,
  });
}

async function readFromBundle(path: string, context: Context): Promise<ConfigManifest[]> {
  const bundle = await openBundle(path, context);
  try {
    const manifests = (await readBundledConfig(bundle)).flatMap((file) => parseManifests(file, file.path));
    if (manifests.length > 0) return manifests;
    throw new PluginError('not-found', `${path} has no configuration: its release was not signed when it was made`);
  } finally {
    await bundle.close();
  }
}

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isRepository } from '../oci/reference.ts';
import { describeReadError, isMissing } from './fileContent.ts';

/** The names of the repositories in a mirror directory, sorted; empty where it has none. */
export async function listRepositories(root: string): Promise<string[]> {
  const names: string[] = [];
  const list = async (name: string): Promise<void> => {
    const path = join(root, 'v2', name);
    const entries = await readdir(path, { withFileTypes: true }).catch((error: unknown) => {
      if (isMissing(error)) return [];
      throw describeReadError(error, path);
    });
    const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
    if (folders.includes('manifests') && isRepository(name)) names.push(name);
    for (const folder of folders) {
      if (folder !== 'manifests' && folder !== 'blobs') await list(name === '' ? folder : `${name}/${folder}`);
    }
  };
  await list('');
  return names.sort();
}

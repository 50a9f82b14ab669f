import { basename } from 'node:path';
import { isRepository } from '../oci/reference.ts';
import { RootFolder } from '../files/rootFolder.ts';

/**
 * Lists the names of the repositories in a mirror directory, sorted; empty if there are none. Throws the errors of
 * RootFolder.list.
 */
export async function listRepositories(root: string): Promise<string[]> {
  const folder = new RootFolder(root);
  const names: string[] = [];
  const list = async (name: string): Promise<void> => {
    const path = name === '' ? 'v2' : `v2/${name}`;
    const entries = await folder.list(path, (each) => each !== 'blobs');
    const folders = entries.filter(({ stats }) => stats.isDirectory()).map((entry) => basename(entry.path));
    if (folders.includes('manifests') && isRepository(name)) names.push(name);
    for (const each of folders) if (each !== 'manifests') await list(name === '' ? each : `${name}/${each}`);
  };
  await list('');
  return names.sort();
}

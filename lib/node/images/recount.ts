import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import type { Host } from '../machine/host.ts';
import { findProgram, runProgram } from '../machine/programs.ts';
import type { ImageStore, StoreImage } from './imageStore.ts';

/**
 * Has podman list the main store of a host, and compares the list with the expected images. Returns
 * the name of the program; undefined if the host has no podman. Throws `incomplete` if images are missing or podman
 * cannot read the store.
 */
export async function recountImages(
  host: Host,
  store: ImageStore,
  images: readonly StoreImage[],
  context: Context,
): Promise<string | undefined> {
  if ((await findProgram(host, 'podman')) === undefined) return undefined;
  const { code, stdout, stderr } = await runProgram(host, 'podman', ['images', '--format', 'json'], context);
  const listed = code === 0 ? parseList(stdout) : undefined;
  if (!listed) {
    throw new PluginError('incomplete', `podman cannot list the image store ${store.graphRoot}: ${stderr.trim()}`);
  }
  const missing = images.filter(({ name }) => !listed.has(name));
  const [first] = missing;
  if (!first) return 'podman';
  const count = `${missing.length} of ${images.length} images`;
  throw new PluginError('incomplete', `podman does not see ${count} in ${store.graphRoot}, such as ${first.name}`, {
    hint: 'Check that storage.conf names the driver of the store, and run the same command again.',
  });
}

function parseList(json: string): Set<string> | undefined {
  try {
    const list: unknown = JSON.parse(json);
    if (!Array.isArray(list)) return undefined;
    const entries = list as { Names?: string[] | null; RepoDigests?: string[] | null }[];
    return new Set(entries.flatMap(({ Names, RepoDigests }) => [...(Names ?? []), ...(RepoDigests ?? [])]));
  } catch {
    return undefined;
  }
}

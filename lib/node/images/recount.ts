import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { findProgram, runProgram } from '../../machine/programs.ts';
import type { ImageStore, StoreImage } from './imageStore.ts';
import { makeFolders } from '../../files/disk.ts';

/**
 * Has podman list a store in the way a container runtime does, and compares the list with the expected images. Returns
 * the name of the program; undefined if the host has no podman. Throws `incomplete` if images are missing or podman
 * cannot read the store.
 */
export async function recountImages(
  host: Host,
  store: ImageStore,
  images: readonly StoreImage[],
  work: string,
  context: Context,
): Promise<string | undefined> {
  if ((await findProgram(host, 'podman')) === undefined) return undefined;
  const environment: Record<string, string> = store.kind === 'main' ? {} : await describeStore(host, store, work);
  const { code, stdout, stderr } = await runProgram(host, 'podman', ['images', '--format', 'json'], context, {
    environment,
  });
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

async function describeStore(host: Host, store: ImageStore, work: string): Promise<Record<string, string>> {
  const file = join(work, 'storage.conf');
  const text = [
    '[storage]',
    `driver = "${store.driver}"`,
    `graphroot = "${join(work, 'empty')}"`,
    `runroot = "${store.runRoot}/reader"`,
    '[storage.options]',
    `additionalimagestores = [ "${store.graphRoot}" ]`,
    ...(store.driver === 'overlay' ? ['[storage.options.overlay]', 'skip_mount_home = "true"'] : []),
  ];
  await makeFolders(pathOnHost(host, work));
  await writeFile(pathOnHost(host, file), `${text.join('\n')}\n`);
  return { CONTAINERS_STORAGE_CONF: file };
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

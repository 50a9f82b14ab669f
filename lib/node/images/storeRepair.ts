import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { shellCommand } from '../../shellWord.ts';
import { runPodman, type HostStorage } from './hostStorage.ts';

/**
 * Removes the images of a main store whose layers cannot be mounted, as after a power failure. Otherwise the program that
 * copies would reuse such a layer. Throws `incomplete` with the command that helps if some of them stay.
 */
export async function removeBrokenImages(storage: HostStorage, context: Context): Promise<void> {
  const { graphRoot } = storage.main;
  const broken = await (await storage.readIndex()).findBroken();
  const [first] = broken;
  if (!first) return;
  context.log('warn', `${broken.size} images in ${graphRoot} cannot be mounted, such as ${first[0]}: ${first[1]}`);
  const why = await removeImages(storage, [...broken.keys()], context);
  const [stays] = await (await storage.readIndex()).findBroken();
  if (!stays) return;
  const [name, fault] = stays;
  throw new PluginError(
    'incomplete',
    `${name} in ${graphRoot} cannot be mounted: ${fault}; nor removed: ${why ?? ''}`,
    {
      hint: removalHint(name),
    },
  );
}

/**
 * Removes images of a main store by podman, but no containers. Returns what podman said of the first one that stays;
 * undefined if all are gone.
 */
export async function removeImages(
  storage: HostStorage,
  names: readonly string[],
  context: Context,
): Promise<string | undefined> {
  let why: string | undefined;
  for (const name of names) {
    const result = await runPodman(storage, ['rmi', name], context);
    if (!result) return 'podman is missing';
    const { code, stderr } = result;
    if (code === 0) context.log('info', `removed, to be loaded again: ${name}`);
    else why ??= stderr.trim().slice(-1000);
  }
  return why;
}

/** Returns the command that removes an image of which nothing else can be done. */
export function removalHint(name: string): string {
  return shellCommand`Drain the node, because a container may use it, and run there: podman rmi --force ${name}. Then run the same command again.`;
}

import type { Context } from '#context';
import { PluginError, nameSome } from '#errors';
import { shellWord } from '#text';
import { runPodman, type HostStorage } from './hostStorage.ts';
import { readUsedImages } from './imageStore.ts';
import type { DamagedImage } from './layerCheck.ts';

/**
 * Removes the images of a main store whose layers cannot be mounted, as after a power failure. Otherwise the program
 * that copies would reuse such a layer. Throws `incomplete` with the command that helps if some of them stay.
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
      hint: removalHint([name]),
    },
  );
}

/**
 * Removes damaged images of a main store, so that they are loaded again. Keeps each whose layer has another user: a
 * container, or an image that no bundle can give back. The layer would stay with that, and each load would reuse it.
 * Returns the error for the images that stay, which says what helps; undefined if all are gone.
 */
export async function removeDamagedImages(
  storage: HostStorage,
  damaged: readonly DamagedImage[],
  context: Context,
): Promise<PluginError | undefined> {
  const { host, main } = storage;
  const index = await storage.readIndex();
  const used = await readUsedImages(host, main);
  const own = new Set(damaged.map(({ name }) => name));
  const removable: string[] = [];
  let stays: PluginError | undefined;
  for (const [layer, images] of Map.groupBy(damaged, (image) => image.layer)) {
    const holders = index.imagesWith(layer);
    const users = holders.filter(({ id }) => used.has(id)).flatMap(({ names }) => names);
    const others = holders.flatMap(({ names }) => names).filter((name) => !own.has(name));
    if (users.length + others.length === 0) removable.push(...images.map(({ name }) => name));
    else stays ??= sharedDamage(images, main.graphRoot, { users, others });
  }
  const why = await removeImages(storage, removable, context);
  return why === undefined ? stays : (stays ?? sharedDamage(damaged, main.graphRoot, { users: [], others: [], why }));
}

interface Sharing {
  /** Images of which there are containers. */
  readonly users: readonly string[];
  /** Images that the bundle does not have. */
  readonly others: readonly string[];
  /** What podman said. */
  readonly why?: string;
}

function sharedDamage(images: readonly DamagedImage[], store: string, { users, others, why }: Sharing): PluginError {
  const [first, ...more] = images;
  const count = more.length === 0 ? '' : ` (and ${more.length} more images)`;
  const reason = [
    ...(why === undefined ? [] : [why]),
    ...(users.length === 0 ? [] : [`containers use ${nameSome(users)}`]),
    ...(others.length === 0 ? [] : [`${nameSome(others)} of no bundle ${others.length === 1 ? 'has' : 'have'} it too`]),
  ].join('; ');
  const message = `${first?.name ?? ''} in ${store} cannot be used: ${first?.fault ?? ''}${count}. It stays: ${reason}`;
  const names = [...new Set([...images.map(({ name }) => name), ...others])];
  return new PluginError('incomplete', message, { hint: removalHint(names.length > mostNamed ? 'all' : names) });
}

/** The most images to name in a command. */
const mostNamed = 10;

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

/**
 * Returns the commands that remove images of which nothing else can be done; `all` for many. podman sees no containers
 * of a CRI-O with a later library, so there must be none.
 */
export function removalHint(images: readonly string[] | 'all'): string {
  const words = images === 'all' ? '--all' : images.map(shellWord).join(' ');
  return (
    'Drain the node, and run there: systemctl stop kubelet; crictl rmp --all --force; podman rmi --force ' +
    `${words}. Load the bundle there, or leave that to the agent, and run: systemctl start kubelet`
  );
}

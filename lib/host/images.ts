import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import type { HostCommands } from './hostCommands.ts';
import type { ReleaseComponent } from './installation.ts';
import type { ImageChange } from './plan.ts';
import type { RegistryRelease } from './registryRelease.ts';
import type { UpgradeJournal } from './upgradeJournal.ts';

/** What podman holds once images are loaded. */
export interface LoadedImages {
  readonly ids: ReadonlyMap<ReleaseComponent, string>;
  /** The names that are to be given to other images than they are of now. */
  readonly names: UpgradeJournal['names'];
}

/**
 * Has podman hold every image before anything is stopped, out of a release or from where podman pulls it. Names that a unit uses now go
 * on meaning what they mean. Throws `command-failed`, and `digest-mismatch` where podman holds another.
 */
export async function loadImages(
  commands: HostCommands,
  release: RegistryRelease | undefined,
  images: readonly ImageChange[],
  context: Context,
): Promise<LoadedImages> {
  const { signal } = context;
  if (images.length === 0) return { ids: new Map(), names: [] };
  const ids = release ? await release.load(commands, images, context) : await pullImages(commands, images, context);
  const names = await Promise.all(
    images.flatMap(({ component, from, to }) => {
      const id = ids.get(component);
      if (from !== to || id === undefined) return [];
      return [findImage(commands, to, signal).then((old) => ({ name: to, to: id, from: old }))];
    }),
  );
  return { ids, names };
}

async function pullImages(
  commands: HostCommands,
  images: readonly ImageChange[],
  { log, signal }: Context,
): Promise<Map<ReleaseComponent, string>> {
  const ids = new Map<ReleaseComponent, string>();
  for (const { component, to } of images) {
    log('info', `loading ${to}`);
    if ((await findImage(commands, to, signal)) === undefined) await commands.podman(['pull', '--quiet', to], signal);
    ids.set(component, await requireImage(commands, to, undefined, signal));
  }
  return ids;
}

/** The ID that podman gives to an image of a name; undefined for a name that it does not hold. Throws `command-failed`. */
export async function findImage(
  commands: HostCommands,
  image: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await commands.podman(['image', 'exists', image], signal);
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return undefined;
    throw error;
  }
  return (await commands.podman(['image', 'inspect', '--format', '{{.Id}}', image], signal)).trim();
}

/** Makes sure that podman holds an image by a name or ID, with the ID that is given, and returns that. Throws `digest-mismatch`. */
export async function requireImage(
  commands: HostCommands,
  image: string,
  id: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  const found = await findImage(commands, image, signal);
  if (found !== undefined && (id === undefined || found === id)) return found;
  throw new PluginError(
    'digest-mismatch',
    `podman holds ${found ?? 'nothing'} as ${image}, and not ${id ?? 'an image'}`,
    {
      hint: 'Nothing was changed. Something else may load images on this host: try again.',
    },
  );
}

import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import type { Architecture } from '../../release/version.ts';
import type { Digest } from '../../oci/digest.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { ReleaseComponent } from '../installation.ts';

/** What podman holds once images are loaded. */
export interface LoadedImages {
  readonly ids: ReadonlyMap<ReleaseComponent, string>;
  /** The names that are to be given to other images than they are of now. */
  readonly names: readonly ImageRename[];
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

/** An image of a release, by the name that units are to give it. */
export interface ReleaseImage {
  readonly image: string;
  /** The ID that podman gives to it; undefined where that is known only when podman has it. */
  readonly id: string | undefined;
}

/** A release of the mirror registry that is at hand with its images, wherever it lies. */
export interface RegistryRelease {
  /** A bundle, a list in a registry or an image layout, or what the installer comes in. */
  readonly kind: 'bundle' | 'list' | 'installer';
  /** What to call it in an error. */
  readonly name: string;
  readonly version: string | undefined;
  /** What machines it is for, where that is known. */
  readonly arch: Architecture | undefined;
  /** Bytes that podman needs for its images, about. */
  readonly size: number;
  readonly images: Readonly<Record<ReleaseComponent, ReleaseImage>>;
  /** What it lies in, where that is a bundle; open as long as this is. */
  readonly bundle?: Bundle;
  /**
   * Checks what can be checked before podman is given anything, `expected` among it, the digest of the whole. Throws `digest-mismatch`,
   * `incomplete` and `invalid-bundle`.
   */
  check(expected: Digest | undefined, context: Context): Promise<void>;
  /**
   * Has podman hold the images of some changes, verified, and returns their IDs. An image that takes the place of another of the same name is
   * held without a name. Throws `command-failed`, and `digest-mismatch` where podman holds another.
   */
  load(
    commands: HostCommands,
    changes: readonly ImageChange[],
    context: Context,
  ): Promise<ReadonlyMap<ReleaseComponent, string>>;
  close(): Promise<void>;
}

/** The images that a registry is to run; those that are not named stay. */
export type TargetImages = Readonly<Partial<Record<ReleaseComponent, string>>>;

/** An image that takes the place of another, which may have the same name. */
export interface ImageChange {
  readonly component: ReleaseComponent;
  readonly from: string;
  readonly to: string;
  readonly file: string;
  readonly line: number;
}

/** A name that gets another image, by its ID, and the ID of the one it had. */
export interface ImageRename {
  readonly name: string;
  readonly to: string;
  readonly from: string | undefined;
}

import { stat } from 'node:fs/promises';
import type { Bundle } from '#bundle/open';
import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { HostCommands, HostFiles } from '#node/machine';
import type { Architecture } from '#release/version';
import { releaseComponents, type Installation, type ReleaseComponent } from '../installation/installation.ts';

/** The images in podman after loading. */
export interface LoadedImages {
  readonly ids: ReadonlyMap<ReleaseComponent, string>;
  /** The names to move to other images. */
  readonly names: readonly ImageRename[];
}

/**
 * Loads all images into podman before anything stops, from a release or by pulling. Names in units keep their images.
 * Throws `command-failed`, and `digest-mismatch` if podman has another image.
 */
export async function loadImages(
  commands: HostCommands,
  release: RegistryRelease | undefined,
  images: readonly ImageChange[],
  context: Context,
): Promise<LoadedImages> {
  if (images.length === 0) return { ids: new Map(), names: [] };
  const ids = release ? await release.load(commands, images, context) : await pullImages(commands, images, context);
  const names = await Promise.all(
    images.flatMap(({ component, from, to }) => {
      const id = ids.get(component);
      if (from !== to || id === undefined) return [];
      return [findImage(commands, to).then((old) => ({ name: to, to: id, from: old }))];
    }),
  );
  return { ids, names };
}

async function pullImages(
  commands: HostCommands,
  images: readonly ImageChange[],
  { log }: Context,
): Promise<Map<ReleaseComponent, string>> {
  const ids = new Map<ReleaseComponent, string>();
  for (const { component, to } of images) {
    log('info', `loading ${to}`);
    if ((await findImage(commands, to)) === undefined) await commands.podman(['pull', '--quiet', to]);
    ids.set(component, await requireImage(commands, to, undefined));
  }
  return ids;
}

/** An image of a release that podman has. */
export interface PresentImage {
  readonly image: string;
  readonly id: string;
  /** `unnamed`: another image has its name, so it can be used only by ID. */
  readonly outcome: 'present' | 'loaded' | 'unnamed';
}

/**
 * Loads the images of a release that podman does not have, and names them. A name that another image has stays there.
 * Throws the errors of `RegistryRelease.check` and `load`.
 */
export async function loadReleaseImages(
  commands: HostCommands,
  release: RegistryRelease,
  expected: Digest | undefined,
  context: Context,
): Promise<PresentImage[]> {
  await release.check(expected, context);
  const result: PresentImage[] = [];
  for (const component of releaseComponents) {
    const { image, id } = release.images[component];
    const named = await findImage(commands, image);
    // An archive of the installer does not say the IDs, so its images are told by name.
    if (named !== undefined && (id === undefined || named === id)) {
      result.push({ image, id: named, outcome: 'present' });
      continue;
    }
    const from = named === undefined ? '' : image;
    const loaded = await release.load(commands, [{ component, from, to: image, file: '', line: 0 }], context);
    result.push({ image, id: loaded.get(component) ?? '', outcome: named === undefined ? 'loaded' : 'unnamed' });
  }
  return result;
}

/**
 * Returns whether podman can be asked about a registry: it is there, and the registry is not of another user. Warns if
 * podman itself refuses this host. Throws the errors of reading, and `interrupted`.
 */
export async function canAskPodman(
  commands: HostCommands,
  { installation: { scope, quayRoot }, files }: { readonly installation: Installation; readonly files: HostFiles },
  context: Context,
): Promise<boolean> {
  const { uid } = await stat(files.locate(await files.resolve(quayRoot.value)));
  if (scope === 'user' && uid !== process.getuid?.()) return false;
  try {
    await commands.podman(['info', '--format', '{{.Host.Arch}}']);
    return true;
  } catch (error) {
    if (!isPluginError(error, 'command-failed')) throw error;
    // Without settings, the program is there.
    if (error.settings.length === 0) context.log('warn', [error.message, error.hint ?? []].flat().join('. '));
    return false;
  }
}

/** Returns the ID of an image by name; undefined if podman does not have it. Throws `command-failed`. */
export async function findImage(commands: HostCommands, image: string): Promise<string | undefined> {
  if (!(await commands.exists('image', image))) return undefined;
  return (await commands.podman(['image', 'inspect', '--format', '{{.Id}}', image])).trim();
}

/** Checks that podman has an image by name or ID, with the given ID, and returns its ID. Throws `digest-mismatch`. */
export async function requireImage(commands: HostCommands, image: string, id: string | undefined): Promise<string> {
  const present = await findImage(commands, image);
  if (present !== undefined && (id === undefined || present === id)) return present;
  const message = `podman has ${present ?? 'no image'} as ${image}, expected ${id ?? 'an image'}`;
  const hint = 'Nothing was changed. Another program may load images on this host. Try again.';
  throw new PluginError('digest-mismatch', message, { hint });
}

/** An image of a release, by its name in the unit. */
export interface ReleaseImage {
  readonly image: string;
  /** Its ID in podman; undefined if it is known only after loading. */
  readonly id: string | undefined;
}

/** An open release of the mirror registry with its images. */
export interface RegistryRelease {
  /** A bundle, a manifest list in a registry or image layout, or an archive of the installer. */
  readonly kind: 'bundle' | 'list' | 'installer';
  readonly name: string;
  readonly version: string | undefined;
  readonly arch: Architecture | undefined;
  /** The approximate size in podman, in bytes. */
  readonly size: number;
  readonly images: Readonly<Record<ReleaseComponent, ReleaseImage>>;
  /** Its bundle, if it has one. It is closed with the release. */
  readonly bundle?: Bundle;
  /**
   * Checks the release before podman loads it. `expected` is the digest of the whole. Throws `digest-mismatch`,
   * `incomplete` and `invalid-bundle`.
   */
  check(expected: Digest | undefined, context: Context): Promise<void>;
  /**
   * Loads the verified images of some changes into podman, and returns their IDs. An image that replaces another of the
   * same name stays without a name. Throws `command-failed`, and `digest-mismatch` if podman has another image.
   */
  load(
    commands: HostCommands,
    changes: readonly ImageChange[],
    context: Context,
  ): Promise<ReadonlyMap<ReleaseComponent, string>>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The images to change to. Other images stay. */
export type TargetImages = Readonly<Partial<Record<ReleaseComponent, string>>>;

/** An image that replaces another, which may have the same name. */
export interface ImageChange {
  readonly component: ReleaseComponent;
  readonly from: string;
  readonly to: string;
  readonly file: string;
  readonly line: number;
}

/** A name to move to another image, by ID, and its present ID. */
export interface ImageRename {
  readonly name: string;
  readonly to: string;
  readonly from: string | undefined;
}

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bundle } from '../bundle/open.ts';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import type { Reference } from '../oci/reference.ts';
import type { Architecture } from '../release/version.ts';
import { parseLocation } from '../store/location.ts';
import { OciLayout, ociLayoutFile } from '../store/ociLayout.ts';
import type { ContentSource } from '../store/store.ts';
import { openBundledRelease } from './bundledRelease.ts';
import type { HostCommands } from './hostCommands.ts';
import type { ReleaseComponent } from './installation.ts';
import { isInstallerArchive, openInstallerRelease } from './installerRelease.ts';
import { openListedRelease } from './listedRelease.ts';
import type { ImageChange, TargetImages } from './plan.ts';

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

/** A repository of a registry, open for reading. */
export interface OpenedRepository {
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Opens a release by what somebody wrote: a bundle, a mirror directory, an image layout, an archive of the installer’s, where `given` names images
 * that it does not name itself, or a reference into a registry, where without a tag the newest release is taken. Throws `not-found`, `not-readable`, `invalid-bundle`, and what registries throw.
 */
export async function openRegistryRelease(
  text: string,
  openRegistry: (reference: Reference) => Promise<OpenedRepository>,
  context: Context,
  given: TargetImages = {},
): Promise<RegistryRelease> {
  const location = await parseLocation(text.replace(/^oci:(?=[./])/, '')).catch((error: unknown) => {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  });
  if (location?.kind === 'registry') {
    const { content, close } = await openRegistry(location.reference);
    const { tag, digest } = location.reference;
    try {
      return await openListedRelease(content, digest ?? tag, close);
    } catch (error) {
      await close();
      throw error;
    }
  }
  if (location?.kind === 'directory' && (await isLayout(location.path))) {
    return openListedRelease(new OciLayout(location.path, context), undefined);
  }
  if (location?.kind === 'archive' && (await isInstallerArchive(location.path, context.signal))) {
    return openInstallerRelease(location.path, given, context);
  }
  // Of what is not there it says what is there instead.
  return openBundledRelease(location?.path ?? text, context);
}

function isLayout(path: string): Promise<boolean> {
  return stat(join(path, ociLayoutFile)).then(
    () => true,
    () => false,
  );
}

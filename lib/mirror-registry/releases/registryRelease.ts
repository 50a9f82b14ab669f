import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import type { Reference } from '../../oci/reference.ts';
import { parseLocation } from '../../location.ts';
import { OciLayout, ociLayoutFile } from '../../store/ociLayout.ts';
import type { ContentSource } from '../../store/store.ts';
import { openBundledRelease } from './bundledRelease.ts';
import { isInstallerArchive, openInstallerRelease } from './installerRelease.ts';
import { openListedRelease } from './listedRelease.ts';
import type { RegistryRelease, TargetImages } from './images.ts';

/** A repository of a registry, open for reading. */
export interface OpenedRepository {
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Opens a release by its location: a bundle, a mirror directory, an image layout, an archive of the installer, or a
 * registry, by default the newest release in it. `given` adds names of images to an archive. Throws `not-found`,
 * `not-readable`, `invalid-bundle`, and the errors of registries.
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
  // For a missing file, the error of this function lists the files of the folder.
  return openBundledRelease(location?.path ?? text, context);
}

function isLayout(path: string): Promise<boolean> {
  return stat(join(path, ociLayoutFile)).then(
    () => true,
    () => false,
  );
}
